"""The grid of speeds, links and models over which forecasts are compared with what is measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from bench.hetero import models


@dataclass(frozen=True)
class Speeds:
    """Machines by their quotas, in CPUs, that sum to less than this machine has."""

    name: str
    cpus: Mapping[str, float]


@dataclass(frozen=True)
class Model:
    """A job: the code of its Python file, and its batch."""

    name: str
    code: str
    batch: int


SPEEDS = (
    Speeds("1:1:1", {"ada": 0.5, "bob": 0.5, "cem": 0.5}),
    Speeds("2:1:1", {"ada": 0.8, "bob": 0.4, "cem": 0.4}),
    Speeds("4:2:1", {"ada": 0.8, "bob": 0.4, "cem": 0.2}),
)

LINKS_MBIT: tuple[float | None, ...] = (None, 100.0, 20.0)
"""Of every node; None = as fast as this machine."""

MODELS = (
    Model("19 thousand parameters, convolutions", models.convolutions(8 * 256), 256),
    Model("100 thousand parameters", models.perceptron(8 * 1024, 64, 280), 1024),
    Model("400 thousand parameters", models.perceptron(8 * 1024, 64, 600), 1024),
)


@dataclass(frozen=True)
class Chain:
    """A chain of the grid: its models are trained one after the other."""

    speeds: Speeds
    link_mbit: float | None

    @property
    def link(self) -> str:
        """Its links, for people."""
        return "fast" if self.link_mbit is None else f"{self.link_mbit:g} Mbit/s"


def chains() -> list[Chain]:
    """Return the chains of the whole grid."""
    return [Chain(speeds, link) for speeds, link in product(SPEEDS, LINKS_MBIT)]
