"""Everything that may go wrong with a simulated chain, as data: one strike is one thing that goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import assert_never

from simulation.chain import SimChain


class Fault(StrEnum):
    """A kind of strike. What "for a while" means is `Strike.lasting_s`."""

    KILL = "a node is killed and starts again after a while"
    KILL_FOR_GOOD = "a node is killed and stays away until all heals"
    KILL_LEADER = "the coordinator is killed"
    KILL_AMID = "a node is killed between two of its effects and starts again after a while"
    KILL_MANY = "a third of the nodes are killed at once and start again after a while"
    KILL_ALL = "all nodes are killed and start again one after the other"
    KILL_TRAINER = "a trainer is killed"
    LEAVE = "a node leaves and comes back after a while"
    FREEZE = "a node is frozen for a while"
    FREEZE_AGENT = "an agent alone is frozen for a while"
    FREEZE_TRAINER = "a trainer is frozen for a while"
    SLEEP = "a machine sleeps for a while, its clock too"
    LEAP = "the clock of a node leaps ahead"
    CUT_ONE_WAY = "nothing passes from one node to another"
    CUT_ONE_WAY_A_WHILE = "nothing passes from one node to another for a while"
    CUT_PAIR = "nothing passes between two nodes"
    CUT_OFF = "a node is cut off from all others"
    CUT_HALVES = "the chain is cut into two halves"
    CUT_HALVES_A_WHILE = "the chain is cut into two halves for a while"
    MEND = "the network is whole again"
    RESET = "the links between two nodes are reset"
    STORM = "for a while every tenth message is lost, comes twice or is overtaken"
    SUBMIT = "a second job is queued"
    CANCEL = "a job is cancelled"
    PAUSE = "a job is paused on one node, and resumed on another after a while"
    PAUSE_FOR_GOOD = "a job is paused until all heals"
    RETRY = "a job that has ended is queued again"


@dataclass(frozen=True, slots=True)
class Strike:
    """One thing that goes wrong, and how long it is waited after it.

    Attributes:
        node, other: whom it hits; taken modulo the size of the chain, so that a smaller chain can be tried.
    """

    fault: Fault
    node: int = 0
    other: int = 1
    lasting_s: float = 1.0
    pause_s: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.fault.name} node={self.node} other={self.other} "
            f"lasting_s={self.lasting_s:.3f} pause_s={self.pause_s:.3f}"
        )


def strike(chain: SimChain, blow: Strike) -> None:
    """Let one thing go wrong."""
    count = len(chain.nodes)
    index = blow.node % count
    other = blow.other % count
    if other == index:
        other = (index + 1) % count

    def later(what: Callable[[], None]) -> None:
        chain.time.after(blow.lasting_s, what)

    match blow.fault:
        case Fault.KILL:
            chain.kill(index)
            later(partial(chain.start, index))
        case Fault.KILL_FOR_GOOD:
            chain.kill(index)
        case Fault.KILL_LEADER:
            for leader in chain.leaders()[:1]:
                leader.kill()
        case Fault.KILL_AMID:
            chain.kill_amid(index, blow.other % 7)
            later(partial(chain.start, index))
        case Fault.KILL_MANY:
            for each in range(index, index + max(1, count // 3)):
                chain.kill(each % count)
                later(partial(chain.start, each % count))
        case Fault.KILL_ALL:
            chain.kill_all()
            for place in range(count):
                chain.time.after(
                    blow.lasting_s * (place + 1) / count, partial(chain.start, (index + place) % count)
                )
        case Fault.KILL_TRAINER:
            chain.kill_trainer(index)
        case Fault.LEAVE:
            chain.leave(index)
            later(partial(chain.start, index))
        case Fault.FREEZE:
            chain.freeze(index)
            later(partial(chain.thaw, index))
        case Fault.FREEZE_AGENT:
            chain.freeze_agent(index)
            later(partial(chain.thaw, index))
        case Fault.FREEZE_TRAINER:
            chain.freeze_trainer(index)
            later(partial(chain.thaw_trainer, index))
        case Fault.SLEEP:
            chain.sleep(index)
            later(partial(chain.thaw, index))
        case Fault.LEAP:
            chain.leap(index, blow.lasting_s)
        case Fault.CUT_ONE_WAY:
            chain.cut(index, other)
        case Fault.CUT_ONE_WAY_A_WHILE:
            chain.cut(index, other)
            later(partial(chain.mend_pair, index, other))
        case Fault.CUT_PAIR:
            chain.cut_pair(index, other)
        case Fault.CUT_OFF:
            chain.partition({index})
        case Fault.CUT_HALVES:
            chain.partition(_half(index, count))
        case Fault.CUT_HALVES_A_WHILE:
            chain.partition(_half(index, count))
            later(chain.mend)
        case Fault.MEND:
            chain.mend()
        case Fault.RESET:
            chain.reset(index, other)
        case Fault.STORM:
            calm = chain.network.weather
            chain.network.weather = replace(calm, lost=0.1, twice=0.1, late=0.1)
            later(partial(chain.becalm, calm))
        case Fault.SUBMIT:
            here = (index,) if blow.lasting_s > 2.0 else None  # dropped on one node, or copied to all
            card = chain.add_job(f"job {blow.other}", 1 + blow.other % 20, 2.0 + blow.lasting_s, 0, here)
            chain.submit(index, card)
        case Fault.CANCEL:
            chain.cancel(index, chain.jobs[blow.other % len(chain.jobs)].run_id)
        case Fault.PAUSE:
            run_id = chain.jobs[blow.other % len(chain.jobs)].run_id
            chain.pause(index, run_id)
            later(partial(chain.resume, other, run_id))
        case Fault.PAUSE_FOR_GOOD:
            chain.pause(index, chain.jobs[blow.other % len(chain.jobs)].run_id)
        case Fault.RETRY:
            chain.retry(index)
        case _:
            assert_never(blow.fault)


def _half(first: int, count: int) -> set[int]:
    return {(first + place) % count for place in range(count // 2)}
