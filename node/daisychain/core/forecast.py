"""How long a step of a job takes on any set of nodes: from what each measured, before they train together.

A step is the slowest node's computing, then what of the exchange does not hide behind it, then the commit.
A step has two sums that wait for each other: the gradient with its tail, then the rider. A small one goes
from every node to every other in one hop (`core.small_sums`). A larger one goes round gloo's ring: each of
``n`` nodes passes 2 (n - 1) / n of it to the next, and its last number comes round in 2 (n - 1) hops.
`core.team` chooses by this which nodes train.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from daisychain.core.ids import NodeId
from daisychain.core.shares import Capacity, amortised, split
from daisychain.core.small_sums import in_one_hop

HOP_S = 60e-6
"""What one hop costs besides the link: gloo's threads wake, read, add and write."""

RIDER_BYTES = 64
"""Of the step's second sum; it is small in any world."""

SUM_BYTES_PER_S = 1.0e9
"""How fast a node copies and adds what goes round: on a fast link this is the bound."""


@dataclass(frozen=True, slots=True)
class Work:
    """What of a job's step decides how long it takes, the same on every node.

    Attributes:
        units: samples or granules of the global batch; >= 1.
        gradient_bytes: of one whole gradient as it is sent.
        tail_bytes: what is summed beside it.
        buckets: sums that the gradient is sent in; >= 1.
        overlap: part of a node's computing during which buckets leave already, 0 to 1.
    """

    units: int
    gradient_bytes: int
    tail_bytes: int = 0
    buckets: int = 1
    overlap: float = 0.0


@dataclass(frozen=True, slots=True)
class Worker:
    """One node that could train.

    Attributes:
        capacity: its computing, in units of the work.
        commit_s: seconds of a step beside computing and exchange: the optimizer's, the record's; >= 0.
    """

    node_id: NodeId
    name: str
    capacity: Capacity
    commit_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """The way from one node to another. ``bytes_per_s`` > 0; ``latency_s``: one way, >= 0."""

    bytes_per_s: float
    latency_s: float = 0.0


Links = Mapping[tuple[NodeId, NodeId], Link]
"""By (from, to); a pair that is not in it was not measured, and is taken for `UNMEASURED`."""

UNMEASURED = Link(SUM_BYTES_PER_S, 0.0)


@dataclass(frozen=True, slots=True)
class Ways:
    """How sums travel among at least two workers.

    Attributes:
        ring: from each worker to the next, from the last to the first.
        across: the least bandwidth and the greatest latency between any two.
    """

    ring: tuple[Link, ...]
    across: Link


@dataclass(frozen=True, slots=True)
class Forecast:
    """One step of a set of nodes; seconds.

    Attributes:
        step_s: from its beginning to its commit.
        compute_s: of the node that takes longest.
        exchange_s: of both sums, as if nothing of them hid behind computing.
        commit_s: of the node that takes longest.
        shares: units, in the order of the workers.
        slowest: index of the worker that takes longest to compute.
    """

    step_s: float
    compute_s: float
    exchange_s: float
    commit_s: float
    shares: tuple[int, ...]
    slowest: int


def forecast(workers: Sequence[Worker], links: Links, work: Work) -> Forecast:
    """Return the step of these workers together, in rank order, with the shares that a world gives them.

    Raises `ValueError` without any worker.
    """
    capacities = [worker.capacity for worker in workers]
    shares = (work.units,) if len(workers) == 1 else split(amortised(capacities, work.units), work.units)
    times = [each.step_s(units) for each, units in zip(capacities, shares, strict=True)]
    compute_s = max(times)
    ways = ways_among(workers, links)
    commit_s = max(worker.commit_s for worker in workers)
    return Forecast(
        step_s=compute_s + seen_s(ways, work, compute_s) + commit_s,
        compute_s=compute_s,
        exchange_s=0.0 if ways is None else exchange_s(ways, work.gradient_bytes + work.tail_bytes),
        commit_s=commit_s,
        shares=shares,
        slowest=times.index(compute_s),
    )


def ways_among(workers: Sequence[Worker], links: Links) -> Ways | None:
    """Return how sums travel among the workers, in rank order; None of a single one, which sends nothing."""
    ids = [worker.node_id for worker in workers]
    if len(ids) < 2:
        return None
    pairs = [links.get((sender, receiver), UNMEASURED) for sender, receiver in permutations(ids, 2)]
    across = Link(min(link.bytes_per_s for link in pairs), max(link.latency_s for link in pairs))
    ring = zip(ids, [*ids[1:], ids[0]], strict=True)
    return Ways(tuple(links.get(pair, UNMEASURED) for pair in ring), across)


def seen_s(ways: Ways | None, work: Work, compute_s: float) -> float:
    """Return the seconds of the exchange that come after computing: at least those of the last bucket."""
    if ways is None:
        return 0.0
    whole_s = exchange_s(ways, work.gradient_bytes + work.tail_bytes)
    last_s = exchange_s(ways, work.gradient_bytes / work.buckets + work.tail_bytes)
    return max(min(last_s, whole_s), whole_s - work.overlap * compute_s)


def exchange_s(ways: Ways, sent_bytes: float) -> float:
    """Return the seconds in which ``sent_bytes`` are summed, and after them the rider."""
    return sum_s(ways, sent_bytes) + sum_s(ways, RIDER_BYTES)


def sum_s(ways: Ways, sum_bytes: float) -> float:
    """Return the seconds in which a tensor of ``sum_bytes`` is summed, the way that its size makes it go.

    In one hop every node sends as many copies as there are others, and the farthest pair is waited for. In
    the ring the slowest link paces what is sent; a number that comes round passes every link twice but for
    the last two in a row, which are passed once.
    """
    count = len(ways.ring)
    if in_one_hop(sum_bytes, count):
        sending_s = (count - 1) * sum_bytes / min(SUM_BYTES_PER_S, ways.across.bytes_per_s)
        return sending_s + ways.across.latency_s + HOP_S
    hops = [link.latency_s + HOP_S for link in ways.ring]
    spared_s = min(hops[index - 1] + hops[index] for index in range(count))
    volume = 2 * (count - 1) / count * sum_bytes
    sending_s = volume / min(SUM_BYTES_PER_S, *(link.bytes_per_s for link in ways.ring))
    return sending_s + 2 * sum(hops) - spared_s
