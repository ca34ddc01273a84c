"""The simulator at length: `make soak`."""
