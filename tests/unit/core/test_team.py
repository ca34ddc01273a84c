from __future__ import annotations

import itertools
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.core import team as team_module
from daisychain.core.forecast import Link, Links, Work, Worker, forecast
from daisychain.core.ids import NodeId
from daisychain.core.shares import Capacity
from daisychain.core.team import CHEAP, GAIN, Terms, best_team

MBIT = 125_000.0
FAST = Link(100 * MBIT, 0.0002)


def chain(seed: int, count: int) -> tuple[list[Worker], Links, Work]:
    """Return nodes of mixed speeds, links of mixed quality, and a job."""
    rng = random.Random(seed)
    workers = []
    for index in range(count):
        per_unit_s = 10 ** rng.uniform(-6, -2)
        capacity = Capacity(per_unit_s * rng.choice([0, 1, 100]), per_unit_s, rng.choice([7, 64, 1 << 30]))
        workers.append(Worker(NodeId(f"{index:02}"), f"n{index}", capacity, rng.choice([0.0, 0.001])))
    access = [Link(rng.choice([1, 10, 100, 1000]) * MBIT, rng.choice([0.0, 0.0005, 0.02])) for _ in workers]
    links = {
        (a.node_id, b.node_id): Link(
            min(access[i].bytes_per_s, access[j].bytes_per_s), access[i].latency_s + access[j].latency_s
        )
        for (i, a), (j, b) in itertools.permutations(enumerate(workers), 2)
        if rng.random() < 0.9
    }
    overlap = rng.choice([(1, 0.0), (4, 0.5)])
    return workers, links, Work(rng.choice([1, 32, 512]), rng.choice([2_000, 1 << 20, 1 << 24]), 64, *overlap)


def sets_of(workers: list[Worker], terms: Terms) -> list[tuple[Worker, ...]]:
    """Return every set that the terms allow."""
    least = min(terms.least, len(workers))
    return [
        chosen
        for size in range(1, len(workers) + 1)
        for chosen in itertools.combinations(workers, size)
        if size >= least and (not terms.anyone_of or terms.anyone_of & {each.node_id for each in chosen})
    ]


TERMS = st.builds(
    Terms,
    least=st.integers(1, 4),
    anyone_of=st.frozensets(st.sampled_from([NodeId("00"), NodeId("02")])),
    present=st.frozensets(st.sampled_from([NodeId(f"{index:02}") for index in range(4)])),
)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), TERMS)
def test_no_set_is_faster_by_more_than_what_is_not_worth_a_change(
    seed: int, count: int, terms: Terms
) -> None:
    workers, links, work = chain(seed, count)
    known = {each.node_id for each in workers}
    terms = Terms(terms.least, terms.anyone_of & known, terms.present & known)
    allowed = sets_of(workers, terms)
    best_s = min(forecast(chosen, links, work).step_s for chosen in allowed)
    found = best_team(workers, links, work, terms)
    assert found.members in allowed
    assert found.expected == forecast(found.members, links, work)
    present_fits = any({each.node_id for each in chosen} == terms.present for chosen in allowed)
    limit = GAIN if present_fits else CHEAP
    assert found.expected.step_s <= best_s * (1 + limit) * (1 + 1e-9)
    assert {each.node_id for each in found.left} == known - {each.node_id for each in found.members}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6))
def test_who_trains_goes_on_while_nothing_gains_enough(seed: int, count: int) -> None:
    workers, links, work = chain(seed, count)
    first = best_team(workers, links, work)
    present = frozenset(each.node_id for each in first.members)
    for _ in range(3):  # noise of a hundredth in all that was measured
        rng = random.Random(seed)
        noisy = [
            Worker(w.node_id, w.name, Capacity(w.capacity.fixed_s * f, w.capacity.per_unit_s * f), w.commit_s)
            for w, f in ((w, 1 + 0.004 * rng.random()) for w in workers)
        ]
        again = best_team(noisy, links, work, Terms(present=present))
        assert present <= frozenset(each.node_id for each in again.members) or (
            again.expected.step_s * (1 + GAIN)
            < forecast([w for w in noisy if w.node_id in present], links, work).step_s * (1 + 1e-9)
        )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 3))
