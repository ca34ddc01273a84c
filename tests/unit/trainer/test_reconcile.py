"""Who passes whose state to whom when a world has formed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.errors import WorldError
from daisychain.trainer.state.reconcile import Decision, NobodySoundError, Record, decide
from daisychain.trainer.state.tolerance import Tolerance
from support.plans import node_id

TOLERANCE = Tolerance(alike=1e-6, unlike=1e-4)


def record(
    index: int,
    step: int,
    *,
    committed_in: int = 1,
    prepared: int | None = None,
    prepared_in: int = 1,
    healed: bool = True,
    at: float = 1.0,
    rounding: int = 3,
    digest: str = "",
) -> Record:
    return Record(
        node_id=node_id(index),
        run=1,
        layout=2,
        rounding=rounding,
        step=step,
        evaluations=0,
        committed_in=committed_in,
        prepared_tick=prepared,
        prepared_in=prepared_in,
        healed=healed,
        sketch=(abs(at), at, -at),
        digest=digest.encode(),
    )


def receivers(decision: Decision) -> list[int]:
    return [receiver for _, receiver in decision.passes]


def test_members_that_hold_one_state_need_nothing() -> None:
    assert decide([record(0, 7), record(1, 7), record(2, 7)], TOLERANCE).settled


def test_rounding_is_no_difference_and_drift_is() -> None:
    assert decide([record(0, 7), record(1, 7, at=1 + 5e-7)], TOLERANCE).settled
    decision = decide([record(0, 7), record(1, 7, at=1 + 5e-6)], TOLERANCE)
    assert decision == Decision(passes=((0, 1),), drifted=(1,))


def test_whoever_is_behind_receives_from_the_most_advanced() -> None:
    decision = decide([record(0, 3), record(1, 9), record(2, 0)], TOLERANCE)
    assert decision == Decision(passes=((1, 0), (1, 2)))


def test_an_evaluation_counts_like_a_step() -> None:
    decision = decide([record(0, 9), replace(record(1, 9), evaluations=1)], TOLERANCE)
    assert decision.passes == ((1, 0),)


def test_ties_go_to_the_lowest_node_id_whatever_the_rank() -> None:
    decision = decide([record(5, 9), record(2, 9), record(3, 1)], TOLERANCE)
    assert decision.passes == ((1, 2),)


def test_a_commit_that_only_some_saw_is_applied_by_those_who_hold_it() -> None:
    decision = decide([record(0, 8), record(1, 7, prepared=8), record(2, 7)], TOLERANCE)
    assert decision == Decision(apply=(1,))
    after = decide([record(0, 8), record(1, 8), record(2, 7)], TOLERANCE)
    assert after.passes == ((0, 2),)


@pytest.mark.parametrize("prepared", [7, 9, 10])
def test_what_was_prepared_for_another_tick_is_not_applied(prepared: int) -> None:
    assert decide([record(0, 8), record(1, 7, prepared=prepared)], TOLERANCE).apply == ()


@pytest.mark.parametrize(("committed_in", "prepared_in"), [(2, 1), (1, 2), (0, 1), (0, 0)])
def test_what_was_prepared_in_another_world_is_not_applied(committed_in: int, prepared_in: int) -> None:
    """Both sides of a partition may have reduced that tick, each with its own rounding."""
    members = [record(0, 8, committed_in=committed_in), record(1, 7, prepared=8, prepared_in=prepared_in)]
    assert decide(members, TOLERANCE).passes == ((0, 1),)


def test_a_reduction_is_applied_whoever_of_the_most_advanced_committed_it() -> None:
    members = [
        record(0, 8, committed_in=2),
        record(1, 8, committed_in=3),
        record(2, 7, prepared=8, prepared_in=3),
    ]
    assert decide(members, TOLERANCE).apply == (2,)


def test_what_an_unsound_member_committed_is_not_applied() -> None:
    members = [record(0, 8, healed=False), record(1, 7, prepared=8), record(2, 7)]
    assert decide(members, TOLERANCE).apply == ()


def test_a_reduction_that_nobody_committed_is_not_applied() -> None:
    assert decide([record(0, 7, prepared=8), record(1, 7, prepared=8)], TOLERANCE).settled


def test_an_unsound_member_receives_even_from_one_behind_it() -> None:
    decision = decide([record(0, 9, healed=False), record(1, 7)], TOLERANCE)
    assert decision.passes == ((1, 0),)
    decision = decide([record(0, 9, at=math.nan), record(1, 7)], TOLERANCE)
    assert decision.passes == ((1, 0),)


def test_a_run_without_a_sound_member_has_failed() -> None:
    with pytest.raises(NobodySoundError):
        decide([record(0, 9, at=math.inf), record(1, 9, healed=False)], TOLERANCE)


def test_drift_is_repaired_from_the_majority() -> None:
    decision = decide([record(0, 7, at=2.0), record(1, 7), record(2, 7)], TOLERANCE)
    assert decision == Decision(passes=((1, 0),), drifted=(0,))


def test_of_two_that_differ_the_finite_one_keeps_its_state_else_the_lowest_id() -> None:
    assert decide([record(0, 7, at=math.inf), record(1, 7)], TOLERANCE).passes == ((1, 0),)
    assert decide([record(1, 7, at=2.0), record(0, 7)], TOLERANCE).passes == ((1, 0),)


def test_states_that_were_made_differently_are_passed_and_not_called_drifted() -> None:
    members = [record(0, 0, at=1 + 1e-3, rounding=4), record(1, 0)]
    assert decide(members, TOLERANCE) == Decision(passes=((0, 1),))


def test_digests_decide_to_the_bit_where_they_are_told() -> None:
    assert decide([record(0, 7, digest="a"), record(1, 7, at=1.1, digest="a")], TOLERANCE).settled
    assert decide([record(0, 7, digest="a"), record(1, 7, digest="b")], TOLERANCE).drifted == (1,)


@pytest.mark.parametrize("digests", [("", ""), ("a", "b")], ids=["default", "reproducible"])
def test_members_that_round_differently_agree_up_to_rounding_and_no_further(digests: tuple[str, str]) -> None:
    one, two = digests
    near = [record(0, 7, digest=one), record(1, 7, at=1 + 5e-5, rounding=4, digest=two)]
    assert decide(near, TOLERANCE).settled
    far = [record(0, 7, digest=one), record(1, 7, at=1 + 1e-3, rounding=4, digest=two)]
    assert decide(far, TOLERANCE) == Decision(passes=((0, 1),), drifted=(1,))


@pytest.mark.parametrize("digests", [("", "", ""), ("a", "b", "c")], ids=["default", "reproducible"])
def test_a_third_of_another_kind_does_not_hide_drift_between_two_of_one(digests: tuple[str, ...]) -> None:
    """Both lie within its wide bound, but not within theirs."""
    members = [
        record(0, 7, at=1 + 2e-5, digest=digests[0]),
        record(1, 7, digest=digests[1]),
        record(2, 7, rounding=4, digest=digests[2]),
    ]
    assert decide(members, TOLERANCE) == Decision(passes=((0, 1),), drifted=(1,))
    majority = [*members, record(3, 7, digest=digests[1])]
    assert decide(majority, TOLERANCE) == Decision(passes=((1, 0),), drifted=(0,))


def test_bits_of_one_kind_of_machine_stay_with_that_kind() -> None:
    """Else the joiner would differ from the others of its kind, and be taken for drifted the next time."""
    members = [
        record(0, 7, digest="a", rounding=3),
        record(1, 7, digest="b", rounding=4),
        record(2, 0, digest="c", rounding=4),
        record(3, 0, digest="c", rounding=5),
    ]
    assert decide(members, TOLERANCE).passes == ((1, 2), (0, 3))


def test_members_of_different_runs_or_models_do_not_mix() -> None:
    with pytest.raises(WorldError, match="another run"):
        decide([record(0, 7), replace(record(1, 7), run=9)], TOLERANCE)
    with pytest.raises(WorldError, match="another model"):
        decide([record(0, 7), replace(record(1, 7), layout=9)], TOLERANCE)


MEMBERS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from([None, 1, 2, 3, 4, 5]),
        st.booleans(),
        st.sampled_from([1.0, 1.0, 1.0, 1 + 8e-7, 1 + 1.6e-6, 1 + 8e-5, 1 + 1.6e-4, 2.0, math.nan]),
        st.integers(3, 5),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=7,
)


@given(MEMBERS, st.booleans())
def test_members_always_come_to_one_state(
    facts: list[tuple[int, int | None, bool, float, int, int, int]], reproducible: bool
) -> None:
    """Carrying out decisions settles in three rounds, on a state that some sound member held or was owed."""
    records = [
        record(
            index,
            step,
            committed_in=committed_in,
            prepared=prepared,
            prepared_in=prepared_in,
            healed=healed,
            at=at,
            rounding=rounding,
            digest=str(at) if reproducible else "",
        )
        for index, (step, prepared, healed, at, rounding, committed_in, prepared_in) in enumerate(facts)
    ]
    sound = [each for each in records if each.sound]
    if not sound:
        with pytest.raises(NobodySoundError):
            decide(records, TOLERANCE)
        return
    newest = max(each.tick for each in sound)
    for _ in range(3):
        decision = decide(records, TOLERANCE)
        if decision.settled:
            break
        for rank in decision.apply:
            assert records[rank].tick == newest - 1
            assert records[rank].prepared_in in {each.committed_in for each in sound if each.tick == newest}
            records[rank] = replace(records[rank], step=records[rank].step + 1, prepared_tick=None)
        before = list(records)
        for giver, rank in decision.passes:
            own, donor = before[rank], before[giver]
            assert donor.tick == newest
            assert donor.sound
            assert giver not in receivers(decision)
            records[rank] = replace(donor, node_id=own.node_id, rounding=own.rounding, prepared_tick=None)
    assert decide(records, TOLERANCE).settled
    assert {each.tick for each in records} == {newest}
