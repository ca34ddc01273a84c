"""Chains of containers that tests strike: the demo's compose file, watched from the machine itself."""
