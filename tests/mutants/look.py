"""A bounded look at the simulator with the core that is on the path: it fails at the first broken promise."""

from __future__ import annotations

import sys

from simulation.scenario import SMALL, run_seed


def main() -> int:
    """Run as many seeds as the first argument says."""
    for seed in range(int(sys.argv[1])):
        run_seed(seed, sizes=SMALL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
