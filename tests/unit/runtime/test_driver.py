"""The loop: effects in order, timers on time, a queue that a flood cannot fill."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from daisychain.core.effects import Effect, Leave, Level, Note, PersistTerm
from daisychain.core.events import CancelAsked, Event, LeaveAsked, Received, TimerFired
from daisychain.core.ids import NodeId, RunId, Term
from daisychain.core.messages import HeartbeatAck
from daisychain.host.clock import SystemClock
from daisychain.runtime.driver import Driver
from daisychain.runtime.inbox import Inbox

ME = NodeId("a" * 32)


class Scripted:
    """A machine that answers events by a table and wants timers at given times."""

    def __init__(self, answers: dict[type[Event], list[Effect]], deadlines: Sequence[float] = ()) -> None:
        self.answers = answers
        self.deadlines = list(deadlines)
        self.seen: list[Event] = []
        self.last_timer = asyncio.Event()

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.seen.append(event)
        if isinstance(event, TimerFired):
            self.deadlines.pop(0)
            if len(self.deadlines) == 1:
                self.last_timer.set()
        return self.answers.get(type(event), [])

    def next_deadline(self) -> float | None:
        return self.deadlines[0] if self.deadlines else None


class Recorder:
    """A performer that takes its time over what must be durable."""

    def __init__(self) -> None:
        self.done: list[Effect] = []

    async def perform(self, effect: Effect) -> None:
        if isinstance(effect, PersistTerm):
            await asyncio.sleep(0.01)
        self.done.append(effect)


def driver(machine: Scripted, performer: Recorder, inbox: Inbox) -> Driver:
    return Driver(machine, performer, inbox, SystemClock())


def test_later_effects_wait_for_the_term_to_be_durable() -> None:
    effects: list[Effect] = [
        PersistTerm(Term(1, ME)),
        Note(Level.INFO, "after"),
        PersistTerm(Term(2, ME)),
        Leave("done"),
        Note(Level.INFO, "never"),
    ]
    performer = Recorder()

    async def run() -> str:
        inbox = Inbox()
        loop = driver(Scripted({LeaveAsked: effects}), performer, inbox)
        inbox.post(LeaveAsked("test"))
        return await asyncio.wait_for(loop.run(), 5)

    assert asyncio.run(run()) == "done"
    assert performer.done == effects[:3]


def test_timers_fire_without_events_and_events_without_timers() -> None:
    now = SystemClock().monotonic()
    machine = Scripted({CancelAsked: [Leave("event")]}, deadlines=[now, now + 0.02, now + 1e9])

    async def run() -> None:
        inbox = Inbox()
        loop = driver(machine, Recorder(), inbox)
        task = asyncio.create_task(loop.run())
        await asyncio.wait_for(machine.last_timer.wait(), 5)
        inbox.post(CancelAsked(RunId("r-1")))
        await asyncio.wait_for(task, 5)

    asyncio.run(run())
    assert machine.seen == [TimerFired(), TimerFired(), CancelAsked(RunId("r-1"))]


def test_a_deadline_that_stands_still_starves_no_event() -> None:
    machine = Scripted({CancelAsked: [Leave("event")]}, deadlines=[0.0] * 10_000)

    async def run() -> None:
        inbox = Inbox()
        loop = driver(machine, Recorder(), inbox)
        task = asyncio.create_task(loop.run())
        await asyncio.sleep(0)
        inbox.post(CancelAsked(RunId("r-1")))
        await asyncio.wait_for(task, 5)

    asyncio.run(run())
    assert machine.seen.count(TimerFired()) < 100


def test_a_flood_from_peers_is_shed_and_our_own_events_are_not() -> None:
    machine = Scripted({LeaveAsked: [Leave("event")]})

    async def run() -> Inbox:
        inbox = Inbox(queue_max=10)
        for seq in range(1000):
            inbox.post(Received(ME, HeartbeatAck(seq)))
        inbox.post(LeaveAsked("test"))
        await asyncio.wait_for(driver(machine, Recorder(), inbox).run(), 5)
        return inbox

    inbox = asyncio.run(run())
    assert inbox.shed == 990
    assert len(machine.seen) == 11
    assert machine.seen[-1] == LeaveAsked("test")


def test_a_machine_that_fails_ends_the_agent() -> None:
    class Broken(Scripted):
        def handle(self, event: Event, now: float) -> list[Effect]:
            raise ValueError("a bug")

    async def run() -> None:
        inbox = Inbox()
        loop = driver(Broken({}), Recorder(), inbox)
        inbox.post(LeaveAsked("test"))
        await asyncio.wait_for(loop.run(), 5)

    try:
        asyncio.run(run())
    except ValueError as error:
        assert str(error) == "a bug"
    else:
        raise AssertionError("the driver went on")
