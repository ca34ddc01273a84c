"""How long a step of a job takes on any set of nodes: from what each measured, before they train together.

A step is the slowest node's computing, then what of the exchange does not hide behind it, then the commit.
The exchange is gloo's ring: each of ``n`` nodes passes 2 (n - 1) / n of the gradient to the next, and a
number comes round in 2 (n - 1) hops. A step has two such rounds that wait for each other: the gradient with
its tail, then the rider. `core.team` chooses by this which nodes train.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from daisychain.core.ids import NodeId
from daisychain.core.shares import Capacity, amortised, split

ROUNDS = 2
"""Sums of a step that wait for each other: the gradient with its tail, then the rider."""

HOP_S = 60e-6
"""What one hop costs besides the link: gloo's threads wake, read, add and write."""

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
class Forecast:
    """One step of a set of nodes; seconds.

    Attributes:
        step_s: from its beginning to its commit.
        compute_s: of the node that takes longest.
        exchange_s: of the ring, as if nothing of it hid behind computing.
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
    ring = ring_of(workers, links)
    commit_s = max(worker.commit_s for worker in workers)
    return Forecast(
        step_s=compute_s + seen_s(ring, work, compute_s) + commit_s,
        compute_s=compute_s,
        exchange_s=exchange_s(ring, work.gradient_bytes + work.tail_bytes) if ring else 0.0,
        commit_s=commit_s,
        shares=shares,
        slowest=times.index(compute_s),
    )


def ring_of(workers: Sequence[Worker], links: Links) -> tuple[Link, ...]:
    """Return the links of the ring: from each worker to the next, from the last to the first."""
    count = len(workers)
    if count < 2:
        return ()
    following = [*workers[1:], workers[0]]
    pairs = zip(workers, following, strict=True)
    return tuple(links.get((sender.node_id, receiver.node_id), UNMEASURED) for sender, receiver in pairs)


def seen_s(ring: Sequence[Link], work: Work, compute_s: float) -> float:
    """Return the seconds of the exchange that come after computing: at least those of the last bucket."""
    if not ring:
        return 0.0
    whole_s = exchange_s(ring, work.gradient_bytes + work.tail_bytes)
    last_s = exchange_s(ring, work.gradient_bytes / work.buckets + work.tail_bytes)
    return max(last_s, whole_s - work.overlap * compute_s)


def exchange_s(ring: Sequence[Link], sent_bytes: float) -> float:
    """Return the seconds in which ``sent_bytes`` are summed over a ring of at least two, the rider included.

    The slowest link paces what is sent. A number that comes round passes every link twice but for the last
    two in a row, which are passed once.
    """
    count = len(ring)
    volume = 2 * (count - 1) / count * sent_bytes
    hops = [link.latency_s + HOP_S for link in ring]
    spared_s = min(hops[index - 1] + hops[index] for index in range(count))
    sending_s = volume / min(SUM_BYTES_PER_S, *(link.bytes_per_s for link in ring))
    return sending_s + ROUNDS * (2 * sum(hops) - spared_s)
