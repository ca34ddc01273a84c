"""Trainers that misbehave on purpose: what the supervisor must survive. Arguments: MODE FD."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

from daisychain.core.orders import LoadRun, Order, Ping, Shutdown
from daisychain.core.reports import Phase, Pong, Report, RunFinished
from daisychain.wire.codec import ORDER_CODEC, REPORT_CODEC
from daisychain.wire.frames import FrameReader, frame


def orders(pair: socket.socket) -> list[Order]:
    """Return the next orders; exits at the agent's end."""
    data = pair.recv(1 << 16)
    if not data:
        sys.exit(0)
    return [ORDER_CODEC.decode(payload) for payload in _frames.feed(data)]


_frames = FrameReader()


def say(pair: socket.socket, report: Report) -> None:
    """Send ``report``."""
    pair.sendall(frame(REPORT_CODEC.encode(report)))


def honest(pair: socket.socket, deaf: bool) -> None:
    """Answer pings; end at Shutdown unless ``deaf``; write down the environment."""
    while True:
        for order in orders(pair):
            match order:
                case LoadRun():
                    with open("environment.json", "w") as file:  # noqa: PTH123 - the run folder is the cwd
                        json.dump(dict(os.environ), file)
                    print("loaded", order.job_name)
                    say(pair, RunFinished(order.run_id, 3, 2))
                case Ping():
                    say(pair, Pong(order.seq, Phase.IDLE, 0.0, 0.0))
                case Shutdown() if not deaf:
                    print("ending:", order.reason)
                    return
                case _:
                    pass


def main() -> None:
    """Do what MODE says."""
    mode, pair = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    match mode:
        case "honest":
            honest(pair, deaf=False)
        case "deaf":
            honest(pair, deaf=True)
        case "garbage":
            orders(pair)
            pair.sendall(b"\xff" * 4096)
            time.sleep(600)
        case "not_a_report":
            orders(pair)
            pair.sendall(frame(b"hello"))
            time.sleep(600)
        case "half_frame":
            orders(pair)
            pair.sendall(b"\x00\x00\xff\xff" + b"x")
            pair.close()
            time.sleep(600)
        case "crash":
            orders(pair)
            print("about to crash")
            sys.exit(7)
        case "killed":
            orders(pair)
            os.kill(os.getpid(), signal.SIGKILL)
        case "worker":
            child = subprocess.Popen(["sleep", "600"])
            print("worker", child.pid, flush=True)
            honest(pair, deaf=False)
        case "chatty":
            line = "x" * 1000 + "\n"
            for _ in range(2000):
                sys.stdout.write(line)
            sys.stdout.flush()
            honest(pair, deaf=False)
        case "reads_nothing":
            time.sleep(600)


if __name__ == "__main__":
    main()
