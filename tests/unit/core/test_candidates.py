from __future__ import annotations

from dataclasses import replace

from daisychain.core.candidates import Candidates
from daisychain.core.ids import Address, NodeId
from daisychain.core.rng import Rng
from unit.core.chains import SETTINGS, node_id

HERE = Address("10.0.0.9", 7000)


NOBODY: frozenset[NodeId] = frozenset()


def book(**changes: int) -> Candidates:
    return Candidates(replace(SETTINGS, **changes), Rng(1))


def test_an_address_is_dialled_once_however_often_it_is_seen() -> None:
    candidates = book()
    for source in ("mdns", "seed", "tailnet", "mdns"):
        candidates.seen(HERE, source, None, 0.0)
    assert candidates.due(0.0, NOBODY) == [HERE]
    assert candidates.due(1.0, NOBODY) == []


def test_a_failed_address_waits_longer_each_time_up_to_a_bound() -> None:
    candidates, now, waits = book(), 0.0, []
    candidates.seen(HERE, "seed", None, now)
    for _ in range(12):
        while not candidates.due(now, NOBODY):
            now += 0.01
        candidates.failed(HERE, now)
        failed_at = now
        while not candidates.due(now, NOBODY):
            now += 0.01
        waits.append(now - failed_at)
    assert waits[0] < 0.3
    assert waits[3] > 3 * waits[0]
    assert max(waits) < SETTINGS.candidate_max_s + 0.1


def test_a_lost_peer_is_dialled_at_once_and_then_with_short_waits() -> None:
    candidates, now = book(), 0.0
    candidates.seen(HERE, "seed", None, now)
    candidates.due(now, NOBODY)
    candidates.linked(HERE, node_id(9), now)
    candidates.lost(HERE, 5.0)
    assert candidates.due(5.0, NOBODY) == [HERE]
    now = 5.0
    for _ in range(10):
        candidates.failed(HERE, now)
        assert candidates.due(now, NOBODY) == []
        now += SETTINGS.redial_max_s
        assert candidates.due(now, NOBODY) == [HERE]


def test_a_linked_node_is_not_dialled_at_another_address() -> None:
    candidates = book()
    candidates.seen(HERE, "mdns", node_id(9), 0.0)
    assert candidates.due(0.0, {node_id(9)}) == []


def test_one_node_is_dialled_at_one_address_at_a_time() -> None:
    candidates = book()
    candidates.seen(HERE, "mdns", node_id(9), 0.0)
    candidates.seen(Address("192.168.0.9", 7000), "tailnet", node_id(9), 0.0)
    assert len(candidates.due(0.0, NOBODY)) == 1


def test_no_more_dials_than_the_cap_are_in_flight() -> None:
    candidates = book(dials_max=3)
    for number in range(10):
        candidates.seen(Address("10.0.1.1", number), "seed", None, 0.0)
    assert len(candidates.due(0.0, NOBODY)) == 3
    assert candidates.due(1.0, NOBODY) == []
    candidates.failed(Address("10.0.1.1", 0), 1.0)
    assert len(candidates.due(1.0, NOBODY)) == 1
    assert len(candidates.due(1.0 + SETTINGS.dial_bound_s + 1, NOBODY)) == 3


def test_the_book_is_bounded_and_keeps_members() -> None:
    candidates = book(candidates_max=4)
    candidates.seen(HERE, "seed", None, 0.0)
    candidates.linked(HERE, node_id(9), 0.0)
    for number in range(100):
        candidates.seen(Address("10.0.1.1", number), "mdns", None, 0.0)
        candidates.due(0.0, NOBODY)
        candidates.failed(Address("10.0.1.1", number), 0.0)
    assert len(candidates) == 4
    assert candidates.owner_of(HERE) == node_id(9)


def test_ourselves_are_never_dialled_again() -> None:
    candidates = book()
    candidates.seen(HERE, "mdns", None, 0.0)
    candidates.refuse(HERE)
    candidates.seen(HERE, "mdns", None, 1.0)
    assert candidates.due(1.0, NOBODY) == []


def test_whoever_dials_us_is_dialled_back_at_once() -> None:
    candidates = book()
    candidates.seen(HERE, "mdns", None, 0.0)
    candidates.due(0.0, NOBODY)
    for _ in range(6):
        candidates.failed(HERE, 0.0)
    assert candidates.due(1.0, NOBODY) == []
    candidates.seen(HERE, "inbound", None, 1.0)
    assert candidates.due(1.0, NOBODY) == [HERE]
