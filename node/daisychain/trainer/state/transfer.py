"""The members of a new world come to hold one state: records told, reductions applied, states passed.

Runs on every member at once, right after a formation and now and then while training goes on.
What to do is decided in `reconcile`; here it is carried out over the world's own connections.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch

from daisychain.core.ids import Generation
from daisychain.core.world import WorldPlan
from daisychain.errors import ProtocolError, WorldError
from daisychain.trainer.record.journal import LINE_MAX_BYTES, Journal
from daisychain.trainer.state.reconcile import Decision, Record, check_one_run, decide
from daisychain.trainer.state.training_state import TrainingState, hash62
from daisychain.trainer.state.trees import HEADER_MAX_BYTES, Packed
from daisychain.trainer.world.group import FormedWorld, Waiting

ROUNDS_MAX = 4
"""Records are told at most so often: once is usual, apply and transfer add one each."""

LINE_ROOM_BYTES = 2048
"""What one tick's metrics line may have on average when it is passed on."""

PART_BYTES = 4 << 20
"""A state travels in parts of this size: each has a collective's time, so slow links take in large models."""

SKETCH_MAX = 1 << 21
"""Most numbers of a sketch, those of half a million tensors: bounds what a member has others allocate."""

_VERSION = 3
_HEAD = 12
_DIGEST = 4
_SKETCH_AT = 10


@dataclass(frozen=True, slots=True)
class Prepared:
    """A tick that is reduced on this rank and not committed.

    Attributes:
        tick: committed ticks once it is.
        generation: of the world that reduced it.
        commit: commits it and records it; raises `JobError`.
    """

    tick: int
    generation: Generation
    commit: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Settled:
    """How the members came to one state.

    Attributes:
        received: this rank took another's state.
        applied: this rank committed what it had prepared.
        drifted: ranks that were at the same tick with another state, and were repaired.
        rounds_alike: whether all members round alike: bit for bit is then kept in reproducible mode.
    """

    received: bool = False
    applied: bool = False
    drifted: tuple[int, ...] = ()
    rounds_alike: bool = True


@dataclass(frozen=True, slots=True)
class _Look:
    """What a member tells of its state's content."""

    sketch: tuple[float, ...]
    digest: bytes


