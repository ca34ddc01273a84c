"""``python -m daisychain.trainer FD``: the trainer process; FD is its end of the agent's socket pair.

Exit codes: 0 after Shutdown, 1 for an error that the log tells, 2 for a wrong call, 3 when the agent is gone.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from typing import NoReturn

from daisychain.core.orders import LoadRun, Order, Shutdown
from daisychain.errors import ProtocolError
from daisychain.trainer.compiler import postpone
from daisychain.trainer.control import Control, Desk
from daisychain.trainer.link import AgentGoneError, AgentLink
from daisychain.trainer.phases import PhaseClock
from daisychain.trainer.sandbox.confine import confine
from daisychain.trainer.sandbox.memory_limit import limit_memory

log = logging.getLogger(__name__)

EXIT_DONE, EXIT_ERROR, EXIT_USAGE, EXIT_ORPHAN = 0, 1, 2, 3

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Serve the agent at the file descriptor in ``arguments``; return the exit code."""
    if len(arguments) != 1 or not arguments[0].isdecimal():
        sys.stderr.write("The agent starts this program; it wants the number of a socket.\n")
        return EXIT_USAGE
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the agent, which ends this process in order
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    link, desk, phases = AgentLink(int(arguments[0])), Desk(), PhaseClock()
    orders = link.orders()
    first = await_load(orders)
    if first is None:
        return EXIT_DONE
    bind(first)
    desk.take(first)
    Control(link, orders, desk, phases, end_orphaned).start()
    postpone()
    # Imported with the control thread already answering: torch takes seconds.
    from daisychain.trainer.loop import Trainer

    trainer = Trainer(link, desk, phases)
    if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
        os.register_at_fork(after_in_child=trainer.let_go_in_child)
    try:
        trainer.serve()
    except AgentGoneError as error:
        end_orphaned(str(error))
    except Exception:
        traceback.print_exc()
        return EXIT_ERROR
    return EXIT_DONE


def await_load(orders: Iterator[Order]) -> LoadRun | None:
    """Return the run to load: the first that an agent says; None when it says to end instead."""
    try:
        for order in orders:
            match order:
                case LoadRun():
                    return order
                case Shutdown():
                    return None
                case _:
                    pass  # nothing else has a meaning before there is a run
    except ProtocolError as error:
        end_orphaned(str(error))
    end_orphaned("the agent is gone")


def bind(order: LoadRun) -> None:
    """Confine the process to its run. Now: with the first thread or import of torch it would be too late."""
    if order.memory_max_bytes:
        limit_memory(order.memory_max_bytes)
    began_at = time.monotonic()
    confined = confine(order)
    took_ms = 1000 * (time.monotonic() - began_at)
    if confined.abi:
        told = "confined to the run in %.1f ms (Landlock %d, %d rules)"
        log.info(told, took_ms, confined.abi, confined.rules)
    else:
        log.info("not confined: this kernel has no Landlock, so job code may do what this user may")
    for note in confined.notes:
        log.warning("%s", note)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies (Linux); elsewhere the socket's end must do."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_orphaned(reason: str) -> NoReturn:
    """End the process from any thread, at once: without an agent nobody knows of it."""
    sys.stderr.write(f"the trainer ends: {reason}\n")
    end(EXIT_ORPHAN)


def end(code: int) -> NoReturn:
    """End without waiting for threads: abandoned formations may still sit in gloo."""
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    end(main(sys.argv[1:]))
