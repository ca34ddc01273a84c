"""The training process: the only part that imports torch."""
