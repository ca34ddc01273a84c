"""Which nodes train a job: those whose steps are shortest by the forecast, and why each other stands by.

A node that costs next to nothing is taken along: one more that holds the state. Who trains already goes on
unless another set gains enough, so noise in what was measured changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from daisychain.core.forecast import Forecast, Link, Links, Work, Worker, forecast, seen_s, ways_among
from daisychain.core.ids import NodeId

GAIN = 0.03
"""Who trains already is changed when steps get this much shorter by it."""

CHEAP = GAIN / 2
"""A node that makes steps longer by no more than this trains along."""

EXHAUSTIVE_MAX = 12
"""Nodes up to which every set is looked at; it takes some 60 ms on an old machine. Above, one by one."""


@dataclass(frozen=True, slots=True)
class Left:
    """A node that does not train. ``factor``: the speed with it, over the speed without; ``cause``: why."""

    node_id: NodeId
    factor: float
    cause: str

    @property
    def reason(self) -> str:
        """Return it for people: ``would make it 0.8x: link 3 Mbit/s``."""
        return f"would make it {self.factor:.2g}x: {self.cause}"


@dataclass(frozen=True, slots=True)
class Team:
    """Who trains, in rank order, what is expected of them, and who does not."""

    members: tuple[Worker, ...]
    expected: Forecast
    left: tuple[Left, ...]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a team must heed.

    Attributes:
        least: so many train at least, as far as there are; >= 1.
        anyone_of: at least one of these trains (they alone hold the run's newest step); empty = no matter.
        present: who trains now; empty when nobody does.
    """

    least: int = 1
    anyone_of: frozenset[NodeId] = frozenset()
    present: frozenset[NodeId] = frozenset()


def best_team(workers: Sequence[Worker], links: Links, work: Work, terms: Terms | None = None) -> Team:
    """Return the team for ``work`` out of ``workers`` (at least one), which are in rank order.

    Up to `EXHAUSTIVE_MAX` workers no set is faster by more than `CHEAP`, and those present stay while none is
    by more than `GAIN`. With more of them it is the fastest set that single changes lead to, from all and
    from one.
    """
    terms = terms or Terms()
    known = {worker.node_id for worker in workers}
    choice = _Choice(
        workers,
        links,
        work,
        Terms(
            min(max(1, terms.least), len(workers)),
            terms.anyone_of & known,
            terms.present if terms.present <= known else frozenset(),
        ),
    )
    indices = choice.every_set() if len(workers) <= EXHAUSTIVE_MAX else choice.by_single_changes()
    members, left = indices, [index for index in range(len(workers)) if index not in indices]
    expected = choice.exact(members)
    return Team(
        tuple(workers[index] for index in members),
        expected,
        tuple(choice.left(members, expected, index) for index in left),
    )


_Set = tuple[int, ...]


