"""``python -m rig.agent_entry --board PATH --node NAME ... -- ARGUMENTS``: `daisychain` on the rig.

The real agent, but that its trainers are started by `trainer_entry`, and that its clock may be wrong.
"""

from __future__ import annotations

import argparse
import functools
import sys

from rig.clock import shift_clock


def main(arguments: list[str]) -> None:
    """Run ``daisychain`` with what follows ``--``."""
    at = arguments.index("--")
    ours, theirs = arguments[:at], arguments[at + 1 :]
    parser = argparse.ArgumentParser()
    parser.add_argument("--board", required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--clock-offset", type=float, default=0.0)
    parser.add_argument("--checkpoint-every", type=float, default=0.0)
    options = parser.parse_args(ours)
    shift_clock(options.clock_offset)

    from daisychain import config
    from daisychain.cli.main import main as daisychain
    from daisychain.runtime.supervisor import SupervisorSettings

    told = (options.board, options.node, str(options.clock_offset), str(options.checkpoint_every))
    command = (sys.executable, "-m", "rig.trainer_entry", *told)
    vars(config)["SupervisorSettings"] = functools.partial(SupervisorSettings, command=command)
    sys.argv = ["daisychain", *theirs]
    daisychain()


if __name__ == "__main__":
    main(sys.argv[1:])
