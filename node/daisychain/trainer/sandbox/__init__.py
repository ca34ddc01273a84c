"""Job code's bounds: the files it may touch, the memory it may take; set before any of it is imported."""