def test_one_by_one_is_near_the_best_and_never_worse_than_all_or_the_fastest(
    seed: int, count: int, least: int
) -> None:
    workers, links, work = chain(seed, count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(team_module, "EXHAUSTIVE_MAX", 0)
        found = best_team(workers, links, work, Terms(least=least))
    simple = [forecast(workers, links, work).step_s]
    if least == 1:
        simple += [forecast([each], links, work).step_s for each in workers]
    assert len(found.members) >= min(least, count)
    assert found.expected.step_s <= min(simple) * (1 + CHEAP) * (1 + 1e-9)


def test_one_by_one_finds_nearly_always_what_every_set_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    missed = 0
    for seed in range(150):
        workers, links, work = chain(seed, 7)
        best_s = best_team(workers, links, work).expected.step_s
        with monkeypatch.context() as patch:
            patch.setattr(team_module, "EXHAUSTIVE_MAX", 0)
            missed += best_team(workers, links, work).expected.step_s > best_s * 1.03
    assert missed <= 7  # of 150


def trio(link: Link) -> tuple[list[Worker], Links]:
    """Return three equal nodes, the third behind ``link``."""
    workers = [Worker(NodeId(name), name, Capacity(0.0, 0.001)) for name in "abc"]
    links = {
        (a.node_id, b.node_id): link if "c" in (a.name, b.name) else FAST
        for a, b in itertools.permutations(workers, 2)
    }
    return workers, links


def test_a_node_behind_two_megabits_stands_by_with_the_reason() -> None:
    workers, links = trio(Link(2 * MBIT, 0.002))
    found = best_team(workers, links, Work(600, 800_000))
    assert [each.name for each in found.members] == ["a", "b"]
    (left,) = found.left
    assert left.node_id == "c"
    assert left.factor < 0.2
    assert left.reason == f"would make it {left.factor:.2g}x: link 2 Mbit/s"


def test_it_trains_when_the_link_heals() -> None:
    workers, links = trio(FAST)
    pair = frozenset({NodeId("a"), NodeId("b")})
    found = best_team(workers, links, Work(600, 800_000), Terms(present=pair))
    assert len(found.members) == 3


def test_a_far_node_is_told_to_be_far() -> None:
    workers, links = trio(Link(100 * MBIT, 0.080))
    (left,) = best_team(workers, links, Work(200, 4_000)).left
    assert left.reason.endswith("link 160 ms there and back")


def test_a_node_whose_fixed_cost_paces_is_told_so() -> None:
    workers = [Worker(NodeId(n), n, Capacity(0.001, 0.0001)) for n in "ab"]
    workers.append(Worker(NodeId("c"), "c", Capacity(0.2, 0.0001)))
    (left,) = best_team(workers, {}, Work(100, 4_000)).left
    assert "its part alone takes 200 ms" in left.reason


def test_a_small_model_is_left_to_the_fastest_and_each_other_node_learns_why() -> None:
    workers = [Worker(NodeId(n), n, Capacity(0.0004, 1e-6 * k)) for k, n in enumerate("abc", 1)]
    found = best_team(workers, {}, Work(128, 66_000))
    assert [each.name for each in found.members] == ["a"]
    assert all(each.factor < 1 for each in found.left)


def test_a_job_that_wants_three_gets_three() -> None:
    workers, links = trio(Link(2 * MBIT, 0.002))
    assert len(best_team(workers, links, Work(600, 800_000), Terms(least=3)).members) == 3
    assert len(best_team(workers, links, Work(600, 800_000), Terms(least=9)).members) == 3


def test_who_alone_has_the_newest_step_trains() -> None:
    workers, links = trio(Link(2 * MBIT, 0.002))
    found = best_team(workers, links, Work(600, 800_000), Terms(anyone_of=frozenset({NodeId("c")})))
    assert "c" in [each.name for each in found.members]


@pytest.mark.parametrize("count", [12, 32])
def test_choosing_takes_a_moment(count: int) -> None:
    rng = random.Random(5)
    workers = [
        Worker(NodeId(f"{i:02}"), f"n{i}", Capacity(0.001, rng.uniform(1, 4) * 1e-4)) for i in range(count)
    ]
    links = {(a.node_id, b.node_id): FAST for a, b in itertools.permutations(workers, 2)}
    began_at = time.process_time()
    found = best_team(workers, links, Work(4096, 400_000))
    assert time.process_time() - began_at < 1.5
    assert found.members
