"""How a node's link is: its rate, how long frames take on it, and how many are lost."""

from __future__ import annotations

from dataclasses import dataclass

BURST_BYTES_MIN = 16 << 10
BURST_S = 0.002
"""What passes at once, so that a timer which is late does not cost rate."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One node's cable to the switch; the same both ways.

    Attributes:
        rate_mbit: its rate; None = as fast as this machine.
        delay_s: how much longer every frame takes, each way: a round trip between two such nodes takes
            four times as much longer.
        jitter_s: the delay varies by so much either way; frames stay in their order.
        loss: the part of the frames that is lost, each way.
        queue_bytes: what may wait for the rate, each way; beyond it frames are dropped. It is plain first
            in, first out. 375 KB, some 250 full frames, is 0.3 s at 10 Mbit/s: a common home router. A
            cheap one may keep 1000 frames (1.5 MB), 1.2 s.
    """

    rate_mbit: float | None = None
    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    queue_bytes: int = 375_000

    def __post_init__(self) -> None:
        if self.rate_mbit is not None and self.rate_mbit <= 0:
            raise ValueError(f"a rate of {self.rate_mbit} Mbit/s")
        if min(self.delay_s, self.jitter_s) < 0 or self.jitter_s > self.delay_s:
            raise ValueError(f"a delay of {self.delay_s} s that varies by {self.jitter_s} s")
        if not 0 <= self.loss < 1:
            raise ValueError(f"a loss of {self.loss}")

    @property
    def relayed(self) -> bool:
        """Whether the link needs the relay."""
        return self.delay_s > 0 or self.loss > 0

    def queueing(self, interface: str) -> str:
        """Return the line for ``tc -batch`` that gives an interface its rate; empty when it has none."""
        if self.rate_mbit is None:
            return ""
        burst = max(BURST_BYTES_MIN, int(self.rate_mbit * 1e6 / 8 * BURST_S))
        return (
            f"qdisc replace dev {interface} root tbf rate {self.rate_mbit * 1e6:.0f}bit "
            f"burst {burst} limit {burst + self.queue_bytes}"
        )