class Settling:
    """One node's side of it: its state, its journal, and what it has prepared."""

    def __init__(
        self, state: TrainingState, journal: Journal, rounding: str, passing: Waiting = nullcontext
    ) -> None:
        """``rounding``: see `engine.rounding`; ``passing`` is entered while a state is passed."""
        self._state = state
        self._journal = journal
        self._passing = passing
        self._looked: _Look | None = None  # as long as the state stays as it was
        self._head = (hash62(str(state.run_id)), state.layout(), hash62(rounding))

    def look(self) -> None:
        """Look at this member's own state, for `settle` to tell of it.

        It takes a while, and a world that forms leaves time for it. The state must not change in between.
        """
        self._looked = self._look()

    def _look(self) -> _Look:
        return _Look(self._state.sketch(), self._state.digest())

    def settle(
        self,
        world: FormedWorld,
        plan: WorldPlan,
        prepared: Prepared | None,
        timeout_s: float | None = None,
    ) -> Settled:
        """Return once all members hold one state.

        ``timeout_s`` bounds the first word from every member. Raises `WorldError`,
        `reconcile.NobodySoundError`, and `JobError` when what was prepared cannot be applied.
        """
        try:
            return self._settle(world, plan, prepared, timeout_s)
        finally:
            self._looked = None  # training goes on

    def _settle(
        self, world: FormedWorld, plan: WorldPlan, prepared: Prepared | None, timeout_s: float | None
    ) -> Settled:
        state, done = self._state, Settled()
        for _ in range(ROUNDS_MAX):
            records = self._gather(world, plan, prepared, timeout_s)
            timeout_s = None
            decision = decide(records, state.tolerance)
            alike = len({record.rounding for record in records}) == 1
            done = replace(done, drifted=done.drifted or decision.drifted, rounds_alike=alike)
            state.rounded_apart = state.rounded_apart or not alike
            if decision.settled:
                return done
            if decision.apply:
                if world.rank in decision.apply and prepared is not None:
                    self._looked = None
                    prepared.commit()
                    done = replace(done, applied=True)
                prepared = None  # of no use to anybody else
                continue
            if self._pass_state(world, decision, records):
                self._looked = None
                done = replace(done, received=True)
            prepared = None
        raise WorldError(f"the members still hold different states after {ROUNDS_MAX} rounds")

    def _gather(
        self, world: FormedWorld, plan: WorldPlan, prepared: Prepared | None, timeout_s: float | None
    ) -> list[Record]:
        """Tell this member's record and return all of them, in rank order."""
        state = self._state
        looked = self._looked = self._looked or self._look()
        sketch, digest = looked.sketch, looked.digest
        counters = state.counters
        head = torch.zeros(_HEAD + _DIGEST, dtype=torch.int64)
        head[:_HEAD] = torch.tensor(
            [
                _VERSION,
                *self._head,
                counters.step,
                counters.evaluations,
                _hash_of(state.committed_in),
                prepared.tick if prepared is not None else -1,
                _hash_of(prepared.generation if prepared is not None else None),
                int(state.healed),
                len(sketch),
                int(bool(digest)),
            ]
        )
        if digest:
            words = [int.from_bytes(digest[at : at + 8], "big", signed=True) for at in range(0, 32, 8)]
            head[_HEAD:] = torch.tensor(words)
        heads = [part.tolist() for part in world.gather(head, timeout_s)]
        records = [_record(plan, rank, numbers) for rank, numbers in enumerate(heads)]
        check_one_run(records)
        sketches = self._gather_sketches(world, sketch, [numbers[_SKETCH_AT] for numbers in heads], timeout_s)
        return [replace(record, sketch=told) for record, told in zip(records, sketches, strict=True)]

    @staticmethod
    def _gather_sketches(
        world: FormedWorld, own: tuple[float, ...], lengths: list[int], timeout_s: float | None
    ) -> list[tuple[float, ...]]:
        """Return every member's sketch: of different lengths, since optimizers begin without any state."""
        longest = max(lengths)
        if min(lengths) < 0 or longest > SKETCH_MAX:
            raise WorldError(f"a member tells a sketch of {longest} numbers where {SKETCH_MAX} can be")
        padded = torch.zeros(longest, dtype=torch.float64)
        padded[: len(own)] = torch.tensor(own, dtype=torch.float64)
        told = world.gather(padded, timeout_s)
        return [tuple(part.tolist()[:length]) for part, length in zip(told, lengths, strict=True)]

    def _pass_state(self, world: FormedWorld, decision: Decision, records: list[Record]) -> bool:
        """Have each receiver take its donor's state; return whether this rank did."""
        gives = any(donor == world.rank for donor, _ in decision.passes)
        packed = self._state.pack() if gives else None
        with self._passing():
            for donor, receiver in decision.passes:
                self._pass_to(world, (donor, receiver), packed if donor == world.rank else None, records)
        return any(receiver == world.rank for _, receiver in decision.passes)

    def _pass_to(
        self, world: FormedWorld, ends: tuple[int, int], packed: Packed | None, records: list[Record]
    ) -> None:
        """Pass the state from rank ``ends[0]``, which has it ``packed``, to ``ends[1]``; all take part."""
        donor, receiver = ends
        own, theirs = records[receiver].tick, records[donor].tick
        lines = b"" if packed is None else self._journal.lines_after(own)
        sizes = torch.zeros(3, dtype=torch.int64)
        if packed is not None:
            sizes = torch.tensor([packed.payload.numel(), len(packed.header), len(lines)])
        payload_bytes, header_bytes, lines_bytes = world.gather(sizes)[donor].tolist()
        timeline = self._state.engine.timeline
        ticks = min(theirs, timeline.steps + timeline.evaluations(timeline.steps)) - own
        self._check_sizes((payload_bytes, header_bytes, lines_bytes), max(0, ticks))
        total = payload_bytes + header_bytes + lines_bytes
        whole = torch.empty(total if world.rank == receiver else 0, dtype=torch.uint8)
        if packed is not None:
            texts = torch.frombuffer(bytearray(packed.header + lines), dtype=torch.uint8)
            whole = torch.cat([packed.payload, texts])
        for start in range(0, total, PART_BYTES):
            world.move(whole[start : start + PART_BYTES], donor, receiver).wait()
        if world.rank == receiver:
            told = whole[payload_bytes:].numpy().tobytes()
            self._take(whole[:payload_bytes], told[:header_bytes], told[header_bytes:], (own, theirs))

    def _check_sizes(self, sizes: tuple[int, int, int], ticks: int) -> None:
        """Raise `WorldError` for a state larger than this run's can be, or more lines than ``ticks`` have."""
        bounds = (
            self._state.payload_max_bytes(),
            HEADER_MAX_BYTES,
            ticks * LINE_ROOM_BYTES + LINE_MAX_BYTES,
        )
        for size, bound in zip(sizes, bounds, strict=True):
            if not 0 <= size <= bound:
                raise WorldError(f"a member offered {size} bytes of state where at most {bound} can be")

    def _take(self, payload: torch.Tensor, header: bytes, lines: bytes, ticks: tuple[int, int]) -> None:
        """Take over a state and the lines that this rank's record lacks; ``ticks``: its own, the donor's."""
        own, theirs = ticks
        self._state.sound = False  # until state and record are there, and belong together
        try:
            # The record first: should the state not fit, the next taking over cuts it to the state's tick.
            self._journal.truncate_after(min(own, theirs))
            self._journal.extend(lines)
            self._state.unpack(header, payload)
        except ProtocolError as error:
            raise WorldError(str(error)) from error
        if self._state.tick != theirs or self._journal.tick != theirs:
            self._state.sound = False
            raise WorldError(
                f"a state of tick {self._state.tick} with {self._journal.tick} metrics lines came "
                f"where tick {theirs} was told"
            )


def _hash_of(generation: Generation | None) -> int:
    return 0 if generation is None else hash62(str(generation))


def _record(plan: WorldPlan, rank: int, numbers: list[int]) -> Record:
    """Return the record that a member's head stands for, its sketch still empty."""
    version, run, layout, rounding, step, evaluations, *rest = numbers[:_HEAD]
    committed_in, prepared, prepared_in, healed, _, has_digest = rest
    member = plan.members[rank]
    if version != _VERSION or step < 0 or evaluations < 0:
        raise WorldError(f"{member.name} tells a record of version {version}, this node {_VERSION}")
    digest = b"".join(word.to_bytes(8, "big", signed=True) for word in numbers[_HEAD:])
    return Record(
        node_id=member.node_id,
        run=run,
        layout=layout,
        rounding=rounding,
        step=step,
        evaluations=evaluations,
        committed_in=committed_in,
        prepared_tick=prepared if prepared >= 0 else None,
        prepared_in=prepared_in,
        healed=healed == 1,
        sketch=(),
        digest=digest if has_digest else b"",
    )
