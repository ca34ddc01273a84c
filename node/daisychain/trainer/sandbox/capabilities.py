"""Gives up the powers of root that training has no use for, where the trainer has any.

With them root reads other processes' memory (CAP_PERFMON, CAP_SYS_PTRACE) and files by number instead of name
(CAP_DAC_READ_SEARCH), past whatever Landlock says of paths.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

KEPT = frozenset({0, 1, 3, 4})
"""CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID: results go into a folder that another user may own."""

_VERSION_3 = 0x20080522
_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24
_HIGHEST = 63


def drop_capabilities() -> None:
    """Keep at most KEPT, for good and for all that is started; nothing changes for a plain user.

    Raises OSError when the kernel refuses.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(_HIGHEST + 1):
        if capability not in KEPT and libc.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) == 1:
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused to a plain user, who has none
    header = struct.pack("=Ii", _VERSION_3, 0)
    held = ctypes.create_string_buffer(24)  # {effective, permitted, inheritable} of bits 0 to 31, of 32 to 63
    _check(libc.capget(ctypes.c_char_p(header), held))
    low, high = sum(1 << each for each in KEPT), 0
    masks = (low, low, 0, high, high, 0)
    left = [have & mask for have, mask in zip(struct.unpack("=6I", held.raw), masks, strict=True)]
    _check(libc.capset(ctypes.c_char_p(header), ctypes.c_char_p(struct.pack("=6I", *left))))


def _check(result: int) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
