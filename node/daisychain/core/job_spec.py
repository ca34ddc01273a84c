"""What a job.yaml says, checked and complete: every key has its value or its default here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Task(StrEnum):
    """What a table's target column holds."""

    CLASSIFICATION = "classification"
    REGRESSION = "regression"


@dataclass(frozen=True, slots=True)
class TableModel:
    """``kind: table``: no code; an MLP over a CSV's columns.

    Attributes:
        data: the CSV (may be .gz), relative to the job's folder; a header line is needed.
        target: the column to predict.
        task: see Task.
        ignore: columns left out.
        hidden: the widths of the hidden layers.
        activation: ``relu``, ``tanh`` or ``gelu``.
        dropout: 0 <= dropout < 1, after every hidden layer.
        optimizer: ``adam``, ``adamw`` or ``sgd`` (momentum 0.9).
        learning_rate: > 0.
        weight_decay: >= 0.
    """

    data: str
    target: str
    task: Task
    ignore: tuple[str, ...] = ()
    hidden: tuple[int, ...] = (128, 64)
    activation: str = "relu"
    dropout: float = 0.0
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0


@dataclass(frozen=True, slots=True)
class PythonModel:
    """``kind: python``: a file of the user's with model(), dataset(split), loss(model, batch), ...

    ``file`` is relative to the job's folder.
    """

    file: str


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job, as its author wants it trained.

    Attributes:
        model: what is trained.
        global_batch_size: samples of one step over the whole chain; >= 1.
        epochs, steps: how long; exactly one of them is set.
        seed: of the order, the initial model, dropout and augmentation.
        validation: fraction of a table's rows held out; 0 <= validation < 1 (python jobs have
            ``dataset("validation")`` instead).
        evaluate_every_epochs, evaluate_every_steps: the evaluation interval; at most one is set.
        clip_grad_norm: the global norm that the reduced gradient is clipped to; None = not.
        dtype: ``float32`` or ``float64``.
        keep_best: the result is the state with the least held-out loss, not the last.
        early_stopping: evaluations without a better held-out loss before the run ends; None = never.
        init_from: a ``model.safetensors`` relative to the job's folder to start from.
        reproducible: bit for bit the same model on any chain of machines that round alike.
        granule: positions of the global batch computed together where the model needs it.
        threads: intra-op threads; None = 1 in reproducible mode, otherwise the node's choice.
        min_nodes: the first world waits for this many nodes.
        max_nodes: no more nodes train it at once, the fastest of them; None = all.
        priority: trained before the queued jobs of lower priority; -10 to 10.
    """

    model: TableModel | PythonModel
    global_batch_size: int
    epochs: int | None
    steps: int | None
    seed: int = 0
    validation: float = 0.2
    evaluate_every_epochs: int | None = 1
    evaluate_every_steps: int | None = None
    clip_grad_norm: float | None = None
    dtype: str = "float32"
    keep_best: bool = False
    early_stopping: int | None = None
    init_from: str | None = None
    reproducible: bool = False
    granule: int = 32
    threads: int | None = None
    min_nodes: int = 1
    max_nodes: int | None = None
    priority: int = 0
