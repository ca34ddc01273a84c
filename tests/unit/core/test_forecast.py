from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.core.forecast import (
    HOP_S,
    RIDER_BYTES,
    SUM_BYTES_PER_S,
    Link,
    Links,
    Ways,
    Work,
    Worker,
    exchange_s,
    forecast,
    sum_s,
    ways_among,
)
from daisychain.core.ids import NodeId
from daisychain.core.shares import Capacity
from daisychain.core.small_sums import SENT_MAX_BYTES

MBIT = 125_000.0


def worker(name: str, per_unit_s: float, fixed_s: float = 0.0, commit_s: float = 0.0) -> Worker:
    return Worker(NodeId(name), name, Capacity(fixed_s, per_unit_s), commit_s)


def lan(names: str, link: Link) -> Links:
    return {(NodeId(a), NodeId(b)): link for a in names for b in names if a != b}


def test_one_node_computes_and_commits_and_exchanges_nothing() -> None:
    found = forecast([worker("a", 0.001, 0.01, 0.002)], {}, Work(100, 4_000_000))
    assert found.shares == (100,)
    assert found.exchange_s == 0.0
    assert found.step_s == pytest.approx(0.01 + 0.1 + 0.002)


def test_speeds_four_two_one_on_a_fast_link_add_up() -> None:
    trio = [worker("a", 0.001), worker("b", 0.002), worker("c", 0.004)]
    found = forecast(trio, {}, Work(700, 4_000))
    assert found.shares == (400, 200, 100)
    assert found.compute_s == pytest.approx(0.4)
    assert found.step_s == pytest.approx(0.4, rel=0.01)


def around(*links: Link) -> Ways:
    """Return a ring of these links, any two of whose nodes are as far apart as the farthest neighbours."""
    return Ways(links, Link(min(each.bytes_per_s for each in links), max(each.latency_s for each in links)))


def test_a_gradient_of_a_megabyte_over_two_megabits_takes_what_a_ring_must_send_and_one_hop_more() -> None:
    pair = [worker("a", 0.001), worker("b", 0.001)]
    found = forecast(pair, lan("ab", Link(2 * MBIT, 0.001)), Work(100, 1_000_000))
    rider_s = RIDER_BYTES / (2 * MBIT) + 0.001 + HOP_S
    assert found.exchange_s == pytest.approx(1_000_000 / (2 * MBIT) + 2 * (0.001 + HOP_S) + rider_s)


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_a_large_sum_comes_round_in_twice_the_hops_that_lie_between_the_nodes(count: int) -> None:
    ways, large = around(*[Link(SUM_BYTES_PER_S, 0.010)] * count), SENT_MAX_BYTES + 1
    sending_s = 2 * (count - 1) / count * large / SUM_BYTES_PER_S
    assert sum_s(ways, large) == pytest.approx(sending_s + 2 * (count - 1) * (0.010 + HOP_S))


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_a_small_sum_takes_one_hop_and_as_many_copies_as_there_are_others(count: int) -> None:
    ways, small = around(*[Link(10 * MBIT, 0.010)] * count), SENT_MAX_BYTES / (count - 1)
    assert sum_s(ways, small) == pytest.approx(SENT_MAX_BYTES / (10 * MBIT) + 0.010 + HOP_S)
    assert exchange_s(ways, small) == pytest.approx(sum_s(ways, small) + sum_s(ways, RIDER_BYTES))


def test_one_far_node_is_passed_twice_in_a_ring_and_once_by_a_small_sum() -> None:
    ways = around(Link(SUM_BYTES_PER_S, 0.050), *[Link(SUM_BYTES_PER_S)] * 3)
    assert sum_s(ways, 0) == pytest.approx(0.050 + HOP_S)
    large = 2 * SENT_MAX_BYTES
    assert sum_s(ways, large) == pytest.approx(1.5 * large / SUM_BYTES_PER_S + 2 * 0.050 + 6 * HOP_S)


def test_small_sums_wait_for_the_farthest_two_though_they_are_no_neighbours_in_the_ring() -> None:
    links = dict(lan("abcd", Link(1000 * MBIT, 0.001)))
    links[NodeId("d"), NodeId("b")] = Link(MBIT, 0.200)
    ways = ways_among([worker(name, 0.001) for name in "abcd"], links)
    assert ways is not None
    assert ways.across == Link(MBIT, 0.200)
    assert sum_s(ways, 0) == pytest.approx(0.200 + HOP_S)
    assert sum_s(ways, 1 << 20) < 0.1


def test_what_leaves_while_a_node_computes_is_not_waited_for() -> None:
    pair, links = [worker("a", 0.01), worker("b", 0.01)], lan("ab", Link(100 * MBIT))
    alone = forecast(pair, links, Work(100, 16 << 20, 0, 4, 0.0))
    beside = forecast(pair, links, Work(100, 16 << 20, 0, 4, 0.5))
    assert alone.step_s - beside.step_s == pytest.approx(0.5 * 0.5)
    hidden = forecast([worker("a", 10.0), worker("b", 10.0)], links, Work(100, 16 << 20, 0, 4, 0.5))
    assert hidden.step_s - hidden.compute_s == pytest.approx(alone.exchange_s / 4, rel=0.01)


def test_the_ring_is_the_order_of_the_workers() -> None:
    links = dict(lan("abcd", Link(1000 * MBIT)))
    links[NodeId("a"), NodeId("c")] = links[NodeId("c"), NodeId("a")] = Link(MBIT)
    four = [worker(name, 0.001) for name in "abcd"]
    fast = forecast(four, links, Work(100, 1_000_000)).exchange_s
    slow = forecast([four[0], four[2], four[1], four[3]], links, Work(100, 1_000_000)).exchange_s
    assert slow > 10 * fast


@given(
    st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=8),
    st.floats(1e4, 1e9),
    st.floats(0, 0.2),
    st.integers(1, 4096),
    st.integers(1, 1 << 26),
)
def test_a_step_lasts_at_least_as_long_as_its_parts(
    speeds: list[float], bytes_per_s: float, latency_s: float, units: int, gradient_bytes: int
) -> None:
    workers = [worker(chr(97 + index), each, each) for index, each in enumerate(speeds)]
    links = lan("abcdefgh", Link(bytes_per_s, latency_s))
    found = forecast(workers, links, Work(units, gradient_bytes, 0, 3, 0.5))
    assert sum(found.shares) == units
    assert found.compute_s <= found.step_s <= found.compute_s + found.exchange_s + found.commit_s + 1e-9
    assert found.compute_s == pytest.approx(
        workers[found.slowest].capacity.step_s(found.shares[found.slowest])
    )


def test_nobody_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        forecast([], {}, Work(1, 1))
