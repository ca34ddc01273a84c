"""A bundle on this machine: read chunk by chunk, staged, placed, and kept under a budget."""
