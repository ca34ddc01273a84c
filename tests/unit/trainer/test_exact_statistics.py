"""What is learnt from a table is exact: the same as from a list of all its values, however it is cut."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from daisychain.trainer.jobs.streaming.exact_sums import PARTS_MAX, ExactSum
from daisychain.trainer.jobs.streaming.ranks import COLLECTED_MAX, RankSearch, keys_of, value_of

NUMBERS = st.floats(-1e200, 1e200)


def pieces(values: np.ndarray, cuts: int) -> list[np.ndarray]:
    return np.array_split(values, cuts)


@given(st.lists(NUMBERS, max_size=50), st.integers(1, 9), st.integers(1, 40))
def test_a_sum_is_that_of_fsum_to_the_bit(values: list[float], cuts: int, repeats: int) -> None:
    every = np.array(values * repeats + [-value for value in values[1:]], dtype=np.float64)
    total = ExactSum()
    for piece in pieces(every, cuts):
        total.add(piece)
    assert total.value == math.fsum(every.tolist())


def test_a_sum_of_any_length_is_exact_in_bounded_memory() -> None:
    random = np.random.default_rng(1)
    total, every = ExactSum(), []
    for _ in range(2 * PARTS_MAX // 200):
        piece = random.standard_normal(200) * 10.0 ** random.integers(-300, 150, 200)
        total.add(piece)
        every += piece.tolist()
    for _ in range(20):
        piece = random.standard_normal(5000) * 10.0 ** random.integers(-30, 15, 5000)
        total.add(piece)
        every += piece.tolist()
    assert total.value == math.fsum(every)
    assert len(total._parts) <= PARTS_MAX + 200


@given(st.lists(NUMBERS, min_size=1, max_size=40), st.integers(1, 5), st.data())
def test_ranks_are_those_of_the_sorted_list(values: list[float], cuts: int, data: st.DataObject) -> None:
    every = np.array(values, dtype=np.float64)
    ranks = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=3))
    assert found(every, cuts, ranks) == [sorted(values)[rank] for rank in ranks]


def test_ranks_among_more_values_than_are_collected() -> None:
    random = np.random.default_rng(2)
    close = 1.0 + random.integers(0, 50, 4 * COLLECTED_MAX) * 2.0**-50  # alike down to the last sixteen bits
    spread = random.standard_normal(4 * COLLECTED_MAX) * 10.0 ** random.integers(-200, 90, 4 * COLLECTED_MAX)
    alike = np.full(2 * COLLECTED_MAX, -3.5)
    for every in (close, spread, alike, np.concatenate([close, spread, alike])):
        middle = len(every) // 2
        ranks = [0, middle - 1, middle, len(every) - 1]
        assert found(every, 7, ranks) == np.sort(every)[ranks].tolist()


def found(values: np.ndarray, cuts: int, ranks: list[int]) -> list[float]:
    search = RankSearch()
    for _ in range(5):
        for piece in pieces(values, cuts):
            search.show(keys_of(piece))
        if search.end_pass(ranks):
            return [value_of(key) for key in search.found]
    raise AssertionError("not found in five passes")
