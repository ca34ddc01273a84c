"""What jobs are called for people: two of one name with different files are told apart by their digest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard

SHORT = 6
"""Hex digits of a digest that people are shown: two jobs of one name are never alike in them."""


def apart(name: str, digest: str) -> str:
    """Return ``NAME@1a2b3c``: what a job is called beside others of its name; the same on every node."""
    return f"{name}@{digest[:SHORT]}"


def labels(cards: Iterable[JobCard]) -> dict[RunId, str]:
    """Return what each run's job is called: its name, or `apart` while another job of that name goes on."""
    cards = tuple(cards)
    going: dict[str, set[str]] = {}
    for card in cards:
        if not card.state.ended:
            going.setdefault(card.name, set()).add(card.digest)
    return {
        card.run_id: apart(card.name, card.digest)
        if not card.state.ended and len(going[card.name]) > 1
        else card.name
        for card in cards
    }


def called(cards: Iterable[JobCard], word: str) -> Sequence[JobCard]:
    """Return the runs that a person may mean by ``word``: a run id, a name, or a name told `apart`."""
    return [card for card in cards if word in (card.run_id, card.name, apart(card.name, card.digest))]
