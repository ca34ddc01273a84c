"""The cluster key: the one secret that makes machines one chain.

Printed as eight groups of five characters of Crockford's base32 (no I, L, O, U). Each group is
four characters of key and one check character over GF(32), so that a mistyped character, two
swapped characters or two swapped groups are found and the group is named.

Rotation is a new key and nothing else: no old key is kept, because a key is rotated when
someone who holds the old one shall stay out. Nodes that still hold the old key form another
cluster; each side names the other's cluster id and how to join it. So to rotate: make a new key
on one node, give it to the others, restart each agent.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from daisychain.core.ids import ClusterId
from daisychain.errors import IdentityError
from daisychain.net.identity.secret_files import read_secret, write_secret

SECRET_BYTES = 20
"""160 bits: 32 characters of base32 without padding."""

GROUPS = 8
_DATA_CHARACTERS = 4
_GROUP_CHARACTERS = _DATA_CHARACTERS + 1
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_READ_AS = str.maketrans({"O": "0", "I": "1", "L": "1"})
_WHAT = "cluster key"
_HEADER = "# DaisyChain cluster key. Whoever reads it joins the chain and runs code on it: keep it secret.\n"


@dataclass(frozen=True, slots=True, repr=False)
class ClusterKey:
    """The secret itself; its repr shows the public cluster id only."""

    secret: bytes

    def __repr__(self) -> str:
        return f"ClusterKey(cluster_id={self.cluster_id!r})"

    @classmethod
    def generate(cls) -> ClusterKey:
        """Return a new key from the operating system's random source."""
        return cls(secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def parse(cls, text: str) -> ClusterKey:
        """Return the key that ``text`` spells; case, spaces and dashes do not matter.

        Raises `IdentityError` naming the character or the group that is wrong.
        """
        characters = [c for c in text.upper().translate(_READ_AS) if c not in "- \t\r\n"]
        for character in characters:
            if character not in _ALPHABET:
                raise IdentityError(
                    f"{character!r} is no character of a cluster key",
                    "Compare it with `daisychain key show` on a node of the chain.",
                )
        wanted = GROUPS * _GROUP_CHARACTERS
        if len(characters) != wanted:
            raise IdentityError(
                f"a cluster key has {wanted} characters, this one {len(characters)}",
                "Copy all eight groups of `daisychain key show`.",
            )
        values = [_ALPHABET.index(c) for c in characters]
        groups = [values[i : i + _GROUP_CHARACTERS] for i in range(0, wanted, _GROUP_CHARACTERS)]
        wrong = [i for i, group in enumerate(groups) if _check(group[:_DATA_CHARACTERS], i) != group[-1]]
        if wrong:
            named = ", ".join(f"{i + 1} ({''.join(_ALPHABET[value] for value in groups[i])})" for i in wrong)
            raise IdentityError(
                f"the cluster key has a typo in group {named}",
                "Compare it with `daisychain key show` on a node of the chain.",
            )
        number = 0
        for group in groups:
            for value in group[:_DATA_CHARACTERS]:
                number = number << 5 | value
        return cls(number.to_bytes(SECRET_BYTES, "big"))

    @property
    def text(self) -> str:
        """The key as people copy it: eight groups of five characters, joined by dashes."""
        number = int.from_bytes(self.secret, "big")
        total = GROUPS * _DATA_CHARACTERS
        values = [number >> 5 * (total - 1 - i) & 31 for i in range(total)]
        groups = []
        for index in range(GROUPS):
            data = values[index * _DATA_CHARACTERS : (index + 1) * _DATA_CHARACTERS]
            groups.append("".join(_ALPHABET[v] for v in (*data, _check(data, index))))
        return "-".join(groups)

    @property
    def cluster_id(self) -> ClusterId:
        """The cluster's public id: says nothing about the key (HKDF-SHA256, RFC 5869)."""
        return ClusterId(self.derive("cluster id", 8).hex())

    def derive(self, purpose: str, length_bytes: int) -> bytes:
        """Return key material for one ``purpose``; different purposes are independent."""
        info = f"daisychain 1 {purpose}".encode()
        return HKDF(algorithm=SHA256(), length=length_bytes, salt=None, info=info).derive(self.secret)

    @classmethod
    def load(cls, path: Path) -> ClusterKey:
        """Return the key in ``path``; raises `IdentityError` (see `read_secret` and `parse`)."""
        lines = read_secret(path, _WHAT).splitlines()
        text = "".join(line for line in lines if not line.lstrip().startswith("#"))
        try:
            return cls.parse(text)
        except IdentityError as error:
            raise IdentityError(f"{path}: {error.message}", error.remedy) from None

    def save(self, path: Path) -> None:
        """Write the key to ``path`` (0600, atomic), replacing what is there."""
        write_secret(path, f"{_HEADER}{self.text}\n", _WHAT)

    @classmethod
    def load_or_create(cls, path: Path) -> tuple[ClusterKey, bool]:
        """Return the key in ``path`` and whether it was made just now, as on a first node."""
        if not path.exists():
            key = cls.generate()
            if write_secret(path, f"{_HEADER}{key.text}\n", _WHAT, replace=False):
                return key, True
        return cls.load(path), False


@dataclass(frozen=True, slots=True)
class Rotation:
    """What a rotation did: the key that holds from now on, and the cluster left behind."""

    key: ClusterKey
    left_cluster_id: ClusterId


def rotate(path: Path) -> Rotation:
    """Replace the key in ``path`` by a new one; the old one is gone from this node.

    Running agents keep the key that they started with; they must be restarted.
    Raises `IdentityError` when there is no readable key to rotate.
    """
    old = ClusterKey.load(path)
    key = ClusterKey.generate()
    key.save(path)
    return Rotation(key, old.cluster_id)


def join_line(theirs: ClusterId | None, ours: ClusterId) -> str:
    """Return for people why a neighbour is a stranger, and the line that would join the two."""
    named = f"cluster {theirs}" if theirs else "another cluster, or is no DaisyChain node"
    return (
        f"it belongs to {named}; this node belongs to cluster {ours}. To join it, run "
        "`daisychain key show` on one of its nodes and `daisychain key join` with that key here"
    )


def _check(data: list[int], group: int) -> int:
    """Return the check character of a group: a weighted sum over GF(32), moved by the group's index.

    The weights 2, 4, 8, 16 are distinct, not zero and not one: any one wrong character and any
    swap of two characters changes the sum.
    """
    total = group
    for power, value in enumerate(data, start=1):
        for _ in range(power):
            value = value << 1 ^ (0b100101 if value & 16 else 0)  # noqa: PLW2901 - times x, mod x^5+x^2+1
        total ^= value
    return total
