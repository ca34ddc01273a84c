"""Converted tables on disk: made once, checked, found again by what they were made from.

An entry is a folder named by its key, with ``card.json`` and an array a file. It is written beside and
renamed when all of it is on the disk, so it is whole or absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from daisychain.errors import JobError
from daisychain.trainer.jobs.streaming.arrays import ArrayCard, forget_pages
from daisychain.trainer.jobs.streaming.budget import (
    STAGED,
    CacheBudget,
    entries,
    remove_leftovers,
    remove_unused,
)
from daisychain.trainer.jobs.streaming.lease import Lease
from daisychain.trainer.jobs.streaming.source import SourceFile
from daisychain.trainer.jobs.table_encoding import Encoding

log = logging.getLogger(__name__)

FORMAT = 1
"""Of the files and of what is in them: raised whenever the same table would be converted to other bytes."""

CARD_FILE = "card.json"
CARD_MAX_BYTES = 64 << 20
"""Largest card read (a hash of 34 bytes for each 4 MiB: tables of 8 TB): more is not ours."""

SPOT_CHECKS = 16
"""Blocks of each array compared with their hashes at every loading: the first, the last, others by chance.

All were compared when the entry was made, from the disk and not from memory. Doing so at each loading
would cost half a minute for 3 GB on an old disk, to find what disks find and tell themselves.
"""


class Conversion(msgspec.Struct, frozen=True):
    """What decides the converted bytes, besides the data.

    Attributes:
        target, task, ignore, validation, seed, dtype: of the job.
    """

    target: str
    task: str
    ignore: tuple[str, ...]
    validation: float
    seed: int
    dtype: str
    format: int = FORMAT

    def key(self, digest: str) -> str:
        """Return the name of the entry for the data with this digest."""
        return hashlib.sha256(digest.encode() + msgspec.json.encode(self)).hexdigest()[:40]


class PartCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One split of the rows."""

    inputs: ArrayCard
    targets: ArrayCard

    @property
    def arrays(self) -> tuple[ArrayCard, ArrayCard]:
        """Both."""
        return (self.inputs, self.targets)


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is known of an entry.

    Attributes:
        source: the data file as it was when its content had this digest.
        digest: sha256 of its content.
        notes: what was noticed while it was read and fitted.
    """

    conversion: Conversion
    source: SourceFile
    digest: str
    encoding: Encoding
    rows: int
    train: PartCard
    held_out: PartCard | None
    notes: tuple[str, ...]

    @property
    def arrays(self) -> tuple[ArrayCard, ...]:
        """Of both parts."""
        return self.train.arrays + (self.held_out.arrays if self.held_out is not None else ())


class Entry:
    """A converted table that is held: it stays while this object does."""

    def __init__(self, folder: Path, card: Card, lease: Lease) -> None:
        self.folder = folder
        self.card = card
        self._lease = lease

    def release(self) -> None:
        """Give it up."""
        self._lease.close()


class Cache:
    """The folder of converted tables."""

    def __init__(self, folder: Path, max_bytes: int, where: str) -> None:
        """``where`` names the data in errors. Raises `JobError` when the folder cannot be made."""
        self._folder = folder
        self.budget = CacheBudget(folder, max_bytes, where)
        self._where = where
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from None

    def find(self, data: Path, conversion: Conversion) -> Entry | None:
        """Return the table that was made so from ``data``, held; None when there is none.

        The data are read only when no entry was made from this very file as it is now.
        """
        remove_leftovers(self._folder)
        found = [entry for entry in entries(self._folder) if not entry.name.startswith(STAGED)]
        if not found:
            return None
        source = SourceFile.of(data)
        for folder in found:
            card = _read_card(folder)
            if card is not None and card.source == source and card.conversion == conversion:
                return self._hold(folder)
        key = conversion.key(source.digest(data))
        return self._hold(self._folder / key) if any(folder.name == key for folder in found) else None

    @contextlib.contextmanager
    def staged(self) -> Iterator[Path]:
        """Yield a folder to write an entry into; it is gone afterwards unless it was placed.

        Errors of the disk become `JobError`.
        """
        folder = self._folder / f"{STAGED}{secrets.token_hex(8)}"
        try:
            folder.mkdir(mode=0o700)
            lease = Lease.take(folder)
            try:
                yield folder
            finally:
                if lease is not None:
                    lease.close()
                shutil.rmtree(folder, ignore_errors=True)
        except OSError as error:
            raise self._unwritable(error) from None

    def place(self, staged: Path, card: Card) -> Entry:
        """Check every block that was written, name the entry and hold it; raises OSError or `JobError`."""
        folder = self._folder / card.conversion.key(card.digest)
        _write_card(staged, card)
        for array in card.arrays:
            _forget(staged / array.name)
            if not array.fits(staged) or not array.intact(staged, range(len(array.hashes))):
                raise JobError(
                    self._where,
                    f"the disk of {self._folder} does not give back what was written to it",
                    "Check the disk, or give the node another state folder.",
                )
        for _ in range(2):
            if folder.exists():
                remove_unused(folder)
            try:
                staged.rename(folder)
            except OSError:
                if not folder.exists():
                    raise
            entry = self._hold(folder)
            if entry is not None:
                return entry
        raise JobError(self._where, f"{folder} is damaged, and another process holds it", "End that process.")

    def _hold(self, folder: Path) -> Entry | None:
        """Return the entry when it is sound; a damaged one is removed."""
        lease = Lease.take(folder)
        if lease is None:
            return None
        card = _read_card(folder)
        if card is not None and _is_sound(folder, card):
            lease.touch()
            return Entry(folder, card, lease)
        lease.close()
        log.warning("the converted table %s is damaged: it is made anew", folder.name)
        remove_unused(folder)
        return None

    def _unwritable(self, error: OSError) -> JobError:
        return JobError(
            self._where,
            f"its rows do not fit into memory, and {self._folder} cannot be used: {error.strerror or error}",
            "Make room on the disk, or give the node another state folder.",
        )


def _write_card(folder: Path, card: Card) -> None:
    text = msgspec.json.encode(card)
    with (folder / CARD_FILE).open("wb") as file:
        file.write(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
        file.flush()
        os.fsync(file.fileno())
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_card(folder: Path) -> Card | None:
    """Return the card when it is whole and of this format."""
    try:
        with (folder / CARD_FILE).open("rb") as file:
            data = file.read(CARD_MAX_BYTES + 1)
    except OSError:
        return None
    digest, _, text = data.partition(b"\n")
    if len(data) > CARD_MAX_BYTES or hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    try:
        card = msgspec.json.decode(text, type=Card)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return card if card.conversion.format == FORMAT else None


def _is_sound(folder: Path, card: Card) -> bool:
    """Whether the files have the sizes that the card tells, and the blocks looked at their hashes."""
    try:
        for array in card.arrays:
            if "/" in array.name or not array.fits(folder):
                return False
            blocks = len(array.hashes)
            looked_at = {0, blocks - 1, *(secrets.randbelow(blocks) for _ in range(SPOT_CHECKS - 2))}
            if not array.intact(folder, sorted(looked_at)):
                return False
    except OSError as error:
        log.warning("the converted table %s cannot be read: %s", folder.name, error)
        return False
    return True


def _forget(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        forget_pages(descriptor)
    finally:
        os.close(descriptor)
