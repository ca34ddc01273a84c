"""Small secret files: written whole or not at all, readable by their owner alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from daisychain.errors import IdentityError

SECRET_MAX_BYTES = 16_384
"""Largest secret file read: stops a wrong path (a disk image, a device) from filling the memory."""

_OTHERS = 0o007

CONTAINER_SECRETS = Path("/run/secrets")
"""Where a container finds its secrets. No other user is in there, and Docker Desktop shows every file of a
Windows disk as open to all, so that permission bits say nothing."""


def read_secret(path: Path, what: str) -> str:
    """Return the text of the secret file ``path``.

    ``what`` names it in errors. Raises `IdentityError` when it is missing, unreadable, too large,
    no UTF-8 text, or open to every user of the machine (group access is left to the owner: it is
    how a container shares a file with its host; so is what lies in CONTAINER_SECRETS).
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & _OTHERS and path.parent != CONTAINER_SECRETS:
                raise IdentityError(
                    f"{what} {path} is open to every user of this machine (mode {mode & 0o777:03o})",
                    f"Run `chmod 600 {path}`; if others had access to this machine, make a new one.",
                )
            data = file.read(SECRET_MAX_BYTES + 1)
    except FileNotFoundError:
        raise IdentityError(
            f"there is no {what} at {path}",
            "`daisychain key new` makes a cluster key, `daisychain key join` takes another node's.",
        ) from None
    except OSError as error:
        raise IdentityError(
            f"{what} {path} cannot be read ({error.strerror})", f"Check who owns {path.parent}."
        ) from None
    if len(data) > SECRET_MAX_BYTES:
        raise IdentityError(
            f"{what} {path} is over {SECRET_MAX_BYTES} bytes: this is another file", "Check the path."
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise IdentityError(
            f"{what} {path} is not text: it is damaged or another file",
            "Check the path, or replace the file.",
        ) from None


def write_secret(path: Path, text: str, what: str, *, replace: bool = True) -> bool:
    """Write ``text`` to ``path`` with mode 0600, atomically and durably; return whether it was written.

    With ``replace`` false an existing file is left as it is and False returned: of two processes
    that both create it, one wins and the other reads the winner's. Missing folders are made with
    mode 0700. Raises `IdentityError` when the disk refuses.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                temporary.replace(path)
            else:
                try:
                    path.hardlink_to(temporary)
                except FileExistsError:
                    return False
        finally:
            temporary.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise IdentityError(
            f"{what} {path} cannot be written ({error.strerror})",
            f"Check the space and the owner of {path.parent}.",
        ) from None
    return True
