"""`daisychain demo`: a whole chain on this machine, with a death in mid-run."""
