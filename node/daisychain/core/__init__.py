"""The pure heart of the chain: decisions only, no clock, socket, file or thread."""
