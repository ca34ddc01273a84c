"""Who holds the newest sound state of the run, and who must get it. Pure.

Every member of a new world tells the same few facts; every member decides alike from all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from daisychain.core.ids import NodeId
from daisychain.errors import WorldError
from daisychain.trainer.state.sketch import differ


@dataclass(frozen=True, slots=True)
class Record:
    """What one member tells when a world has formed.

    Attributes:
        node_id: whose record this is.
        run: a hash of the run's id; states of another run are never mixed in.
        layout: a hash of the model's tensors' names, shapes and dtypes.
        rounding: a hash of how its machine rounds.
        step, evaluations: committed.
        prepared_tick: the tick whose whole reduction this member holds uncommitted; None when none.
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
    prepared_tick: int | None
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
        apply: ranks that hold the reduction of a tick that others committed: each applies its own.
            While there are such ranks nothing else is decided; the members tell their records again.
        donor: the rank that passes its state; None when nobody needs it.
        receivers: ranks that take the donor's state.
        drifted: those of the receivers that were at the donor's tick, with another state.
    """

    apply: tuple[int, ...] = ()
    donor: int | None = None
    receivers: tuple[int, ...] = ()
    drifted: tuple[int, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether all members hold one state."""
        return not self.apply and not self.receivers


class NobodySoundError(Exception):
    """No member holds a state that can be trained on: the run has failed."""


def decide(records: Sequence[Record], tolerance: float) -> Decision:
    """Return what must happen; the same on every rank. ``tolerance``: see `sketch.differ`.

    The donor is the most advanced sound member. Of several whose states differ it is one of the largest
    group that agrees; ties go to the lowest node id. Digests, where they are told, decide instead of
    sketches. Raises `WorldError` when the members do not belong together, `NobodySoundError` when no
    member is sound.
    """
    check_one_run(records)
    sound = [rank for rank, record in enumerate(records) if record.sound]
    if not sound:
        raise NobodySoundError
    newest = max(records[rank].tick for rank in sound)
    apply = tuple(
        rank for rank in sound if records[rank].tick == newest - 1 and records[rank].prepared_tick == newest
    )
    if apply:
        return Decision(apply=apply)
    leaders = [rank for rank in sound if records[rank].tick == newest]
    groups = [
        [other for other in leaders if _alike(records[rank], records[other], tolerance)] for rank in leaders
    ]
    most = max(len(group) for group in groups)
    donor, group = min(
        ((rank, group) for rank, group in zip(leaders, groups, strict=True) if len(group) == most),
        key=lambda pair: records[pair[0]].node_id,
    )
    receivers = tuple(rank for rank in range(len(records)) if rank not in group)
    if not receivers:
        return Decision()
    drifted = tuple(rank for rank in receivers if records[rank].tick == newest)
    return Decision(donor=donor, receivers=receivers, drifted=drifted)


def _alike(one: Record, two: Record, tolerance: float) -> bool:
    if one.digest or two.digest:
        return one.digest == two.digest
    return not differ(one.sketch, two.sketch, tolerance)


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
