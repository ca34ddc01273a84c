"""Whether the tests of the core notice a broken core: `make mutants`."""
