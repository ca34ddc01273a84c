"""A Docker engine for the tests: the machine's own, or one that is made for them and leaves nothing."""