class _Choice:
    """One choice: its workers by index, what is known of them, and the forecasts that were made."""

    def __init__(self, workers: Sequence[Worker], links: Links, work: Work, terms: Terms) -> None:
        self._workers, self._links, self._work, self._terms = workers, links, work, terms
        self._exact: dict[_Set, Forecast] = {}
        self._order = sorted(range(len(workers)), key=lambda index: workers[index].capacity.fixed_s)

    def exact(self, members: _Set) -> Forecast:
        """Return the forecast of a set."""
        if members not in self._exact:
            chosen = [self._workers[index] for index in members]
            self._exact[members] = forecast(chosen, self._links, self._work)
        return self._exact[members]

    def step_s(self, members: _Set) -> float:
        """Return the seconds of a set's step."""
        return self.exact(members).step_s

    def bound_s(self, members: _Set) -> float:
        """Return seconds that no split of the work among a set can undercut."""
        workers = [self._workers[index] for index in members]
        inside = set(members)
        compute_s = _least_compute_s(
            [self._workers[index] for index in self._order if index in inside], self._work.units
        )
        exchange_s = seen_s(ways_among(workers, self._links), self._work, compute_s)
        return compute_s + exchange_s + max(worker.commit_s for worker in workers)

    def guess_s(self, members: _Set) -> float:
        """Return about the seconds of a set's step: with parts of units, and whatever memory carries."""
        workers, units = [self._workers[index] for index in members], self._work.units
        speeds = [units / worker.capacity.step_s(units) for worker in workers]
        part = units / sum(speeds)
        compute_s = max(
            worker.capacity.fixed_s + worker.capacity.per_unit_s * part * speed
            for worker, speed in zip(workers, speeds, strict=True)
        )
        exchange_s = seen_s(ways_among(workers, self._links), self._work, compute_s)
        return compute_s + exchange_s + max(worker.commit_s for worker in workers)

    def every_set(self) -> _Set:
        """Return the best of all sets."""
        bounds = sorted((self.bound_s(members), -len(members), members) for members in self._allowed())
        best_s = float("inf")
        for bound_s, _, members in bounds:
            if bound_s > best_s:
                break
            best_s = min(best_s, self.step_s(members))
        near = [members for bound_s, _, members in bounds if bound_s <= best_s * (1 + CHEAP)]
        return self._settle(near, best_s)

    def _allowed(self) -> Iterator[_Set]:
        for size in range(self._terms.least, len(self._workers) + 1):
            for members in combinations(range(len(self._workers)), size):
                if self._permits(members):
                    yield members

    def _permits(self, members: _Set) -> bool:
        wanted = self._terms.anyone_of
        return not wanted or any(self._workers[index].node_id in wanted for index in members)

    def _settle(self, near: Iterable[_Set], best_s: float) -> _Set:
        """Return who trains, the best steps being known: those present, or the most that are near enough."""
        present = tuple(
            index for index, worker in enumerate(self._workers) if worker.node_id in self._terms.present
        )
        kept = (
            len(present) >= self._terms.least
            and self._permits(present)
            and self.step_s(present) <= best_s * (1 + GAIN)
        )
        good = [members for members in near if self.step_s(members) <= best_s * (1 + CHEAP)]
        if kept:  # whoever joins them may not cost anything
            inside, limit_s = set(present), self.step_s(present)
            good = [each for each in good if inside < set(each) and self.step_s(each) <= limit_s]
            good.append(present)
        return min(good, key=lambda members: (-len(members), self.step_s(members), members))

    def by_single_changes(self) -> _Set:
        """Return a good set: from all down and from the fastest one up, by the change that gains most."""
        everybody = tuple(range(len(self._workers)))
        ones = [(index,) for index in everybody if self._permits((index,))]
        starts = [everybody, min(ones, key=self.bound_s)]
        present = tuple(i for i in everybody if self._workers[i].node_id in self._terms.present)
        if present:
            starts.append(present)
        found = [self._improved(start) for start in starts]
        seen = {everybody, *ones, *found, *(each for one in found for each in self._changes(one))}
        fit = [each for each in seen if len(each) >= self._terms.least and self._permits(each)]
        return self._settle(fit, min(self.step_s(each) for each in fit))

    def _improved(self, members: _Set) -> _Set:
        """Return where single changes lead: more nodes while there are too few, then shorter steps."""
        now_s = self.guess_s(members)
        while True:
            changes = self._changes(members)
            few = len(members) < self._terms.least
            if few:
                changes = [each for each in changes if len(each) > len(members)]
            better = min(changes, key=self.guess_s, default=members)
            better_s = self.guess_s(better)
            if better_s >= now_s and not few:
                return members
            members, now_s = better, better_s

    def _changes(self, members: _Set) -> list[_Set]:
        """Return the allowed sets that have one node more or one less."""
        inside = set(members)
        more = [
            tuple(sorted([*members, index])) for index in range(len(self._workers)) if index not in inside
        ]
        fewer = [tuple(each for each in members if each != index) for index in members]
        return [*more, *(each for each in fewer if len(each) >= self._terms.least and self._permits(each))]

    def left(self, members: _Set, expected: Forecast, index: int) -> Left:
        """Return why a node is none of the members."""
        joined = tuple(sorted([*members, index]))
        with_it = self.exact(joined)
        place = joined.index(index)
        chosen = [self._workers[each] for each in joined]
        ways = ways_among(chosen, self._links)
        cause = _cause(expected, with_it, place, () if ways is None else ways.ring)
        return Left(self._workers[index].node_id, expected.step_s / with_it.step_s, cause)


def _cause(without: Forecast, with_it: Forecast, place: int, ring: Sequence[Link]) -> str:
    """Return what of a node at ``place`` in the ring (of at least two) costs the most."""
    slower_s = with_it.compute_s - without.compute_s
    if slower_s > 0 and with_it.slowest == place and slower_s >= with_it.exchange_s - without.exchange_s:
        return f"its part alone takes {_seconds(with_it.compute_s)}"
    beside = (ring[place - 1], ring[place])
    slow = min(beside, key=lambda link: link.bytes_per_s)
    far = max(beside, key=lambda link: link.latency_s)
    others = [each for number, each in enumerate(ring) if number not in {place, (place - 1) % len(ring)}]
    fast_s = min((each.bytes_per_s for each in others), default=float("inf"))
    if slow.bytes_per_s < fast_s / 2 and slow.bytes_per_s < SLOW_BYTES_PER_S:
        return f"link {speed_text(slow.bytes_per_s)}"
    if far.latency_s >= FAR_S:
        return f"link {_seconds(2 * far.latency_s)} there and back"
    return (
        f"the exchange takes {_seconds(with_it.exchange_s)}, its part saves {_seconds(max(0.0, -slower_s))}"
    )


SLOW_BYTES_PER_S = 125e6
"""A link as fast as this (1 Gbit/s) is never called the reason."""

FAR_S = 0.002
"""A link of a shorter latency is never called the reason."""


def speed_text(bytes_per_s: float) -> str:
    """Return a link's speed as people say it: ``3 Mbit/s``."""
    mbit = 8e-6 * bytes_per_s
    return f"{mbit:.0f} Mbit/s" if mbit >= 10 else f"{mbit:.2g} Mbit/s"


def _seconds(seconds: float) -> str:
    number, unit = (seconds, "s") if seconds >= 1 else (1000 * seconds, "ms")
    return f"{number:.0f} {unit}" if number >= 10 else f"{number:.2g} {unit}"


def _least_compute_s(workers: Sequence[Worker], units: int) -> float:
    """Return the seconds below which no split of ``units`` ends, whole units or not.

    ``workers`` come in the order of their fixed costs: those whose fixed cost is below the end take part, and
    the units that fit before it grow with it. A split by amortised speeds has a bound of its own.
    """
    room_a = room_b = 0.0  # together they do  end_s * room_b - room_a  units by end_s
    least_s = float("inf")
    for worker in workers:
        capacity = worker.capacity
        room_a += capacity.fixed_s / capacity.per_unit_s
        room_b += 1.0 / capacity.per_unit_s
        least_s = min(least_s, (units + room_a) / room_b)
    speed = sum(units / worker.capacity.step_s(units) for worker in workers)
    return max(least_s, units / speed)
