"""One gloo world: formed beside the last, ended from any thread."""
