"""The agent's log: one line a note, at most one a minute of each kind and source, bounded on disk."""

from __future__ import annotations

import logging
import logging.handlers
import sys
from pathlib import Path

from daisychain.core.effects import Level, Note

LOG_MAX_BYTES = 2 << 20
"""Size at which agent.log is turned over; two are kept."""

KEYS_MAX = 4096
"""Most kinds and sources of notes remembered: bounds what a flood of strangers can make us hold."""

REPEAT_S = 60.0
"""A note with the same key is written at most this often."""

_LEVELS = {
    Level.DEBUG: logging.DEBUG,
    Level.INFO: logging.INFO,
    Level.WARNING: logging.WARNING,
    Level.ERROR: logging.ERROR,
}

log = logging.getLogger("daisychain.chain")


class NoteLog:
    """Writes notes; counts what it held back and says so with the next of its kind."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}

    def write(self, note: Note, now: float) -> None:
        """Write ``note`` unless one with its key was written within REPEAT_S; ``now``: monotonic."""
        held_back = 0
        if note.key:
            last = self._last.get(note.key)
            if last is not None and now - last[0] < REPEAT_S:
                self._last[note.key] = (last[0], last[1] + 1)
                return
            held_back = last[1] if last is not None else 0
            if len(self._last) >= KEYS_MAX:
                self._last = {key: value for key, value in self._last.items() if now - value[0] < REPEAT_S}
            if len(self._last) < KEYS_MAX:
                self._last[note.key] = (now, 0)
        more = f" ({held_back} more like this since)" if held_back else ""
        log.log(_LEVELS[note.level], "%s%s", one_line(note.text), more)


def one_line(text: str) -> str:
    """Return ``text`` with line breaks and control characters shown, so that nobody can forge a line."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def start_logging(file: Path | None, level: str) -> None:
    """Send log lines to stderr and, bounded, to ``file``. ``level``: a name as in `logging`."""
    form = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s")
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if file is not None:
        handlers.append(
            logging.handlers.RotatingFileHandler(file, maxBytes=LOG_MAX_BYTES, backupCount=1, delay=True)
        )
    root = logging.getLogger()
    for handler in handlers:
        handler.setFormatter(form)
        root.addHandler(handler)
    root.setLevel(level.upper())
    logging.getLogger("aiohttp").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.getLogger("zeroconf").setLevel(logging.ERROR)
