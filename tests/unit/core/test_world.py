"""Which nodes train together, and what the others are told."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.core.clique import largest_clique
from daisychain.core.compute_world import Applicant, compute_world
from daisychain.core.ids import NodeId, RunId
from daisychain.core.node import NodeInfo, TrainerState, TrainerStatus
from daisychain.core.shares import Capacity
from unit.core.chains import READY, RUN, generation, info, node_id


def applicant(number: int, reaches: tuple[int, ...], trainer: TrainerStatus = READY) -> Applicant:
    return Applicant(info(number), trainer, tuple(node_id(n) for n in reaches), holds=True)


def members(applicants: list[Applicant], coordinator: int = 1, excluded: tuple[int, ...] = ()) -> list[int]:
    out = frozenset(node_id(number) for number in excluded)
    selection = compute_world(info(coordinator), applicants, RUN, out)
    return [int(member.node_id, 16) for member in selection.members]


def reasons(applicants: list[Applicant], excluded: tuple[int, ...] = ()) -> dict[NodeId, str]:
    out = frozenset(node_id(number) for number in excluded)
    return dict(compute_world(info(1), applicants, RUN, out).left_out)


ALL = (1, 2, 3)


def test_all_that_fit_train_and_the_coordinator_is_rank_zero() -> None:
    applicants = [applicant(number, ALL) for number in ALL]
    assert members(applicants) == [1, 2, 3]
    assert members(applicants, coordinator=3) == [3, 1, 2]


def test_nodes_that_do_not_reach_each_other_are_not_in_one_world() -> None:
    applicants = [applicant(1, ALL), applicant(2, (1, 2)), applicant(3, ALL)]
    assert members(applicants) == [1, 2]
    assert reasons(applicants)[node_id(3)] == "n3 and n2 do not reach each other"


@pytest.mark.parametrize(
    ("trainer", "word"),
    [
        (TrainerStatus(), "no trainer"),
        (replace(READY, state=TrainerState.LOADING), "loading"),
        (replace(READY, state=TrainerState.FAILED, reason="model.py:3: no"), "model.py:3"),
        (replace(READY, stalled=True, reason="its trainer has not answered"), "not answered"),
        (replace(READY, run_id=RunId("other-1")), "no trainer"),
    ],
)
def test_a_trainer_that_cannot_is_left_out_with_the_reason(trainer: TrainerStatus, word: str) -> None:
    applicants = [applicant(1, ALL), applicant(2, ALL, trainer)]
    assert members(applicants) == [1]
    assert word in reasons(applicants)[node_id(2)]


@pytest.mark.parametrize("state", [TrainerState.FORMING, TrainerState.TRAINING, TrainerState.DONE])
def test_a_trainer_in_a_world_or_done_can_enter_the_next(state: TrainerState) -> None:
    assert members([applicant(1, ALL), applicant(2, ALL, replace(READY, state=state))]) == [1, 2]


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (replace(info(2), version="0.2.0"), "DaisyChain 0.2.0"),
        (replace(info(2), torch_version="2.14.1+cu130"), "torch 2.14.1+cu130"),
    ],
)
def test_another_series_of_software_is_named(facts: NodeInfo, word: str) -> None:
    odd = replace(applicant(2, ALL), info=facts)
    assert members([applicant(1, ALL), odd]) == [1]
    assert word in reasons([applicant(1, ALL), odd])[node_id(2)]


def test_another_build_or_patch_level_trains_along() -> None:
    odd = applicant(2, ALL)
    odd = replace(odd, info=replace(odd.info, torch_version="2.13.1+cu126", version="0.1.7"))
    assert members([applicant(1, ALL), odd]) == [1, 2]


def test_excluded_and_doubtful_nodes_wait() -> None:
    applicants = [applicant(number, ALL) for number in ALL]
    assert members(applicants, excluded=(2,)) == [1, 3]
    assert "held up" in reasons(applicants, excluded=(2,))[node_id(2)]
    applicants[2] = replace(applicants[2], doubtful=True)
    assert members(applicants) == [1, 2]


def test_a_coordinator_without_a_trainer_has_the_others_train() -> None:
    applicants = [applicant(1, ALL, TrainerStatus()), applicant(2, ALL), applicant(3, ALL)]
    assert members(applicants) == [2, 3]


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 7), st.data())
def test_the_clique_is_the_largest_one(count: int, data: st.DataObject) -> None:
    nodes = [node_id(number) for number in range(count)]
    pairs = [pair for pair in itertools.combinations(nodes, 2) if data.draw(st.booleans())]
    links = {
        node: frozenset(other for pair in pairs if node in pair for other in pair if other != node)
        for node in nodes
    }
    anchor = data.draw(st.sampled_from([None, *nodes]))
    found = largest_clique(links, anchor)
    fit = [
        group
        for size in range(count + 1)
        for group in itertools.combinations(nodes, size)
        if all(other in links[one] for one, other in itertools.combinations(group, 2))
        and (anchor is None or anchor in group)
    ]
    longest = max(len(group) for group in fit)
    assert found == min(group for group in fit if len(group) == longest)


def fitted(number: int, per_unit_s: float, **told: object) -> Applicant:
    trainer = replace(READY, capacity=Capacity(0.01, per_unit_s))
    return applicant(number, (1, 2, 3, 4), replace(trainer, **told))  # type: ignore[arg-type]


def capped(
    applicants: list[Applicant], most: int, coordinator: int = 1
) -> tuple[list[int], dict[NodeId, str]]:
    selection = compute_world(info(coordinator), applicants, RUN, frozenset(), most)
    assert selection.spare == {node_id for node_id, why in selection.left_out if "max_nodes" in why}
    return [int(member.node_id, 16) for member in selection.members], dict(selection.left_out)


def test_of_more_nodes_than_a_job_takes_the_fastest_train_it_and_the_others_are_told() -> None:
    four = [fitted(1, 0.004), fitted(2, 0.001), fitted(3, 0.003), fitted(4, 0.001)]
    assert capped(four, 2) == (
        [2, 4],
        dict.fromkeys((node_id(1), node_id(3)), "max_nodes of the job is 2: n2, n4 train it"),
    )
    assert capped(four, 3)[0] == [2, 3, 4]
    assert capped(four, 4) == ([1, 2, 3, 4], {})
    assert capped(four, 0)[0] == [1, 2, 3, 4]
    assert capped(four, 1, coordinator=4)[0] == [2]


def test_whoever_trained_the_job_already_stays_though_a_faster_one_has_come() -> None:
    begun = replace(READY, state=TrainerState.TRAINING, generation=generation(1), tick=7, step=7)
    slow, late = fitted(1, 0.009), fitted(3, 0.008)
    slow = replace(slow, trainer=replace(begun, capacity=Capacity(0.01, 0.009)))
    late = replace(late, trainer=replace(begun, capacity=Capacity(0.01, 0.008), tick=6))
    assert capped([slow, fitted(2, 0.001), late], 2)[0] == [1, 3]


def test_who_has_committed_the_most_is_never_left_out() -> None:
    saved = fitted(3, 0.009, tick=40, step=40)
    assert capped([fitted(1, 0.001), fitted(2, 0.001), saved], 1)[0] == [3]
    assert capped([fitted(1, 0.001), fitted(2, 0.002), saved], 2)[0] == [1, 3]
