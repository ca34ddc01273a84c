"""A thousand seeded chains: whatever goes wrong, no promise breaks, and once healed the job ends.

A failure names its seed and tells the story; `run_seed(that seed)` replays it exactly.
"""

from __future__ import annotations

import pytest

from simulation.faults import run_seed

SEEDS = 1000
CHUNK = 50

FOUND = {
    2: "a silence compared in two ways of rounding made the timer spin",
    453: "a goodbye of the earlier life came after the new one was admitted, and buried it",
    522: "the finished world of one run ended the next run as well",
    657: "a half-open link: the peer was heard and never reached, and nobody dialled again",
}
"""Seeds that once broke a promise, and how."""


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_promise_breaks_whatever_goes_wrong(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_seed(seed)


@pytest.mark.parametrize("seed", FOUND, ids=lambda seed: f"seed {seed}")
def test_a_seed_that_once_failed_stays_mended(seed: int) -> None:
    run_seed(seed)


def test_a_seed_is_replayed_exactly() -> None:
    assert run_seed(11) == run_seed(11)
