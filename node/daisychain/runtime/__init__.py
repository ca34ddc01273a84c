"""The agent at work: the loop around the core, and the trainer's supervisor."""
