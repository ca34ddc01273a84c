"""A gloo world is formed, ended from another thread, and formed again, in one process."""

from __future__ import annotations

import socket
import threading
import time

import psutil
import pytest
import torch

from daisychain.core.small_sums import SENT_MAX_BYTES, in_one_hop
from daisychain.errors import WorldError
from daisychain.trainer.engine.exchange import Pending
from daisychain.trainer.world.formation import Formation
from daisychain.trainer.world.group import FormedWorld
from daisychain.trainer.world.sockets import IN_FLIGHT_BYTES, open_sockets
from support.formed_worlds import each, form, formed, start
from support.waiting import until


def test_a_formed_world_sums_takes_maxima_gathers_and_passes_tensors() -> None:
    def act(world: FormedWorld) -> None:
        own = torch.full((5,), float(world.rank + 1), dtype=torch.float64)
        total, most = own.clone(), own.clone()
        pending: list[Pending] = [world.sum(total), world.max(most)]
        for each_pending in reversed(pending):
            each_pending.wait()
        assert total.tolist() == [6.0] * 5
        assert most.tolist() == [3.0] * 5
        assert [part[0].item() for part in world.gather(own)] == [1.0, 2.0, 3.0]
        for target in (0, 1):
            moved = own if world.rank in (2, target) else own.new_empty(0)
            world.move(moved, 2, target).wait()
        assert own[0].item() == 3.0

    with formed(1) as worlds:
        for future in each(worlds, act):
            future.result(timeout=10)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_a_sum_and_a_maximum_are_the_same_whichever_way_they_go(size: int, dtype: torch.dtype) -> None:
    """Around the size from which a tensor goes round the ring: equal values, equal bits on all ranks."""
    limit = SENT_MAX_BYTES // (size - 1) // dtype.itemsize
    shapes: list[tuple[int, ...]] = [(), (1,), (3, 5), (limit,), (limit + 1,)]
    rounding = 8_000 * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0

    def act(world: FormedWorld) -> list[torch.Tensor]:
        made = torch.Generator().manual_seed(world.rank)
        came = []
        for shape in shapes:
            own = (torch.randn(shape, generator=made, dtype=torch.float64) * 1000).to(dtype)
            total, most = own.clone(), own.clone()
            for pending in (world.sum(total), world.max(most)):
                pending.wait()
                pending.wait()  # once more changes nothing
            parts = torch.stack(world.gather(own))
            assert torch.allclose(total, parts.sum(0), rtol=0.0, atol=rounding), shape
            assert torch.equal(most, parts.amax(0)), shape
            came += [total, most]
        return came

    assert in_one_hop(torch.empty(limit, dtype=dtype).nbytes, size)
    assert not in_one_hop(torch.empty(limit + 1, dtype=dtype).nbytes, size)
    with formed(1, size=size) as worlds:
        came = [future.result(timeout=20) for future in each(worlds, act)]
    for of_all in zip(*came, strict=True):
        assert all(torch.equal(own, of_all[0]) for own in of_all)


def test_abort_ends_what_is_stuck_on_every_rank_and_everything_after_it() -> None:
    """Rank 2 never joins the sum; aborting rank 0 and 1 from here ends both within a fraction of a second."""

    def stuck(world: FormedWorld) -> float:
        tensor = torch.ones(2_000_000)
        with pytest.raises(WorldError, match="node 2 is silent"):
            world.sum(tensor).wait()
        out_at = time.monotonic()
        with pytest.raises(WorldError, match="node 2 is silent"):
            world.sum(tensor)
        return out_at

    with formed(1) as worlds:
        futures = each(worlds[:2], stuck)
        until(lambda: all(future.running() for future in futures), 5, "the sums to start")
        assert not any(future.done() for future in futures)
        aborted_at = time.monotonic()
        for world in worlds[:2]:
            world.abort("node 2 is silent")
        took_s = max(float(str(future.result(timeout=10))) for future in futures) - aborted_at
    print(f"stuck sums ended {1000 * took_s:.1f} ms after the abort")
    assert took_s < 0.5


