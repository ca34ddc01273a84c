"""Every bound on bundles that move, and what each one stops."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BundleSettings:
    """The bounds of one node's bundle connections, as server and as client.

    Attributes:
        served_max: answers under way at once, each with one chunk in memory; the others wait their turn.
        serve_timeout_s: for one answer, waiting included: a peer that reads a byte a second is cut off.
        connect_timeout_s: until a peer answers at all.
        silence_s: a peer that sends nothing for so long has failed: its turn comes later than that only when
            many nodes fetch from it while the chain trains.
        answer_timeout_s: for one whole answer: a peer that sends a byte now and then has failed, too. A chunk
            takes 84 s on a link of 100 kbit/s.
        idle_s: an unused connection is kept for so long.
        piece_bytes: what is paced at once: 5 ms of a link of 100 Mbit/s; a step beside it waits no longer.
        kernel_buffer_bytes: what the kernel holds of one connection: a bundle must not fill the queue of a
            slow link before heartbeats and gradients.
    """

    served_max: int = 8
    serve_timeout_s: float = 180.0
    connect_timeout_s: float = 3.0
    silence_s: float = 30.0
    answer_timeout_s: float = 120.0
    idle_s: float = 10.0
    piece_bytes: int = 1 << 16
    kernel_buffer_bytes: int = 1 << 18
