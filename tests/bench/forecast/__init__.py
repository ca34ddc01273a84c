"""`make bench-forecast`: what the chain says before a run, against what is measured in it."""
