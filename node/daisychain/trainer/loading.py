"""From the first order to a trainer that is ready: the job read, checked and measured, its record opened."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from daisychain.core.job_spec import PythonModel
from daisychain.core.orders import CHECKPOINT_FOLDER, LoadRun
from daisychain.core.reports import TrainerReady
from daisychain.core.shares import Capacity
from daisychain.core.world import WorldPlan
from daisychain.errors import JobError, JobMemoryError
from daisychain.trainer.engine.capacity import measure
from daisychain.trainer.engine.engine import Engine
from daisychain.trainer.engine.footprint import footprint, refuse_too_big
from daisychain.trainer.engine.memory import free_bytes
from daisychain.trainer.engine.rounding import rounding_digest
from daisychain.trainer.engine.timeline import Timeline
from daisychain.trainer.jobs.load import load_job
from daisychain.trainer.jobs.loaded import LoadedJob
from daisychain.trainer.jobs.streaming.room import DataRoom
from daisychain.trainer.jobs.user_code import MEMORY_REMEDY, wants_memory
from daisychain.trainer.record.journal import Journal
from daisychain.trainer.record.trouble import Trouble
from daisychain.trainer.state.checkpoint_file import Head
from daisychain.trainer.state.checkpoint_writer import CheckpointSettings, CheckpointWriter
from daisychain.trainer.state.checkpoints import Checkpoints
from daisychain.trainer.state.training_state import TrainingState
from daisychain.wire.job_yaml import parse_job

log = logging.getLogger(__name__)

JOB_FILE = "job.yaml"
METRICS_FILE = "metrics.jsonl"


@dataclass(slots=True)
class Run:
    """One run, loaded on this node.

    Attributes:
        order: what was asked for.
        checkpoints, writer: of this run on this node's disk.
        notes: what loading noticed, for the log and the summary.
        rounding: digest that tells how this machine rounds.
        rounds_alike: whether all members of every world so far rounded alike; None while alone.
        repairs: how often a member's state was found to have drifted, and was repaired.
    """

    order: LoadRun
    job: LoadedJob
    engine: Engine
    state: TrainingState
    journal: Journal
    checkpoints: Checkpoints
    writer: CheckpointWriter
    notes: tuple[str, ...]
    capacity: Capacity
    rounding: str
    rounds_alike: bool | None = None
    repairs: int = 0

    @property
    def kind(self) -> str:
        """What job.yaml calls its kind."""
        return "python" if isinstance(self.job.spec.model, PythonModel) else "table"

    def note_repairs(self, drifted: tuple[int, ...], plan: WorldPlan) -> None:
        """Tell and count the ranks of ``plan`` whose state had drifted and was repaired."""
        self.repairs += len(drifted)
        for rank in drifted:
            log.warning("%s had drifted and was repaired", plan.members[rank].name)
        if plan.rank_of(self.order.node_id) in drifted:
            self.writer.distrust()

    def head(self) -> Head:
        """Return what a checkpoint of this moment tells of itself."""
        return Head(
            run_id=str(self.order.run_id),
            layout=self.state.layout(),
            tick=self.state.tick,
            step=self.state.step,
            rounds_alike=self.rounds_alike,
            repairs=self.repairs,
        )

    def close(self, keep: bool) -> None:
        """Close the record; ``keep``: with a last checkpoint, so that nothing is done again."""
        self.writer.end(self.head() if keep else None)
        self.journal.close()

    def ready(self) -> TrainerReady:
        """Return the report that a world may be formed with this node."""
        return TrainerReady(
            run_id=self.order.run_id,
            capacity=self.capacity,
            rounding=self.rounding if self.job.spec.reproducible else "",
            tick=self.state.tick,
            step=self.state.step,
            steps=self.engine.timeline.steps,
            parameters=self.engine.parameters,
        )


def load_run(order: LoadRun, tell_trouble: Callable[[str], None]) -> Run:
    """Load and measure, and take what an earlier life left; all that training imports is then imported.

    ``tell_trouble`` is given what this node cannot write, whenever that changes; see `Trouble`.
    Raises `JobError` for what is wrong with the job, `JobMemoryError` when it wants more memory than this
    machine has, `StorageError` for the run's folder.
    """
    try:
        return _load(order, Trouble(tell_trouble))
    except Exception as error:
        if not wants_memory(error):
            raise
        told = f"{type(error).__name__} while it was loaded: {error}"
        raise JobMemoryError(order.job_name, told, MEMORY_REMEDY) from error


def _load(order: LoadRun, trouble: Trouble) -> Run:
    folder, run_folder = Path(order.job_folder), Path(order.run_folder)
    try:
        text = (folder / JOB_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(JOB_FILE, f"cannot be read: {error}", f"Put it into {folder.name}.") from None
    spec = parse_job(text)
    cpu = torch.device("cpu")
    room = DataRoom.of(free_bytes(cpu), order.cache_folder, order.cache_max_bytes)
    job = load_job(folder, spec, cpu, room)
    refuse_too_big(job, footprint(job), free_bytes(cpu))
    engine = Engine(job, Timeline.of(spec, len(job.train), job.validation is not None))
    rounding = rounding_digest(engine)
    capacity = measure(engine)
    state = TrainingState(order.run_id, engine)
    state.pack()  # what could not be passed to a joiner is refused now, not when one comes
    journal = Journal(run_folder / METRICS_FILE, trouble=trouble)
    checkpoints = Checkpoints(run_folder / CHECKPOINT_FOLDER)
    restored = checkpoints.restore(state, journal)
    settings = CheckpointSettings(least_s=order.checkpoint_every_s)
    writer = CheckpointWriter(checkpoints, state, journal, trouble, settings)
    notes = (*job.notes, *restored.notes)
    run = Run(order, job, engine, state, journal, checkpoints, writer, notes, capacity, rounding)
    if restored.head is not None:
        run.rounds_alike, run.repairs = restored.head.rounds_alike, restored.head.repairs
    return run
