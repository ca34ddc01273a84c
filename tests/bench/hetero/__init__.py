"""`make bench-hetero`: what machines of unequal speed gain together, and what one alone pays."""
