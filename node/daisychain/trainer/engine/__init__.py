"""The training maths: what a rank computes, how its sums are exact, how fast it is."""
