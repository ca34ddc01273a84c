"""The user's job in memory: both kinds, and using what was trained."""