def test_a_world_can_be_left_with_sums_under_way() -> None:
    with formed(1) as worlds:
        pending = [worlds[0].sum(torch.ones(1_000_000)) for _ in range(4)]
        started = time.monotonic()
        worlds[0].close()
        assert time.monotonic() - started < 2.0
        for each_pending in pending:
            with pytest.raises(WorldError):
                each_pending.wait()


def test_an_abort_shuts_only_its_own_world() -> None:
    with formed(1) as first, formed(2) as second:
        for world in first:
            world.abort("left")
        for future in each(second, lambda world: world.sum(torch.ones(10)).wait()):
            future.result(timeout=10)


def test_a_hundred_worlds_leave_nothing_behind() -> None:
    """Formed, used, broken in a sum and closed 120 times: sockets, threads and descriptors stay flat."""

    used = threading.Semaphore(0)

    def use(world: FormedWorld) -> None:
        world.sum(torch.ones(1000)).wait()
        used.release()
        if world.rank != 0:
            with pytest.raises(WorldError):
                world.sum(torch.ones(1000)).wait()

    def cycle(counter: int) -> None:
        worlds = form(counter)
        futures = each(worlds, use)
        for _ in worlds:
            assert used.acquire(timeout=10)
        for world in worlds:
            world.abort("next")
        for future in futures:
            future.result(timeout=10)
        for world in worlds:
            world.close()
        for world in worlds:
            world.release()

    process = psutil.Process()
    for counter in range(1, 21):  # what is allocated once and kept is allocated now
        cycle(counter)
    until(lambda: threading.active_count() < 12, 5, "pool threads to end")
    before = len(open_sockets()), process.num_fds(), process.num_threads()
    started = time.monotonic()
    for counter in range(21, 141):
        cycle(counter)
    print(f"a world formed, broken and closed: {1000 * (time.monotonic() - started) / 120:.1f} ms")
    until(lambda: process.num_threads() <= before[2], 5, "gloo's threads to end")
    after = len(open_sockets()), process.num_fds(), process.num_threads()
    assert after[0] <= before[0]
    assert after[1] <= before[1]


def test_a_member_that_vanishes_under_steady_traffic_frees_the_others() -> None:
    """gloo can lose track of a send whose connection is reset; whoever waits for it gets out all the same."""
    done = threading.Semaphore(0)

    def train(world: FormedWorld) -> float:
        with pytest.raises(WorldError):
            while True:
                pending = [world.sum(torch.ones(64)), world.sum(torch.ones(8))]
                for each_pending in pending:
                    each_pending.wait()
                done.release()
        return time.monotonic()

    slowest_s = 0.0
    for counter in range(1, 41):
        worlds = form(counter, size=3)
        futures = each(worlds, train)
        for _ in range(20 + counter):  # in the midst of it, at another moment each time
            assert done.acquire(timeout=5)
        gone_at = time.monotonic()
        worlds[2].abort("killed")
        worlds[2].release()  # what the kernel does for a killed process
        out_at = [float(str(future.result(timeout=10))) for future in futures]
        slowest_s = max(slowest_s, *(at - gone_at for at in out_at))
        for world in worlds:
            world.close()
            world.release()
    buried = sum(thread.name == "buried-world" for thread in threading.enumerate())
    print(f"slowest of 40: {slowest_s:.3f} s; gloo lost track {buried} times")
    assert slowest_s < 1.0
    until(lambda: all(thread.name != "buried-world" for thread in threading.enumerate()), 20, "burials")


