"""The trainer: real processes, sockets and gloo."""
