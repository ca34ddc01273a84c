"""Every way in which a command is asked to end, and blocks that are not left halfway."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from daisychain.cli.interrupts import any_end_is_ctrl_c, held_off

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Have the three signals do what they do in a fresh process."""
    before = {number: signal.getsignal(number) for number in ENDS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDS)
def test_an_end_that_comes_in_a_block_comes_once_after_it(number: signal.Signals) -> None:
    done = 0
    with any_end_is_ctrl_c():
        with pytest.raises(KeyboardInterrupt), held_off():
            signal.raise_signal(number)
            signal.raise_signal(number)
            done += 1
        with held_off():  # nothing is left over
            done += 1
    assert done == 2


def test_blocks_within_blocks_end_with_the_outermost() -> None:
    done = 0
    with pytest.raises(KeyboardInterrupt), held_off():
        with held_off():
            signal.raise_signal(signal.SIGINT)
        done += 1
    assert done == 1


def test_a_block_leaves_the_handlers_as_they_were() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # under nohup
    with held_off():
        signal.raise_signal(signal.SIGHUP)
    assert [signal.getsignal(number) for number in ENDS] == [
        signal.default_int_handler,
        signal.SIG_DFL,
        signal.SIG_IGN,
    ]


def test_an_error_in_a_block_is_not_hidden() -> None:
    with pytest.raises(ValueError, match="boo"), held_off():
        raise ValueError("boo")
