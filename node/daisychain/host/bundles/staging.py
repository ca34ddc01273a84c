"""A bundle on its way in: chunks verified as they come, kept over restarts, placed whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from daisychain.core.manifest import BUNDLE_LIMITS, CHUNK_BYTES, Manifest, check_manifest, folders_of
from daisychain.core.names import check_job_name, shown
from daisychain.errors import BundleError, StorageError
from daisychain.host.bundles.below import (
    FILE_MODE,
    FOLDER_MODE,
    folder_below,
    is_own_file,
    opened,
    remove,
    writable,
)
from daisychain.host.bundles.reading import BundlePlace, FileStamp, read_chunk
from daisychain.host.job_listing import list_job
from daisychain.host.storage import make_folder, sync_folder

BESIDE = ".daisychain-incoming"
"""Where a bundle is put together when the state folder is on another disk: hidden, so no job."""

_MOVED_AWAY = re.compile(r"\.(.+)-old-[0-9a-f]{16}", re.DOTALL)
"""The name that `_move_away` gives."""

SYNCED_ALONE_MAX = 64
"""Up to so many files are made durable one by one, beyond that the whole disk's caches are written."""


class Staging:
    """One bundle in ``incoming/``, in a folder with its digest's name.

    Its methods take time: call them in a thread, one at a time.

    What lies there from an earlier life is read and hashed again: a record of it could be damaged or
    forged, a hash cannot. Nobody else may write there; what somebody plants there all the same (links,
    devices, second names of other files) is removed and never written through, and a file that somebody
    else changed is hashed again.
    """

    def __init__(self, incoming: Path, manifest: Manifest) -> None:
        """Take up what is there. Raises `BundleError` for a bad manifest, `StorageError`."""
        check_manifest(manifest)
        self.digest = manifest.digest
        self.folder = incoming / self.digest
        self._root = incoming.parent
        self._way = f"{incoming.name}/{self.digest}"
        self._manifest = manifest
        try:
            make_folder(self._root)
            with folder_below(self._root, self._way.split("/"), make=True):
                pass
            self._stamps: list[FileStamp | None] = [None] * len(manifest.files)
            self._have = [self._verified(index) for index in range(len(manifest.files))]
        except OSError as error:
            raise _no_room(self.folder, error) from None

    def missing(self) -> tuple[tuple[int, int], ...]:
        """Return every (file, chunk) that is not here yet, in order."""
        return tuple(place for place in self._manifest.chunks() if not self._have[place[0]][place[1]])

    @property
    def present_bytes(self) -> int:
        """Bytes that are here and verified."""
        chunks, size = self._manifest.chunks(), self._manifest.chunk_size
        return sum(size(file, chunk) for file, chunk in chunks if self._have[file][chunk])

    def put(self, file: int, chunk: int, data: bytes) -> None:
        """Keep a chunk that came from somebody.

        Raises `BundleError` when it is not what the manifest says, IndexError when there is no such chunk,
        `StorageError` when it cannot be written.
        """
        size_bytes, entry = self._manifest.chunk_size(file, chunk), self._manifest.files[file]
        if len(data) != size_bytes or hashlib.sha256(data).digest() != entry.chunks[chunk]:
            raise BundleError(shown(entry.name), f"chunk {chunk} came with other contents than its hash says")
        if self._have[file][chunk]:
            return
        try:
            with writable(self._root, f"{self._way}/{entry.name}") as descriptor:
                self._still(file, descriptor)
                at, rest = chunk * CHUNK_BYTES, memoryview(data)
                while rest:
                    written = os.pwrite(descriptor, rest, at)
                    at, rest = at + written, rest[written:]
                self._stamps[file] = FileStamp.of(os.fstat(descriptor))
        except OSError as error:
            raise _no_room(self.folder / entry.name, error) from None
        self._have[file][chunk] = True

    def place(
        self,
        folder: Path,
        name: str,
        replace: bool = False,
        about_to: Callable[[os.stat_result], None] | None = None,
    ) -> Path:
        """Rename the whole bundle to ``folder/name``, in the name of that folder's owner; return the path.

        It is there as a whole and durable, or not at all. When the very same bundle is there already it is
        left as it is. Anything else there is left too, and `BundleError` raised; or, with ``replace``, moved
        away first and then removed. ``about_to`` is told of the folder just before it is renamed. Raises
        `BundleError` when chunks are missing or the name may not be, `StorageError`.
        """
        check_job_name(name)
        if self.missing():
            raise BundleError(shown(name), f"{len(self.missing())} chunks of it are still missing")
        target = folder / name
        if os.path.lexists(target) and self._is_at(target):
            self.discard()
            return target
        try:
            self._finish(folder)
            old = _move_away(folder, name) if replace else None
            try:
                facts = self.folder.lstat()
                if about_to is not None:
                    about_to(facts)
                if os.path.lexists(target):
                    raise BundleError(
                        shown(name), f"{target} is there already and is another one", "Rename one of the two"
                    )
                self.folder.rename(target)
                if not stat.S_ISDIR(target.lstat().st_mode) or target.lstat().st_ino != facts.st_ino:
                    target.rename(self.folder)
                    raise BundleError(shown(name), "somebody put another thing in its place")
            except BaseException:
                if old is not None:
                    old.rename(target)
                raise
            if old is not None:
                with contextlib.suppress(OSError), folder_below(folder, ()) as here:
                    remove(old.name, here)
            sync_folder(folder)
            sync_folder(self.folder.parent)
        except OSError as error:
            if error.errno == errno.EXDEV and self.folder.parent.name != BESIDE:
                return self._place_from_beside(folder, name, replace, about_to)
            raise _no_room(target, error) from None
        return target

    def discard(self) -> None:
        """Remove what is here."""
        with contextlib.suppress(OSError), folder_below(self._root, self._way.split("/")[:-1]) as incoming:
            remove(self.digest, incoming)

    def _verified(self, index: int) -> list[bool]:
        """Return which chunks of a file are here and right."""
        entry = self._manifest.files[index]
        have = [False] * len(entry.chunks)
        with contextlib.suppress(OSError), opened(self._root, f"{self._way}/{entry.name}") as file:
            if not is_own_file(os.fstat(file)):
                return have
            self._stamps[index] = FileStamp.of(os.fstat(file))
            for chunk, expected in enumerate(entry.chunks):
                data = os.pread(file, self._manifest.chunk_size(index, chunk), chunk * CHUNK_BYTES)
                if not data:
                    break
                have[chunk] = hashlib.sha256(data).digest() == expected
        return have

    def _still(self, index: int, file: int) -> None:
        """Hash the open file again when it is not as this object left it."""
        if FileStamp.of(os.fstat(file)) != self._stamps[index]:
            self._have[index] = self._verified(index)

    def _finish(self, folder: Path) -> None:
        """Make the tree exactly the manifest's: empty files, modes, owner, nothing besides; and durable.

        Raises `BundleError` when a file is no longer whole, OSError.
        """
        owner = folder.stat()
        alone = len(self._manifest.files) <= SYNCED_ALONE_MAX
        for index, entry in enumerate(self._manifest.files):
            with writable(self._root, f"{self._way}/{entry.name}") as file:
                self._still(index, file)
                if not all(self._have[index]):
                    raise BundleError(shown(entry.name), "somebody changed it before it was whole")
                os.ftruncate(file, entry.size_bytes)
                os.fchmod(file, FILE_MODE)
                _give(file, owner)
                if alone:
                    os.fsync(file)
                self._stamps[index] = FileStamp.of(os.fstat(file))
        expected = {entry.name for entry in self._manifest.files} | folders_of(self._manifest)
        for top, inner, plain, here in os.fwalk(self.folder, follow_symlinks=False):
            way = Path(top).relative_to(self.folder)
            for name in [*inner, *plain]:
                if (way / name).as_posix() not in expected:
                    remove(name, here)
            inner[:] = [name for name in inner if (way / name).as_posix() in expected]
            os.fchmod(here, FOLDER_MODE)
            _give(here, owner)
            if alone:
                os.fsync(here)
        if not alone:
            os.sync()

    def _is_at(self, target: Path) -> bool:
        """Whether ``target`` holds this very bundle."""
        if target.is_symlink() or not target.is_dir():
            return False
        there = list_job(target, BUNDLE_LIMITS.files_max)
        if [(file.name, file.stamp.size_bytes) for file in there.files] != [
            (entry.name, entry.size_bytes) for entry in self._manifest.files
        ]:
            return False
        try:
            for place in self._manifest.chunks():
                read_chunk(BundlePlace(target), self._manifest, *place)
        except BundleError:
            return False
        return not there.problem

    def _place_from_beside(
        self, folder: Path, name: str, replace: bool, about_to: Callable[[os.stat_result], None] | None
    ) -> Path:
        """Place from a copy on the jobs folder's own disk: a rename does not cross disks."""
        beside = Staging(folder / BESIDE, self._manifest)
        try:
            for file, chunk in beside.missing():
                beside.put(file, chunk, read_chunk(BundlePlace(self.folder), self._manifest, file, chunk))
            placed = beside.place(folder, name, replace, about_to)
        finally:
            beside.discard()
            with contextlib.suppress(OSError):
                (folder / BESIDE).rmdir()
        self.discard()
        return placed


