"""Tables that may be larger than memory: walked in blocks, summed exactly, kept converted on disk."""
