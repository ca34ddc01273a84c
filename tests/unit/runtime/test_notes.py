"""The log: once a minute a kind, one line a note."""

from __future__ import annotations

import pytest

from daisychain.core.effects import Level, Note
from daisychain.runtime.notes import KEYS_MAX, NoteLog, one_line


def test_a_repeated_note_is_written_once_a_minute_with_its_count(caplog: pytest.LogCaptureFixture) -> None:
    notes = NoteLog()
    with caplog.at_level("INFO"):
        for second in range(59):
            notes.write(Note(Level.WARNING, "no key", "refused:10.0.0.9"), float(second))
        notes.write(Note(Level.WARNING, "no key", "refused:10.0.0.8"), 59.0)
        notes.write(Note(Level.WARNING, "no key", "refused:10.0.0.9"), 60.0)
        notes.write(Note(Level.INFO, "said always"), 60.0)
        notes.write(Note(Level.INFO, "said always"), 60.0)
    assert caplog.messages == [
        "no key",
        "no key",
        "no key (58 more like this since)",
        "said always",
        "said always",
    ]


def test_a_flood_of_sources_cannot_fill_the_memory() -> None:
    notes = NoteLog()
    for number in range(KEYS_MAX + 100):
        notes.write(Note(Level.DEBUG, "x", f"source {number}"), 0.0)
    assert len(notes._last) == KEYS_MAX


def test_nobody_can_forge_a_line() -> None:
    assert one_line("a\nERROR forged \x1b[31m") == "a\\nERROR forged \\x1b[31m"
