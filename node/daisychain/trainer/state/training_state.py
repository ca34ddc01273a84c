"""The whole state of a run as one unit: what is committed, passed to a joiner, and compared.

Model, optimizer, schedule, the engine's own, the counters, the best model so far and the patience
change together at a commit, or are taken over together from another member.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

import torch

from daisychain.core.ids import Generation, RunId
from daisychain.errors import ProtocolError
from daisychain.trainer.engine.engine import Engine, Reduced, StepOutcome
from daisychain.trainer.engine.evaluation import Evaluation
from daisychain.trainer.state.sketch import Sketcher
from daisychain.trainer.state.tolerance import Tolerance, tolerance
from daisychain.trainer.state.trees import Packed, Tree, pack, unpack

PAYLOAD_FACTOR = 16
"""A state may be this many times its model: an optimizer keeps up to four tensors a parameter, the best
model is one more; float16 models may keep float32 copies."""

PAYLOAD_ROOM_BYTES = 16 << 20
"""What a state of a tiny model may have beyond that."""


class Action(Enum):
    """What comes next in a run; a function of the committed state alone."""

    STEP = "step"
    EVALUATE = "evaluate"
    FINISH = "finish"


@dataclass(slots=True)
class Best:
    """The state with the least held-out loss: the run's result where the job says ``keep_best``."""

    step: int
    evaluation: Evaluation
    tensors: dict[str, torch.Tensor]


@dataclass(slots=True)
class Counters:
    """What is committed, besides tensors.

    Attributes:
        step, evaluations: committed.
        least: the least held-out loss so far; None before the first evaluation.
        stale: evaluations since then.
        last: the newest evaluation; None before the first.
    """

    step: int = 0
    evaluations: int = 0
    least: float | None = None
    stale: int = 0
    last: Evaluation | None = None


