"""What this node cannot write at the moment: its disk is full, or failing. Training goes on meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from daisychain.errors import DaisyChainError

log = logging.getLogger(__name__)


class Trouble:
    """Tells each spell of trouble once when it begins and once when it is over. Any thread."""

    def __init__(self, tell: Callable[[str], None] = lambda text: None) -> None:
        """``tell`` is given what cannot be written, with the remedy, whenever that changes; "" if nothing."""
        self._tell = tell
        self._lock = threading.Lock()
        self._met: dict[str, str] = {}

    def met(self, what: str, error: DaisyChainError) -> None:
        """Take note that ``what`` could not be written; told unless it is known already."""
        with self._lock:
            if what in self._met:
                return
            self._met[what] = f"{what} are not written: {error}"
            log.warning("%s; training goes on", self._met[what])
            self._tell("; ".join(self._met.values()))

    def over(self, what: str) -> None:
        """Take note that ``what`` was written; told when it could not be before."""
        with self._lock:
            if self._met.pop(what, None) is None:
                return
            log.info("%s are written again", what)
            self._tell("; ".join(self._met.values()))
