"""Landlock by its three system calls: the calling thread, and all it starts, give up what no rule permits.

Only the calling thread: so it is called while the process has no other.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable

from daisychain.trainer.sandbox.policy import Rule
from daisychain.trainer.sandbox.rights import handled, rights_of, scopes

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = (
    444,
    445,
    446,
)  # alike on every architecture that torch has wheels for
_ASK_VERSION, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38

_NETWORK_SINCE, _SCOPES_SINCE = 4, 6


def landlock_abi() -> int:
    """Return the version of the kernel's Landlock; 0 when there is none, or it is switched off."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    except OSError:
        return 0


def restrict(rules: Iterable[Rule], abi: int) -> int:
    """Confine the calling thread to ``rules`` for good; return how many of them stand.

    A path that does not exist, or that this user may not even look at, needs no rule. Raises OSError when the
    kernel refuses (16 confinements one within the other are its most).
    """
    # {rights on files, rights on the network (none handled), scopes}: as much of it as the kernel knows
    fields = struct.pack("=QQQ", handled(abi), 0, scopes(abi))
    size = 8 if abi < _NETWORK_SINCE else 16 if abi < _SCOPES_SINCE else 24
    ruleset = _call(_CREATE_RULESET, ctypes.c_char_p(fields), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        count = sum(_permit(ruleset, rule, abi) for rule in rules)
        _forgo_new_privileges()
        _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
    return count


def _permit(ruleset: int, rule: Rule, abi: int) -> bool:
    try:
        path = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    try:
        rights = rights_of(rule.access, abi, stat.S_ISDIR(os.fstat(path).st_mode))
        if not rights:
            return False
        beneath = struct.pack("=Qi", rights, path)
        _call(
            _ADD_RULE,
            ctypes.c_int(ruleset),
            ctypes.c_int(_PATH_BENEATH),
            ctypes.c_char_p(beneath),
            ctypes.c_uint32(0),
        )
    finally:
        os.close(path)
    return True


def _forgo_new_privileges() -> None:
    """Let no program that is started later gain rights (sudo): without that the kernel refuses to confine."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        _raise()


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    result = int(libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        _raise()
    return result


def _raise() -> None:
    error = ctypes.get_errno()
    raise OSError(error, os.strerror(error))
