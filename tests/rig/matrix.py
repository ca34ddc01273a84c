"""The fault matrix: what goes wrong, for whom and when, and what must come of it. Data only.

`LINES` is the table: each line a fault, its roles and phases, and the expected outcome; ``left_out`` says
why other phases are not there. `rows` spells it out in both modes; `selection` covers it with few.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from daisychain.core.jobs import JobState
from rig.jobs import Mode


class Fault(StrEnum):
    """What happens to the victim."""

    AGENT_KILLED = "agent-killed"
    TRAINER_KILLED = "trainer-killed"
    WORKERS_LEFT = "workers-left"  # its trainer is killed while a process that the job forked lives on
    NODE_KILLED = "node-killed"
    NODE_FROZEN = "node-frozen"
    AGENT_FROZEN = "agent-frozen"
    TRAINER_FROZEN = "trainer-frozen"
    LINK_CUT = "link-cut"
    ONE_WAY_CUT = "one-way-cut"  # it hears the others, nobody hears it
    NO_ROUTE = "no-route"  # it and one other worker do not reach each other
    HALVES = "halves"  # four nodes in two halves that both go on
    OUT_OF_MEMORY = "out-of-memory"
    RAISES = "raises"  # the job's code raises on this node only
    NOT_A_NUMBER = "nan"  # the job's loss is NaN on this node only
    FAILS_TWICE = "fails-twice"  # the job's code raises wherever it is tried
    DISK_FULL = "disk-full"
    LEAVES = "leaves"  # SIGTERM
    ALL_KILLED = "all-killed"
    OLD_DISK = "old-disk"  # it comes back with an earlier run of the job, further on than the chain is now
    GARBAGE = "garbage"  # on every port of every node
    CANCELLED = "cancelled"
    QUOTA_CHANGED = "quota-changed"  # to a quarter
    CLOCK_OFFSET = "clock-offset"  # ten years slow, from its start


class Role(StrEnum):
    """Whom it happens to."""

    COORDINATOR = "coordinator"
    WORKER = "worker"
    ALL = "all"


class Phase(StrEnum):
    """When it happens."""

    EARLY = "early"  # in the first step
    MID_RUN = "mid-run"
    EVALUATION = "evaluation"
    TRANSFER = "transfer"  # the state is about to be passed to a joiner, which is the worker that is hit
    FORMING = "forming"  # the first world
    REFORMING = "re-forming"  # a second fault, while the world forms again after the first
    CHECKPOINT = "checkpoint"  # the victim is about to copy its state for one
    COMMIT = "commit"  # the victim saw a commit that another rank did not
    LAST_STEP = "last-step"


class Fate(StrEnum):
    """What becomes of the victim."""

    GONE = "gone"  # its agent has ended, and is not started again
    REJOINS = "rejoins"  # the others go on without it, and it trains along again before the end
    LATE = "late"  # the run ends meanwhile: it learns that, and what result it has is the others'
    STAYS = "stays"  # no world breaks
    STANDS_BY = "stands by"  # the others go on without it; it says why


@dataclass(frozen=True, slots=True)
class Expected:
    """The outcome, written down before it is seen.

    Attributes:
        fate: of the victim.
        within_s: from the fault to the next step committed by others, at most, on a machine that is busy with
            another row; 0 = no step waits for it. What it takes on a quiet one is the bench's affair.
        says: words that some node tells of the victim, or of the run: why it stands by, cannot write, failed.
        job: how the run ends; when finished: nothing lost, nothing repeated, one state on all members, and
            the model that one process makes.
    """

    fate: Fate
    within_s: float = 0.0
    says: str = ""
    job: JobState = JobState.FINISHED


@dataclass(frozen=True, slots=True)
class Line:
    """One fault's line of the table."""

    fault: Fault
    roles: tuple[Role, ...]
    phases: tuple[Phase, ...]
    expected: Expected
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One run."""

    fault: Fault
    role: Role
    phase: Phase
    mode: Mode
    expected: Expected

    @property
    def name(self) -> str:
        return "/".join((self.fault, self.role, self.phase, self.mode))


BOTH = (Role.COORDINATOR, Role.WORKER)
EVERY_PHASE = tuple(Phase)
NOTICED_S, SILENT_S = 4.0, 8.0
"""A death that the kernel tells the others; a silence that they must notice themselves."""

LEAVES_NO_CHOICE = "what it does to a world does not depend on the phase; the others are seen with the node's"

JOBS_CODE = "its code runs while a step or an evaluation is computed, and in no other phase"

LINES = (
    Line(Fault.NODE_KILLED, BOTH, EVERY_PHASE, Expected(Fate.GONE, NOTICED_S)),
    Line(Fault.TRAINER_KILLED, BOTH, EVERY_PHASE, Expected(Fate.REJOINS, NOTICED_S)),
    Line(Fault.NODE_FROZEN, BOTH, EVERY_PHASE, Expected(Fate.REJOINS, SILENT_S)),
    Line(Fault.LINK_CUT, BOTH, EVERY_PHASE, Expected(Fate.REJOINS, SILENT_S)),
    Line(Fault.LEAVES, BOTH, EVERY_PHASE, Expected(Fate.GONE, NOTICED_S)),
    Line(
        Fault.AGENT_KILLED,
        BOTH,
        (Phase.MID_RUN, Phase.FORMING, Phase.COMMIT),
        Expected(Fate.GONE, NOTICED_S),
        "the kernel ends its trainer with it: as when the node is killed",
    ),
    Line(
        Fault.WORKERS_LEFT,
        BOTH,
        (Phase.MID_RUN,),
        Expected(Fate.REJOINS, NOTICED_S),
        "the phases are seen with the trainer that has no such process",
    ),
    Line(
        Fault.AGENT_FROZEN,
        BOTH,
        (Phase.MID_RUN,),
        Expected(Fate.STAYS),
        "its trainer trains on, and every step that it commits with the others says that the machine lives",
    ),
    Line(
        Fault.AGENT_FROZEN,
        BOTH,
        (Phase.FORMING,),
        Expected(Fate.REJOINS, SILENT_S),
        "only a world that forms needs the agent",
    ),
    Line(
        Fault.TRAINER_FROZEN,
        BOTH,
        (Phase.MID_RUN, Phase.EVALUATION, Phase.FORMING),
        Expected(Fate.REJOINS, SILENT_S),
        LEAVES_NO_CHOICE,
    ),
    Line(
        Fault.ONE_WAY_CUT,
        BOTH,
        (Phase.MID_RUN, Phase.FORMING),
        Expected(Fate.REJOINS, SILENT_S),
        LEAVES_NO_CHOICE,
    ),
    Line(
        Fault.NO_ROUTE,
        (Role.WORKER,),
        (Phase.MID_RUN, Phase.FORMING),
        Expected(Fate.REJOINS, SILENT_S, "do not reach each other"),
        "two workers here; a coordinator that one worker does not reach is the one-way cut and the cut to it",
    ),
    Line(
        Fault.HALVES,
        (Role.ALL,),
        (Phase.EARLY, Phase.MID_RUN, Phase.COMMIT),
        Expected(Fate.REJOINS, SILENT_S),
        "the halves that never met (early) have terms of equal number; elsewhere only the step differs",
    ),
    Line(
        Fault.OUT_OF_MEMORY,
        BOTH,
        (Phase.MID_RUN,),
        Expected(Fate.STANDS_BY, SILENT_S, "memory"),
        "memory is asked for while a step is computed, and in no other phase",
    ),
    Line(
        Fault.RAISES,
        BOTH,
        (Phase.MID_RUN, Phase.EVALUATION),
        Expected(Fate.STANDS_BY, SILENT_S, "a hole in the disk"),
        JOBS_CODE,
    ),
    Line(
        Fault.NOT_A_NUMBER,
        BOTH,
        (Phase.MID_RUN,),
        Expected(Fate.STANDS_BY, SILENT_S, "NaN or infinite"),
        JOBS_CODE,
    ),
    Line(
        Fault.FAILS_TWICE,
        (Role.ALL,),
        (Phase.MID_RUN, Phase.EVALUATION),
        Expected(Fate.STAYS, says="a hole in the disk", job=JobState.FAILED),
        JOBS_CODE,
    ),
    Line(
        Fault.DISK_FULL,
        BOTH,
        (Phase.CHECKPOINT,),
        Expected(Fate.STAYS, says="Make room"),
        "the disk is written to at checkpoints, and at the end, where the run is finished all the same",
    ),
    Line(
        Fault.ALL_KILLED,
        (Role.ALL,),
        (Phase.MID_RUN, Phase.EVALUATION, Phase.COMMIT),
        Expected(Fate.REJOINS),
        "in the others nothing but the place on the disk differs",
    ),
    Line(
        Fault.OLD_DISK,
        BOTH,
        (Phase.MID_RUN,),
        Expected(Fate.REJOINS),
        "it happens when a node starts: the phase is the one that the chain is in",
    ),
    Line(
        Fault.GARBAGE,
        (Role.ALL,),
        (Phase.FORMING,),
        Expected(Fate.STAYS),
        "ports are new while a world forms",
    ),
    Line(
        Fault.CANCELLED,
        BOTH,
        (Phase.FORMING, Phase.MID_RUN),
        Expected(Fate.STAYS, job=JobState.CANCELLED),
        "asked of this node's agent; elsewhere the world that stands is ended as in mid-run",
    ),
    Line(
        Fault.QUOTA_CHANGED,
        BOTH,
        (Phase.MID_RUN,),
        Expected(Fate.STAYS),
        "a slower machine is slower in all phases",
    ),
    Line(
        Fault.CLOCK_OFFSET,
        BOTH,
        (Phase.EARLY,),
        Expected(Fate.STAYS),
        "it lasts from the first to the last step",
    ),
)


def rows(lines: Iterable[Line] = LINES) -> list[Row]:
    """Return every row, in both modes."""
    return [
        Row(line.fault, role, phase, mode, _expected(line, role, phase))
        for line in lines
        for role in line.roles
        for phase in line.phases
        for mode in Mode
    ]


def _expected(line: Line, role: Role, phase: Phase) -> Expected:
    """Return what the line expects; after the last step nobody can come back before the end."""
    expected = line.expected
    late = phase is Phase.LAST_STEP and expected.fate is Fate.REJOINS
    return Expected(Fate.LATE, expected.within_s, expected.says, expected.job) if late else expected


def must_cover(table: Sequence[Row]) -> frozenset[tuple[str, ...]]:
    """Return what a selection must show: every fault, phase and mode, and every pair of fault and role."""
    return frozenset(item for row in table for item in _shows(row))


def selection(table: Sequence[Row]) -> list[Row]:
    """Return few rows that show all of `must_cover`: always the one that shows most of what is missing.

    Ties go to the row that comes first, so the selection changes only with the table.
    """
    missing = set(must_cover(table))
    chosen: list[Row] = []
    while missing:
        best = max(table, key=lambda row: len(missing & _shows(row)))
        missing -= _shows(best)
        chosen.append(best)
    return chosen


def _shows(row: Row) -> frozenset[tuple[str, ...]]:
    return frozenset(
        {
            ("fault", row.fault),
            ("phase", row.phase),
            ("mode", row.mode),
            ("phase in mode", row.phase, row.mode),
            ("fault of role", row.fault, row.role),
        }
    )
