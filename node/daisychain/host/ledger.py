"""The job ledger: which runs began and how they ended, so that none is run again unasked."""

from __future__ import annotations

from pathlib import Path

import msgspec

from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard
from daisychain.core.node import JOBS_MAX
from daisychain.errors import StorageError
from daisychain.host.storage import read_bounded, set_aside, write_atomically

LEDGER_MAX_CARDS = 4 * JOBS_MAX
"""Most runs remembered; the oldest are forgotten first, those that ended before any other."""

LEDGER_MAX_BYTES = 8 << 20
"""Largest ledger file accepted: LEDGER_MAX_CARDS with long reasons, with room to spare."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The ledger on disk."""

    version: int
    cards: list[JobCard]


class Ledger:
    """The runs that this node knows the beginning or the end of, kept in one JSON file.

    One thread may record while another reads: the cards are replaced as a whole.

    A damaged file is set aside and named in ``problem``: finished runs are then still known by the
    results in their folders, others may be run again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.problem = ""
        self._cards: dict[RunId, JobCard] = {}
        try:
            data = read_bounded(path, LEDGER_MAX_BYTES)
            if data is not None:
                file = msgspec.json.decode(data, type=_File)
                self._cards = {card.run_id: card for card in file.cards}
        except (StorageError, msgspec.DecodeError, UnicodeDecodeError) as error:
            aside = set_aside(path)
            self.problem = (
                f"the job ledger was damaged ({error}) and is kept as {aside}: "
                "runs that failed or were cancelled may be run again"
            )

    def cards(self) -> tuple[JobCard, ...]:
        """Return every remembered run, oldest submission first."""
        return tuple(sorted(self._cards.values(), key=lambda card: (card.submitted_at, card.run_id)))

    def card(self, run_id: RunId) -> JobCard | None:
        """Return what is remembered of this run."""
        return self._cards.get(run_id)

    def last_submission(self, digest: str) -> int:
        """Return the highest submission number known of the job with this digest; 0 when none is."""
        return max(
            (submission_of(card.run_id) for card in self._cards.values() if card.digest == digest), default=0
        )

    def record(self, card: JobCard) -> None:
        """Remember ``card`` on disk; an ended run never becomes unended. Raises `StorageError`."""
        known = self._cards.get(card.run_id)
        if known == card or (known is not None and known.state.ended and not card.state.ended):
            return
        self._cards = _without_oldest({**self._cards, card.run_id: card})
        file = _File(version=1, cards=list(self.cards()))
        write_atomically(self._path, msgspec.json.format(msgspec.json.encode(file), indent=1))


def _without_oldest(cards: dict[RunId, JobCard]) -> dict[RunId, JobCard]:
    """Return ``cards`` without the oldest beyond LEDGER_MAX_CARDS, ended runs first."""
    excess = len(cards) - LEDGER_MAX_CARDS
    order = sorted(cards.values(), key=lambda card: (not card.state.ended, card.submitted_at))
    gone = {card.run_id for card in order[: max(0, excess)]}
    return {run_id: card for run_id, card in cards.items() if run_id not in gone}


def run_id_of(digest: str, submission: int) -> RunId:
    """Return the run id of the ``submission``-th training of the job with this digest."""
    return RunId(f"{digest[:16]}-{submission}")


def submission_of(run_id: RunId) -> int:
    """Return the submission number in ``run_id``; 0 when there is none."""
    number = run_id.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
