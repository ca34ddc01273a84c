"""The training state as one unit, and how the members of a world come to hold the same."""
