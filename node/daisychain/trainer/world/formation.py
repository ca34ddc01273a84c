"""One attempt to form a world, in a thread of its own, under a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from daisychain.core.world import WorldPlan
from daisychain.errors import WorldError
from daisychain.trainer.world.group import FormedWorld, GroupSettings, SoloWorld, Waiting, World, gloo_words
from daisychain.trainer.world.sockets import open_sockets
from daisychain.trainer.world.store import BlobStore

ALONE = b"alone"
"""The blob of a world of one: nobody connects, but the coordinator waits for a blob of every member."""


class Formation:
    """An attempt at ``plan``, under way from `start` on.

    ``publish`` is called with this rank's blob, from the attempt's thread; `deliver` and `abort` may be
    called from any thread. Past ``deadline_at`` (monotonic seconds), or once aborted, the attempt is
    abandoned: its thread ends by gloo's own timeout and drops whatever it still makes.
    """

    def __init__(
        self,
        plan: WorldPlan,
        rank: int,
        deadline_at: float,
        publish: Callable[[bytes], None],
        settings: GroupSettings,
        waiting: Waiting = nullcontext,
    ) -> None:
        self.generation = plan.generation
        self._plan = plan
        self._rank = rank
        self._deadline_at = deadline_at
        self._settings = settings
        self._waiting = waiting
        self._publish = publish
        self._store = BlobStore(rank, plan.world_size, deadline_at, publish)
        self._changed = threading.Condition()
        self._world: FormedWorld | None = None
        self._failure = ""

    def start(self) -> None:
        """Begin; call once."""
        if self._plan.world_size == 1:
            self._publish(ALONE)
            self._world = SoloWorld(self._plan)
        else:
            name = f"form-{self.generation}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def deliver(self, blobs: tuple[bytes, ...]) -> None:
        """Take every rank's blob, in rank order."""
        self._store.deliver(blobs)

    def abort(self, reason: str) -> None:
        """End the attempt, at once: `result` raises ``reason``, or whatever is tried in its world does."""
        with self._changed:
            world = self._world
            if world is None:
                self._failure = self._failure or reason
            self._changed.notify_all()
        if world is not None:  # formed a moment ago: an order to leave it must not be lost
            world.abort(reason)
        self._store.fail(reason)

    def quiet_s(self) -> None:
        """Return None: data comes once the world stands."""
        return

    def result(self) -> FormedWorld:
        """Return the world once it stands; raises `WorldError`, and then the attempt is abandoned."""
        with self._changed:
            while not self._failure:
                if self._world is not None:
                    return self._world
                left_s = self._deadline_at - time.monotonic()
                if left_s <= 0:
                    self._failure = "the world did not form in time: a member is silent or out of reach"
                    break
                self._changed.wait(left_s)
            reason = self._failure
        self._store.fail(reason)
        raise WorldError(reason)

    def _run(self) -> None:
        """Form the group; hand it over, or drop it when nobody wants it any more."""
        before = open_sockets()
        holder: list[Any] = []
        failure = ""
        try:
            holder.append(self._make())
        except (RuntimeError, ValueError, WorldError) as error:
            failure = gloo_words(error)
        owned = open_sockets() - before
        with self._changed:
            if holder and not self._failure:
                world = World(self._plan, self._rank, holder.pop(), owned, self._settings, self._waiting)
                self._world = world
            else:
                self._failure = self._failure or failure
            self._changed.notify_all()
        holder.clear()  # an abandoned group has no work under way: dropping it is safe

    def _make(self) -> Any:
        """Return the formed gloo group. Called once; blocks in the store and in gloo's connects."""
        left_s = max(0.1, self._deadline_at - time.monotonic())
        options: Any = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined] # the only way to name a device
        options._timeout = timedelta(seconds=left_s)
        host = self._plan.members[self._rank].host
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
        group = dist.ProcessGroupGloo(self._store, self._rank, self._plan.world_size, options)
        group._set_default_timeout(timedelta(seconds=self._settings.collective_s))
        return group
