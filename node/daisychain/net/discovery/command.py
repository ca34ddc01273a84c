"""Running another program, bounded in time and in what it may print."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import dataclass

from daisychain.errors import NetworkError

END_S = 2.0
"""A killed program is gone within milliseconds; nothing waits longer for it."""


class CommandMissingError(NetworkError):
    """The program is not installed, or this user may not run it."""


class CommandHungError(NetworkError):
    """The program did not end within its time."""


class CommandFloodError(NetworkError):
    """The program printed more than it may."""


@dataclass(frozen=True, slots=True)
class CommandBounds:
    """Most seconds that a program may take and most bytes that it may print on each stream."""

    timeout_s: float
    output_bytes_max: int


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a program ended. ``code``: its exit code; minus the signal that ended it."""

    code: int
    output: str
    complaint: str


async def run_command(arguments: tuple[str, ...], bounds: CommandBounds) -> CommandResult:
    """Return how the program ended, its output and its complaints kept apart.

    Raises CommandMissingError, CommandHungError or CommandFloodError; in the latter two it and all that it
    started have been killed. The caller says what that means.
    """
    program = arguments[0]
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            process_group=0,  # its own children are killed with it; the session stays ours
        )
    except FileNotFoundError:
        raise CommandMissingError(f"the program {program!r} is not installed") from None
    except OSError as error:
        raise CommandMissingError(f"the program {program!r} cannot be run: {error.strerror}") from None
    if process.stdout is None or process.stderr is None:
        raise AssertionError("both streams were asked for")
    reads = asyncio.gather(
        _read_bounded(process.stdout, bounds.output_bytes_max, program),
        _read_bounded(process.stderr, bounds.output_bytes_max, program),
    )
    try:
        async with asyncio.timeout(bounds.timeout_s):
            output, complaint = await reads
            code = await process.wait()
    except TimeoutError:
        raise CommandHungError(f"{program!r} did not end within {bounds.timeout_s:g} s") from None
    finally:
        if process.returncode is None:
            _kill(process)
            reads.cancel()
            await asyncio.gather(reads, return_exceptions=True)
            await _see_off(process)
    return CommandResult(code, output.decode("utf-8", "replace"), complaint.decode("utf-8", "replace"))


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


async def _see_off(process: asyncio.subprocess.Process) -> None:
    """Wait for a killed process; what it printed is read and dropped, for asyncio waits until it was.

    Bounded, should something that it started have left its session and hold the streams open.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            for stream in (process.stdout, process.stderr):
                while stream is not None and await stream.read(65536):
                    pass
            await process.wait()


async def _read_bounded(stream: asyncio.StreamReader, bytes_max: int, program: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await stream.read(65536):
        size += len(part)
        if size > bytes_max:
            raise CommandFloodError(f"{program!r} printed more than {bytes_max} bytes")
        parts.append(part)
    return b"".join(parts)
