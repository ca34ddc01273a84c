"""Which samples a step takes, in what order, and how a batch is cut: pure functions of job, seed and step."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.core.job_spec import JobSpec, PythonModel
from daisychain.trainer.engine import granules
from daisychain.trainer.engine.sampler import granule_seed, order, own_units
from daisychain.trainer.engine.timeline import StepPosition, Timeline

SPEC = JobSpec(PythonModel("model.py"), 24, 3, None)
sizes = st.integers(1, 500)


@given(samples=sizes, batch=sizes, epochs=st.integers(1, 4))
def test_every_sample_is_taken_once_an_epoch(samples: int, batch: int, epochs: int) -> None:
    spec = replace(SPEC, global_batch_size=batch, epochs=epochs)
    timeline = Timeline.of(spec, samples, False)
    taken: dict[int, list[int]] = {}
    for step in range(timeline.steps):
        position = timeline.position(step)
        assert 0 < position.samples <= batch
        taken.setdefault(position.epoch, []).extend(range(position.start, position.stop))
    assert list(taken) == list(range(epochs))
    assert all(positions == list(range(samples)) for positions in taken.values())


def test_steps_may_end_within_an_epoch() -> None:
    timeline = Timeline.of(replace(SPEC, epochs=None, steps=6), 83, True)
    assert (timeline.steps, timeline.steps_per_epoch) == (6, 4)
    assert timeline.position(3) == StepPosition(3, 0, 72, 83)
    assert timeline.position(5) == StepPosition(5, 1, 24, 48)


def due(spec: JobSpec, has_validation: bool = True) -> list[int]:
    """Return after how many steps each evaluation comes."""
    timeline, evaluations, found = Timeline.of(spec, 83, has_validation), 0, []
    for step in range(timeline.steps + 1):
        while timeline.evaluation_due(step, evaluations):
            evaluations += 1
            found.append(step)
    assert evaluations == timeline.evaluations(timeline.steps)
    return found


def test_evaluations_come_at_their_interval_and_at_the_end() -> None:
    assert due(SPEC) == [4, 8, 12]
    assert due(replace(SPEC, evaluate_every_epochs=2)) == [8, 12]
    assert due(replace(SPEC, evaluate_every_epochs=None, evaluate_every_steps=5)) == [5, 10, 12]
    assert due(replace(SPEC, evaluate_every_epochs=None)) == [12]
    assert due(SPEC, has_validation=False) == []


def test_an_order_needs_samples() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Timeline.of(SPEC, 0, False)


@given(seed=st.integers(-(2**63), 2**64), epoch=st.integers(0, 1000), samples=sizes)
def test_an_order_is_a_permutation(seed: int, epoch: int, samples: int) -> None:
    assert sorted(order(seed, epoch, samples).tolist()) == list(range(samples))


def test_orders_differ_by_seed_and_by_epoch_and_never_change() -> None:
    """The written-out one is the formula's: any release, and any other program, must give it."""
    assert order(7, 2, 10).tolist() == [6, 7, 8, 4, 0, 1, 5, 3, 9, 2]
    first = order(7, 2, 1000).tolist()
    assert first == order(7, 2, 1000).tolist()
    assert first != order(7, 3, 1000).tolist()
    assert first != order(8, 2, 1000).tolist()
    generator = np.random.Philox(key=[7, 2])
    raw = [int(generator.random_raw()) for _ in range(1000)]
    assert first == sorted(range(1000), key=lambda sample: raw[sample])


@given(shares=st.lists(st.integers(0, 50), min_size=1, max_size=8))
def test_shares_cut_the_units_in_rank_order(shares: list[int]) -> None:
    units = [unit for rank in range(len(shares)) for unit in own_units(shares, rank)]
    assert units == list(range(sum(shares)))


@given(samples=sizes, granule=st.integers(1, 64))
def test_granules_cut_a_batch_whole(samples: int, granule: int) -> None:
    total = granules.count(samples, granule)
    cut = granules.pieces(samples, granule, range(total))
    assert [piece.index for piece in cut] == list(range(total))
    assert [position for piece in cut for position in range(piece.start, piece.stop)] == list(range(samples))
    assert all(piece.samples == granule for piece in cut[:-1])
    if total > 1:
        assert 2 * cut[-1].samples >= granule, "a small rest must merge"
        assert granule == 1 or cut[-1].samples > 1, "a single sample must merge"


@pytest.mark.parametrize(
    ("samples", "granule", "expected"),
    [
        (64, 32, [32, 32]),
        (79, 32, [32, 47]),
        (80, 32, [32, 32, 16]),
        (15, 32, [15]),
        (5, 2, [2, 3]),
        (1, 2, [1]),
    ],
)
def test_a_small_last_granule_merges(samples: int, granule: int, expected: list[int]) -> None:
    cut = granules.pieces(samples, granule, range(granules.count(samples, granule)))
    assert [piece.samples for piece in cut] == expected


@given(start=st.integers(0, 100), length=st.integers(0, 5000), largest=st.integers(1, 1024))
def test_micro_batches_cut_a_share_evenly(start: int, length: int, largest: int) -> None:
    units = range(start, start + length)
    cut = granules.micro_batches(units, largest)
    assert [position for piece in cut for position in range(piece.start, piece.stop)] == list(units)
    assert all(0 < piece.samples <= largest for piece in cut)
    if cut:
        assert max(piece.samples for piece in cut) - min(piece.samples for piece in cut) <= 1
        assert len(cut) == -(-length // largest)


def test_a_granule_draws_from_its_place_alone() -> None:
    digest = hashlib.blake2b(b"3/17/2", digest_size=8).digest()
    assert granule_seed(3, 17, 2) == int.from_bytes(digest, "little") >> 1
    seeds = {granule_seed(seed, step, index) for seed in range(3) for step in range(20) for index in range(9)}
    assert len(seeds) == 3 * 20 * 9
