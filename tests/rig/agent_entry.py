"""``python -m rig.agent_entry --board PATH --node NAME --clock-offset S -- ...``: `daisychain` on the rig.

The real agent, but that its trainers are started by `trainer_entry`, and that its clock may be wrong.
"""

from __future__ import annotations

import argparse
import functools
import sys

from rig.clock import shift_clock


def main(arguments: list[str]) -> None:
    """Run ``daisychain`` with what follows ``--``."""
    ours, _, theirs = _parted(arguments)
    parser = argparse.ArgumentParser()
    parser.add_argument("--board", required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--clock-offset", type=float, default=0.0)
    options = parser.parse_args(ours)
    shift_clock(options.clock_offset)

    from daisychain import config
    from daisychain.cli.main import main as daisychain
    from daisychain.runtime.supervisor import SupervisorSettings

    command = (
        sys.executable,
        "-m",
        "rig.trainer_entry",
        options.board,
        options.node,
        str(options.clock_offset),
    )
    vars(config)["SupervisorSettings"] = functools.partial(SupervisorSettings, command=command)
    sys.argv = ["daisychain", *theirs]
    daisychain()


def _parted(arguments: list[str]) -> tuple[list[str], str, list[str]]:
    at = arguments.index("--")
    return arguments[:at], "--", arguments[at + 1 :]


if __name__ == "__main__":
    main(sys.argv[1:])
