"""Who holds the newest sound state of the run, and who must get it. Pure.

Every member of a new world tells the same few facts; every member decides alike from all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

from daisychain.core.ids import NodeId
from daisychain.errors import WorldError
from daisychain.trainer.state.sketch import differ
from daisychain.trainer.state.tolerance import Tolerance


@dataclass(frozen=True, slots=True)
class Record:
    """What one member tells when a world has formed.

    Attributes:
        node_id: whose record this is.
        run: a hash of the run's id; states of another run are never mixed in.
        layout: a hash of the model's tensors' names, shapes and dtypes.
        rounding: a hash of how its machine rounds, see `engine.rounding`.
        step, evaluations: committed.
        committed_in: a hash of the world of its last commit; 0 when its state came from elsewhere.
        prepared_tick: the tick whose whole reduction this member holds uncommitted; None when none.
        prepared_in: a hash of the world that reduced it.
        healed: its last commit ended without exception.
        sketch: see `sketch.Sketcher`.
        digest: sha256 of the whole state in reproducible mode; empty otherwise.
    """

    node_id: NodeId
    run: int
    layout: int
    rounding: int
    step: int
    evaluations: int
    committed_in: int
    prepared_tick: int | None
    prepared_in: int
    healed: bool
    sketch: tuple[float, ...]
    digest: bytes = b""

    @property
    def tick(self) -> int:
        """Committed ticks."""
        return self.step + self.evaluations

    @property
    def sound(self) -> bool:
        """Whether this state may be trained on or passed on: healed and finite."""
        return self.healed and all(math.isfinite(number) for number in self.sketch)


@dataclass(frozen=True, slots=True)
class Decision:
    """What must happen before the members hold one state.

    Attributes:
        apply: ranks that hold the very reduction that others committed: each applies its own. What another
            world reduced for the same tick is the same up to rounding only, and is not applied.
            While there are such ranks nothing else is decided; the members tell their records again.
        passes: (donor, receiver): the ranks that pass their state, and to whom, in this order.
        drifted: those of the receivers that were at the donor's tick, with another state; none before the
            first tick, when states differ by how they were made: first weights are rounded, too.
    """

    apply: tuple[int, ...] = ()
    passes: tuple[tuple[int, int], ...] = ()
    drifted: tuple[int, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether all members hold one state."""
        return not self.apply and not self.passes


class NobodySoundError(Exception):
    """No member holds a state that can be trained on: the run has failed."""


def decide(records: Sequence[Record], tolerance: Tolerance) -> Decision:
    """Return what must happen; the same on every rank.

    The most advanced sound members keep their state, those of the largest group that agrees where there are
    several; ties go to the group around the lowest node id. Everybody else receives, from a member whose
    machine rounds alike where the group has one. Raises `WorldError` when the members do not belong together,
    `NobodySoundError` when no member is sound.
    """
    check_one_run(records)
    sound = [rank for rank, record in enumerate(records) if record.sound]
    if not sound:
        raise NobodySoundError
    newest = max(records[rank].tick for rank in sound)
    worlds = {records[rank].committed_in for rank in sound if records[rank].tick == newest} - {0}
    apply = tuple(rank for rank in sound if _holds(records[rank], newest, worlds))
    if apply:
        return Decision(apply=apply)
    leaders = sorted(
        (rank for rank in sound if records[rank].tick == newest), key=lambda rank: records[rank].node_id
    )
    groups = [_group(records, leaders, rank, tolerance) for rank in leaders]
    kept = max(groups, key=len)  # the first of the largest
    donor = leaders[groups.index(kept)]
    passes = tuple(
        (_donor(records, kept, donor, rank), rank) for rank in range(len(records)) if rank not in kept
    )
    drifted = tuple(rank for _, rank in passes if rank in leaders and newest > 0)
    return Decision(passes=passes, drifted=drifted)


def _holds(record: Record, newest: int, worlds: Set[int]) -> bool:
    """Return whether a member holds the very reduction of tick ``newest`` that ``worlds`` committed."""
    if record.tick != newest - 1 or record.prepared_tick != newest:
        return False
    return record.prepared_in in worlds


def _group(records: Sequence[Record], leaders: Sequence[int], rank: int, tolerance: Tolerance) -> list[int]:
    """Return those of ``leaders`` that agree with ``rank``, and within each kind of machine with one another.

    Members that round differently agree within a wide bound only: two of one kind may both be within it of a
    third of another, and yet differ from each other by more than theirs.
    """
    near = [other for other in leaders if _agree(records[rank], records[other], tolerance)]
    group: list[int] = []
    for kind in dict.fromkeys(records[other].rounding for other in near):
        alike = [other for other in near if records[other].rounding == kind]
        centers = [rank] if rank in alike else alike
        circles = [[o for o in alike if _agree(records[c], records[o], tolerance)] for c in centers]
        sizes = [len(circle) for circle in circles]
        group += circles[sizes.index(max(sizes))]
    return group


def _donor(records: Sequence[Record], kept: Sequence[int], donor: int, receiver: int) -> int:
    """Return who passes its state to ``receiver``: bits of one kind of machine stay with that kind."""
    alike = [rank for rank in kept if records[rank].rounding == records[receiver].rounding]
    return donor if donor in alike or not alike else alike[0]


def _agree(one: Record, two: Record, tolerance: Tolerance) -> bool:
    """Return whether two members of one tick hold one state.

    Where the job promises bits, and their machines can keep that promise, to the bit.
    """
    if one.rounding != two.rounding:
        return not differ(one.sketch, two.sketch, tolerance.unlike)
    if one.digest or two.digest:
        return one.digest == two.digest
    return not differ(one.sketch, two.sketch, tolerance.alike)


def check_one_run(records: Sequence[Record]) -> None:
    """Raise `WorldError` when the members do not train one run with one model."""
    first = records[0]
    for record in records[1:]:
        if record.run != first.run:
            raise WorldError(f"{record.node_id[:8]} trains another run than {first.node_id[:8]}")
        if record.layout != first.layout:
            raise WorldError(
                f"{record.node_id[:8]} built another model than {first.node_id[:8]} from the same job: "
                "names, shapes or dtypes of its tensors differ"
            )
