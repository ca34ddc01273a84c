"""A thousand seeded chains: whatever goes wrong, no promise breaks, and once healed all train together.

A failure names its seed and tells the story; `run_seed(that seed)` replays it exactly, and
`simulation.shrink` makes it shorter.
`make soak` runs ten thousand, up to 32 nodes.
"""

from __future__ import annotations

import pytest

from simulation.scenario import SMALL, draw, play, run_seed

SEEDS = 1000
CHUNK = 50


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_promise_breaks_whatever_goes_wrong(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_seed(seed, sizes=SMALL)


@pytest.mark.parametrize("nodes", [8, 16, 32])
def test_no_promise_breaks_in_a_large_chain(nodes: int) -> None:
    play(draw(nodes, {nodes: 1}))


def test_a_seed_is_replayed_exactly() -> None:
    assert run_seed(11) == run_seed(11)
