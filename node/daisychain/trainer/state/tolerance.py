"""How far replicas may lie apart and still count as one state: measured, see docs/decisions/0015."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Relative differences of sketches, see `sketch.differ`.

    Attributes:
        alike: between members whose machines round alike: they should hold the same bits.
        unlike: between members whose machines round differently: each commit takes them a rounding apart.
    """

    alike: float
    unlike: float


FLOAT32 = Tolerance(alike=1e-6, unlike=1e-4)
"""With and without fused arithmetic two replicas were 3e-7 (Adam) to 1.1e-6 (SGD) apart after 3,000 steps
(`make bench-drift`). Even were that to grow in proportion, `unlike` would last for 250,000."""

FLOAT64 = Tolerance(alike=1e-12, unlike=1e-11)
"""1.8e-15 after 3,000 steps: what is seen is the rounding of the sketch itself."""


def tolerance(dtype: str) -> Tolerance:
    """Return the tolerance for a job of ``dtype`` (job.yaml's word)."""
    return FLOAT64 if dtype == "float64" else FLOAT32