def clean_incoming(incoming: Path, keep: frozenset[str]) -> None:
    """Remove whatever lies in ``incoming`` but the bundles with a digest to ``keep``."""
    with contextlib.suppress(OSError), folder_below(incoming.parent, [incoming.name]) as here:
        for name in os.listdir(here):  # noqa: PTH208 (of a descriptor)
            if name not in keep:
                with contextlib.suppress(OSError):
                    remove(name, here)


def sweep_moved_away(folder: Path) -> None:
    """Undo what a crash left of a replacement in ``folder``: a thing that was moved away has its place again.

    Where the new one came there meanwhile, the old one is removed. Never raises: it is tried at each start.
    """
    with contextlib.suppress(OSError), folder_below(folder, ()) as here:
        for name in os.listdir(here):  # noqa: PTH208 (of a descriptor)
            moved = _MOVED_AWAY.fullmatch(name)
            if moved is None:
                continue
            with contextlib.suppress(OSError):
                if os.path.lexists(folder / moved[1]):
                    remove(name, here)
                else:
                    os.rename(name, moved[1], src_dir_fd=here, dst_dir_fd=here)


def _give(descriptor: int, owner: os.stat_result) -> None:
    """Give a file to the jobs folder's owner, where this user may."""
    facts = os.fstat(descriptor)
    if (facts.st_uid, facts.st_gid) != (owner.st_uid, owner.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _move_away(folder: Path, name: str) -> Path | None:
    """Rename what has this name; return its new name, or None when there was nothing."""
    old = folder / f".{name}-old-{secrets.token_hex(8)}"
    try:
        (folder / name).rename(old)
    except FileNotFoundError:
        return None
    return old


def _no_room(path: Path, error: OSError) -> StorageError:
    remedy = (
        "Make room on the disk."
        if error.errno in (errno.ENOSPC, errno.EDQUOT)
        else "Check the folder's permissions and the disk."
    )
    return StorageError(f"{path} cannot be written: {error.strerror or error}", remedy)
