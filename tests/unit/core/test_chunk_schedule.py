"""Which chunk is asked of whom: every chunk arrives once, bounded, whatever peers do."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from daisychain.core.chunk_schedule import Chunk, ChunkSchedule, ScheduleSettings
from daisychain.core.effects import Source
from daisychain.core.ids import Address
from unit.core.chains import node_id

SETTINGS = ScheduleSettings()


def source(number: int) -> Source:
    return Source(node_id(number), f"n{number}", Address(f"10.0.0.{number}", 7000))


def chunks(count: int) -> list[Chunk]:
    return [(0, index) for index in range(count)]


def schedule(count: int, *numbers: int) -> ChunkSchedule:
    made = ChunkSchedule(chunks(count), SETTINGS)
    made.offer(map(source, numbers))
    return made


def test_peers_are_asked_in_parallel_and_bounded_in_all_and_each() -> None:
    asks = schedule(100, 1, 2, 3).asks(0.0)
    assert Counter(who.name for who, _ in asks) == {"n1": 2, "n2": 2, "n3": 2}
    many = schedule(100, *range(1, 9)).asks(0.0)
    assert len(many) == SETTINGS.in_flight_max
    assert len({who.name for who, _ in many}) == 8, "one each before a second of anybody"
    assert len({chunk for _, chunk in many}) == len(many), "no chunk is asked of two"


def test_what_one_peer_fails_to_give_is_asked_of_another_at_once() -> None:
    plan = schedule(1, 1, 2)
    ((first, chunk),) = plan.asks(0.0)
    plan.failed(chunk, "the connection was reset", 0.0)
    ((second, again),) = plan.asks(0.0)
    assert (again, second.name) == (chunk, "n2") and first.name == "n1"
    plan.arrived(chunk)
    assert plan.done and plan.troubles() == "n1: the connection was reset"


def test_a_failing_peer_is_asked_again_after_doubling_pauses_and_then_no_more() -> None:
    plan, now, pauses = schedule(1, 1), 0.0, []
    for _ in range(SETTINGS.failures_max):
        ((_, chunk),) = plan.asks(now)
        plan.failed(chunk, "no answer", now)
        due = plan.deadline(now)
        if due is not None:
            assert plan.asks(now) == []
            pauses.append(due - now)
            now = due
    assert pauses == [0.5, 1.0, 2.0, 4.0]
    assert plan.hopeless and plan.asks(now + 1e6) == []


def test_a_liar_is_asked_for_nothing_more_and_named() -> None:
    plan = schedule(5, 1, 2)
    asks = plan.asks(0.0)
    liar, chunk = asks[0]
    plan.lied(chunk, "it gave other bytes")
    for who, other in asks[1:]:
        plan.arrived(other)
        assert who.name in ("n1", "n2")
    while not plan.done:
        for who, other in plan.asks(0.0):
            assert who is not liar and who.node_id != liar.node_id
            plan.arrived(other)
    assert plan.troubles() == f"{liar.name}: it gave other bytes"


def test_one_good_answer_forgives_a_peer_its_failures() -> None:
    plan, now = schedule(50, 1), 0.0
    for _ in range(10):
        (_, one), (_, two) = plan.asks(now)
        plan.failed(one, "no answer", now)
        plan.arrived(two)
        now += 10.0
    assert not plan.hopeless


def test_who_has_it_no_more_is_asked_no_more_and_who_has_it_now_is() -> None:
    plan = schedule(10, 1)
    first = plan.asks(0.0)
    plan.offer([source(2)])
    assert {who.name for who, _ in plan.asks(0.0)} == {"n2"}
    plan.arrived(first[0][1])  # what was under way still counts
    plan.offer([])
    plan.failed(first[1][1], "gone", 0.0)
    assert plan.asks(0.0) == [] and not plan.done


@given(st.data())
def test_every_chunk_arrives_exactly_once_while_one_honest_peer_is_there(data: st.DataObject) -> None:
    """Others fail and lie as they please."""
    count, peers = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 5))
    plan, now = schedule(count, *range(1, peers + 1)), 0.0
    flying: list[tuple[Source, Chunk]] = []
    got: Counter[Chunk] = Counter()
    for _ in range(2000):
        flying += plan.asks(now)
        assert len(flying) <= SETTINGS.in_flight_max
        assert all(n <= SETTINGS.in_flight_per_source for n in Counter(who for who, _ in flying).values())
        if plan.done:
            break
        if not flying:
            due = plan.deadline(now)
            assert due is not None and not plan.hopeless
            now = due
            continue
        who, chunk = flying.pop(data.draw(st.integers(0, len(flying) - 1)))
        does = "gives" if who.name == "n1" else data.draw(st.sampled_from(["gives", "fails", "lies"]))
        match does:
            case "gives":
                plan.arrived(chunk)
                got[chunk] += 1
            case "fails":
                plan.failed(chunk, "no answer", now)
            case _:
                plan.lied(chunk, "it gave other bytes")
    assert plan.done
    assert got == Counter(chunks(count))
