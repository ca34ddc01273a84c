"""What happened in a demo, told from the survivors' own records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daisychain.trainer.record.journal import StepLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daisychain.cli.demo.records import Record


@dataclass(frozen=True, slots=True)
class Fault:
    """The node that was killed.

    Attributes:
        name, role: of the node; the role is ``coordinator`` or ``worker``.
        at: Unix seconds just before the first SIGKILL; of a container's, when its agent was gone.
        generation: of the world it was in.
        step: committed steps when it was chosen.
    """

    name: str
    role: str
    at: float
    generation: str
    step: int


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The last line of ``daisychain demo --json``.

    Attributes:
        completed: every node that was left finished the job, and nothing was lost or repeated.
        job: the job's name.
        nodes_started: agents started.
        generations: worlds that committed steps, as ``term.counter``.
        world_sizes: their numbers of members.
        committed_steps: of the run.
        samples_lost, samples_repeated: the worst of the survivors' audits.
        coordinator_changes: how often a world had another coordinator than the one before it.
        killed: the name and role of the node that was killed; None without a fault.
        recovery_s: from the fault to the next step committed by a newer world; None without a fault.
        accuracy: of the model on the held-out samples; None when the job measures none.
        loss: on the held-out samples; None without any.
        shares: units a full step by node name, in the first world, as last refreshed.
        survivors_equal: all survivors published the same model file, to the byte.
        bit_identical: the chain's model file equals that of one process; None without --verify.
        max_relative_difference: greatest norm(a-b)/norm(a) over the tensors of both; None likewise.
        train_s: from the first to the last commit.
    """

    completed: bool
    job: str
    nodes_started: int
    generations: tuple[str, ...]
    world_sizes: tuple[int, ...]
    committed_steps: int
    samples_lost: int
    samples_repeated: int
    coordinator_changes: int
    killed: str | None
    recovery_s: float | None
    accuracy: float | None
    loss: float | None
    shares: dict[str, int]
    survivors_equal: bool
    bit_identical: bool | None
    max_relative_difference: float | None
    train_s: float

    @property
    def proven(self) -> bool:
        """Whether the demo showed what it should: completed, recovered, and equal where compared."""
        recovered = self.killed is None or self.recovery_s is not None
        return self.completed and recovered and self.bit_identical is not False


def recovery_s(lines: Iterable[StepLine], fault: Fault) -> float | None:
    """Return the seconds from the fault to the next step committed by a newer world; None when none was.

    Steps that the broken world had in flight and still committed do not count.
    """
    later = (line.at for line in lines if line.at >= fault.at and line.world.generation != fault.generation)
    first = min(later, default=None)
    return None if first is None else first - fault.at


def first_shares(lines: Iterable[StepLine], names: Sequence[str]) -> dict[str, int]:
    """Return the units that each node of the first world took in its last full step.

    An epoch's last batch is smaller than the others, so the fullest steps are the ones that count.
    """
    chosen: tuple[int, ...] = ()
    generation = None
    for line in lines:
        generation = generation or line.world.generation
        if line.world.generation != generation:
            break
        if sum(line.world.shares) >= sum(chosen):
            chosen = line.world.shares
    return dict(zip(names, chosen, strict=False))


def tell(
    records: Sequence[Record], members: Sequence[str], nodes_started: int, fault: Fault | None
) -> DemoReport:
    """Return the report on a run.

    ``records``: of every survivor, at least one. ``members``: names in the first world's rank order.
    """
    from daisychain.cli.demo.records import same_file

    told = records[0]
    audit, evaluation = told.summary.audit, told.summary.evaluation
    lost = max(record.summary.audit.samples_lost for record in records)
    repeated = max(record.summary.audit.samples_repeated for record in records)
    whole = all(r.summary.audit.steps_committed == r.summary.audit.steps_expected for r in records)
    return DemoReport(
        completed=whole and lost == 0 and repeated == 0,
        job=told.summary.job,
        nodes_started=nodes_started,
        generations=tuple(world.generation for world in audit.worlds),
        world_sizes=tuple(world.size for world in audit.worlds),
        committed_steps=audit.steps_committed,
        samples_lost=lost,
        samples_repeated=repeated,
        coordinator_changes=audit.coordinator_changes,
        killed=None if fault is None else f"{fault.name} ({fault.role})",
        recovery_s=None if fault is None else recovery_s(told.lines, fault),
        accuracy=None if evaluation is None else evaluation.metrics.get("accuracy"),
        loss=None if evaluation is None else evaluation.loss,
        shares=first_shares(told.lines, members),
        survivors_equal=same_file([record.model_file for record in records]),
        bit_identical=None,
        max_relative_difference=None,
        train_s=told.summary.finished_at - told.summary.started_at,
    )