def test_a_silent_member_holds_a_formation_up_to_its_deadline_and_not_the_next_one() -> None:
    slow = start(1, size=3, ranks=(0, 1), timeout_s=1.0)
    started = time.monotonic()
    with formed(2, size=2) as worlds:
        for future in each(worlds, lambda world: world.sum(torch.ones(10)).wait()):
            future.result(timeout=10)
        beside_s = time.monotonic() - started
        for formation in slow.formations:
            with pytest.raises(WorldError, match="in time"):
                formation.result()
    assert beside_s < 0.9
    assert time.monotonic() - started < 3.0


def test_a_newer_order_fails_whoever_waits_at_once() -> None:
    slow = start(1, size=3, ranks=(0, 1), timeout_s=60.0)
    started = time.monotonic()
    waiting = [threading.Thread(target=lambda f=formation: _fails(f)) for formation in slow.formations]
    for thread in waiting:
        thread.start()
    for formation in slow.formations:
        formation.abort("a newer plan came")
    for thread in waiting:
        thread.join(5)
        assert not thread.is_alive()
    assert time.monotonic() - started < 2.0


def _fails(formation: Formation) -> None:
    with pytest.raises(WorldError, match="a newer plan came"):
        formation.result()


def test_an_order_to_leave_that_comes_as_the_world_stands_is_not_lost() -> None:
    """The trainer has the world in hand, and the control thread still knows the formation only."""
    formations = start(1, size=2).formations
    worlds = [formation.result() for formation in formations]
    try:
        for formation in formations:
            formation.abort("a member is silent")
        for world in worlds:
            with pytest.raises(WorldError, match="a member is silent"):
                world.sum(torch.ones(3))
    finally:
        for world in worlds:
            world.close()
        for world in worlds:
            world.release()


def test_a_world_tells_when_data_last_came_while_a_sum_waits_and_after_it_ended() -> None:
    with formed(1, size=2) as worlds:
        for future in each(worlds, lambda world: world.sum(torch.ones(500_000)).wait()):
            future.result(timeout=10)
        assert all(_quiet_s(world) < 0.5 for world in worlds)
        (waiting,) = each(worlds[:1], lambda world: world.sum(torch.ones(500_000)).wait())
        until(lambda: all(_quiet_s(world) > 0.6 for world in worlds[:1]), 5, "data still comes")
        each(worlds[1:], lambda world: world.sum(torch.ones(500_000)).wait())[0].result(timeout=10)
        waiting.result(timeout=10)
        assert _quiet_s(worlds[0]) < 0.5
    assert worlds[0].quiet_s() is None


def _quiet_s(world: FormedWorld) -> float:
    quiet_s = world.quiet_s()
    assert quiet_s is not None
    return quiet_s


def test_no_more_of_a_sum_waits_in_the_kernel_than_a_slow_link_carries_soon() -> None:
    with formed(1, size=2) as worlds:
        copies = worlds[0]._connections._copies  # type: ignore[attr-defined]
        sizes = [copy.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) for copy in copies]
        assert set(sizes) == {IN_FLIGHT_BYTES}


def test_blobs_of_another_formation_are_refused() -> None:
    exchange = start(1, size=3, ranks=(0, 1), timeout_s=10.0)
    until(lambda: len(exchange.blobs) == 2, 5, "both blobs")
    exchange.formations[0].deliver((b"x" * 170, exchange.blobs[1], exchange.blobs[1]))
    with pytest.raises(WorldError, match="another blob for rank 0"):
        exchange.formations[0].result()
    exchange.formations[1].deliver((exchange.blobs[0], exchange.blobs[1]))
    with pytest.raises(WorldError, match="got 2 address blobs"):
        exchange.formations[1].result()


def test_a_world_of_one_needs_no_gloo_and_ends_when_aborted() -> None:
    formation = start(1, size=1).formations[0]
    before = open_sockets()
    world = formation.result()
    tensor = torch.ones(3)
    world.sum(tensor).wait()
    assert tensor.tolist() == [1.0] * 3
    assert open_sockets() == before
    world.abort("a node joined")
    with pytest.raises(WorldError, match="a node joined"):
        world.sum(tensor)
    world.close()
