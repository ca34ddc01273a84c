"""The network of a table's job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import torch
from torch import nn

from daisychain.core.job_spec import TableModel
from daisychain.trainer.jobs.model_file import Network

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}
MOMENTUM = 0.9


class Mlp(nn.Module):
    """Linear layers with an activation, and dropout where asked for, after every hidden one."""

    def __init__(self, network: Network, dropout: float = 0.0) -> None:
        super().__init__()
        widths = (network.inputs, *network.hidden)
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.output = nn.Linear(widths[-1], network.outputs)
        self.activation = _ACTIVATIONS[network.activation]()
        self.dropout: nn.Module = nn.Dropout(dropout) if dropout > 0 else nn.Identity()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return (rows x outputs): class scores, or the scaled target."""
        values = inputs
        for layer in self.hidden:
            values = self.dropout(self.activation(layer(values)))
        outputs: torch.Tensor = self.output(values)
        return outputs


def make_optimizer(table: TableModel, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer that the job names."""
    rate, decay = table.learning_rate, table.weight_decay
    match table.optimizer:
        case "adam":
            return torch.optim.Adam(parameters, lr=rate, weight_decay=decay)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay)
        case "sgd":
            return torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM, weight_decay=decay)
        case other:
            raise ValueError(f"unknown optimizer {other!r}")  # parse_job lets no other through