@dataclass(slots=True)
class TrainingState:
    """One run's state on this node, over one engine.

    Attributes:
        sound: it is whole: no taking over of another member's state was cut short.
        rounded_apart: it comes from worlds of which some had members that round differently: what it holds is
            then that of one process up to rounding, not to the bit.
        committed_in: the world of the last commit; None when the state was taken over from elsewhere.
    """

    run_id: RunId
    engine: Engine
    counters: Counters = field(default_factory=Counters)
    best: Best | None = None
    sound: bool = True
    rounded_apart: bool = False
    committed_in: Generation | None = None
    _sketcher: Sketcher = field(default_factory=Sketcher)

    @property
    def step(self) -> int:
        """Committed training steps."""
        return self.counters.step

    @property
    def tick(self) -> int:
        """Committed steps and evaluations."""
        return self.counters.step + self.counters.evaluations

    @property
    def healed(self) -> bool:
        """Whether the last commit and the last taking over of a state ended well."""
        return self.sound and self.engine.healthy

    @property
    def stopped_early(self) -> bool:
        """Whether ``early_stopping`` has ended the run."""
        patience = self.engine.job.spec.early_stopping
        return patience is not None and self.counters.stale >= patience

    @property
    def tolerance(self) -> Tolerance:
        """How far sketches of members that hold one state may lie apart."""
        return tolerance(self.engine.job.spec.dtype)

    def next(self) -> Action:
        """Return what the run does next."""
        if self.stopped_early:
            return Action.FINISH
        if self.engine.timeline.evaluation_due(self.counters.step, self.counters.evaluations):
            return Action.EVALUATE
        return Action.STEP if self.counters.step < self.engine.timeline.steps else Action.FINISH

    def commit_step(self, reduced: Reduced, generation: Generation) -> StepOutcome:
        """Apply a reduced gradient of that world; raises `JobError`, and the state is then not healed."""
        outcome = self.engine.apply(reduced)
        self.counters.step += 1
        self.committed_in = generation
        return outcome

    def commit_evaluation(self, evaluation: Evaluation, generation: Generation) -> None:
        """Take note of an evaluation of that world: the schedule, the best model, the patience.

        Raises `JobError` when the schedule fails, and the state is then not healed.
        """
        self.engine.take_evaluation(evaluation)
        counters = self.counters
        counters.evaluations += 1
        self.committed_in = generation
        counters.last = evaluation
        if math.isfinite(evaluation.loss) and (counters.least is None or evaluation.loss < counters.least):
            counters.least = evaluation.loss
            counters.stale = 0
            if self.engine.job.spec.keep_best:
                self.best = Best(counters.step, evaluation, self._model_copy())
        else:
            counters.stale += 1

    def pack(self) -> Packed:
        """Return the whole state as bytes; raises `JobError` for a part that cannot travel."""
        return pack({**self._tree(), "rounded_apart": self.rounded_apart})

    def _tree(self) -> dict[str, Tree]:
        """Return all that follows from the committed ticks."""
        job, counters = self.engine.job, self.counters
        best = self.best
        return {
            "run": str(self.run_id),
            "model": dict(job.model.state_dict()),
            "optimizer": job.optimizer.state_dict(),
            "schedule": None if job.schedule is None else job.schedule.state_dict(),
            "engine": self.engine.extra_state(),
            "step": counters.step,
            "evaluations": counters.evaluations,
            "least": counters.least,
            "stale": counters.stale,
            "last": _evaluation_tree(counters.last),
            "best": None
            if best is None
            else {
                "step": best.step,
                "evaluation": _evaluation_tree(best.evaluation),
                "tensors": best.tensors,
            },
        }

    def payload_max_bytes(self) -> int:
        """Return the largest payload that a state of this run can have."""
        own = sum(tensor.numel() * tensor.element_size() for tensor in self._model().values())
        return PAYLOAD_FACTOR * own + PAYLOAD_ROOM_BYTES

    def unpack(self, header: bytes, payload: torch.Tensor) -> None:
        """Take over another member's state.

        Raises `ProtocolError` when it is not one of this run and model. Until all of it is in place the
        state counts as not healed.
        """
        tree = unpack(header, payload)
        self.sound, self.committed_in = False, None
        try:
            self._load(tree)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise ProtocolError(f"a state that does not fit this run: {error}") from error
        self.engine.healthy = True
        self.sound = True

    def _load(self, tree: Tree) -> None:
        job = self.engine.job
        if tree["run"] != self.run_id:
            raise ValueError(f"it belongs to run {str(tree['run'])[:40]!r}")
        counters = Counters(
            step=_count(tree["step"]),
            evaluations=_count(tree["evaluations"]),
            least=None if tree["least"] is None else float(tree["least"]),
            stale=_count(tree["stale"]),
            last=_evaluation(tree["last"]),
        )
        best = None
        if tree["best"] is not None:
            evaluation = _evaluation(tree["best"]["evaluation"])
            if evaluation is None:
                raise ValueError("a best model without its evaluation")
            best = Best(_count(tree["best"]["step"]), evaluation, dict(tree["best"]["tensors"]))
            self._check_model(best.tensors)
        self._check_model(tree["model"])
        job.model.load_state_dict(tree["model"])
        job.optimizer.load_state_dict(tree["optimizer"])
        if job.schedule is not None:
            job.schedule.load_state_dict(tree["schedule"])
        self.engine.load_extra_state(tree["engine"])
        self.counters, self.best = counters, best
        self.rounded_apart = _flag(tree["rounded_apart"])

    def _check_model(self, tensors: Mapping[str, torch.Tensor]) -> None:
        own = self._model()
        if own.keys() != tensors.keys():
            raise ValueError("the model's tensors have other names")
        for name, tensor in own.items():
            if tensor.shape != tensors[name].shape or tensor.dtype != tensors[name].dtype:
                raise ValueError(f"{name} has another shape or dtype")

    def layout(self) -> int:
        """Return 62 bits that tell models of other names, shapes or dtypes apart."""
        text = ";".join(f"{name}:{tuple(t.shape)}:{t.dtype}" for name, t in self._model().items())
        return hash62(text)

    def sketch(self) -> tuple[float, ...]:
        """Return the state in a few numbers: three a tensor; not finite where a tensor is not.

        An optimizer has no tensors before its first step, so the length grows with it.
        """
        found: list[float] = []
        for tensor in self._sketched():
            found += self._sketcher.of(tensor)
        return tuple(found)

    def _sketched(self) -> Iterator[torch.Tensor]:
        """Yield every tensor of the state, in an order that a state which travelled keeps."""
        yield from self._model().values()
        optimizer = self.engine.job.optimizer
        for group in optimizer.param_groups:
            yield from _numbers(group)
            for parameter in group["params"]:
                state = optimizer.state.get(parameter, {})
                yield from (state[key] for key in sorted(state) if isinstance(state[key], torch.Tensor))
        yield from (tensor for _, tensor in sorted(self.engine.extra_state().items()))
        if self.best is not None:
            yield from (tensor for _, tensor in sorted(self.best.tensors.items()))

    def digest(self) -> bytes:
        """Return the sha256 of the whole state in reproducible mode; empty otherwise."""
        if not self.engine.job.spec.reproducible:
            return b""
        packed = pack(self._tree())
        digest = hashlib.sha256(packed.header)
        digest.update(packed.payload.numpy().data)
        return digest.digest()

    def result(self) -> Best:
        """Return the model that the run leaves: the best one or the last."""
        if self.best is not None:
            return self.best
        last = self.counters.last or Evaluation(0.0, {}, 0)
        return Best(self.counters.step, last, self._model_copy())

    def _model(self) -> dict[str, torch.Tensor]:
        return dict(self.engine.job.model.state_dict())

    def _model_copy(self) -> dict[str, torch.Tensor]:
        return {name: tensor.detach().cpu().clone() for name, tensor in self._model().items()}


def hash62(text: str) -> int:
    """Return 62 bits of ``text``'s BLAKE2b: a number that fits an int64."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 2


def _evaluation_tree(evaluation: Evaluation | None) -> Tree:
    if evaluation is None:
        return None
    return {"loss": evaluation.loss, "metrics": dict(evaluation.metrics), "samples": evaluation.samples}


def _evaluation(tree: Tree) -> Evaluation | None:
    if tree is None:
        return None
    metrics = {str(name): float(value) for name, value in tree["metrics"].items()}
    return Evaluation(float(tree["loss"]), metrics, _count(tree["samples"]))


def _numbers(group: Mapping[str, object]) -> Iterator[torch.Tensor]:
    """Yield what an optimizer keeps for a group of parameters: learning rate, momentum and the like."""
    for _, value in sorted(group.items()):
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, int | float):
            yield torch.tensor(float(value), dtype=torch.float64)


def _flag(value: Tree) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is no flag")
    return value


def _count(value: Tree) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value
