"""The workers of a soak: each takes a handful of seeds at a time."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from simulation.scenario import WIDE, draw, play
from simulation.shrink import broken, shrink
from simulation.story import Violation
from soak.record import Seen

HANDFUL = 10


def look(seeds: Sequence[int], deadline_at: float) -> list[Seen]:
    """Run these seeds, as far as ``deadline_at`` allows, and return what each showed."""
    return [_look(seed) for seed in seeds if time.monotonic() < deadline_at]


def _look(seed: int) -> Seen:
    started, scenario, together_s, what = time.process_time(), draw(seed, WIDE), 0.0, ""
    try:
        together_s = play(scenario).together_s
    except Violation as violation:
        what = str(violation).partition("\n")[0]
    except Exception as error:  # a crash of the core is as bad: its seed must be told, not lost with a worker
        what = f"seed {seed}: {type(error).__name__}: {error}"
    return Seen(seed, scenario.plan.nodes, together_s, time.process_time() - started, what)


def soak(seeds: Sequence[int], workers: int, deadline_at: float, seen: Callable[[list[Seen]], None]) -> None:
    """Run the seeds on ``workers`` processes until all are done or ``deadline_at`` (monotonic) has come."""
    handfuls = [seeds[first : first + HANDFUL] for first in range(0, len(seeds), HANDFUL)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        flying: set[Future[list[Seen]]] = set()
        while handfuls or flying:
            while handfuls and len(flying) < 2 * workers and time.monotonic() < deadline_at:
                flying.add(pool.submit(look, handfuls.pop(0), deadline_at))
            if not flying:
                return
            done, flying = wait(flying, return_when=FIRST_COMPLETED)
            for each in done:
                seen(each.result())


def replay(seed: int) -> str:
    """Run one seed; return its story and the shortest one found beside it, or nothing when it is sound."""
    scenario = draw(seed, WIDE)
    violation = broken(scenario)
    if violation is None:
        return ""
    shorter, again = shrink(scenario, violation)
    told = [scenario, violation, "The shortest scenario found that breaks a promise:", shorter, again]
    return "\n\n".join(map(str, told))
