"""Who this node is: a key pair of its own in the state folder, and the id that follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from daisychain.core.ids import NodeId
from daisychain.core.node import NodeInfo
from daisychain.errors import IdentityError
from daisychain.net.identity.certificates import Authority, node_id_of_key
from daisychain.net.identity.secret_files import read_secret, write_secret

KEY_FILE = "node.key"
CERTIFICATE_FILE = "node.crt"
_WHAT = "node key"


@dataclass(frozen=True, slots=True, repr=False)
class NodeIdentity:
    """One node's own key pair and where it is kept.

    Attributes:
        folder: holds ``node.key`` and ``node.crt``, both 0600.
        key: Ed25519, made at the first start; never leaves the machine.
    """

    folder: Path
    key: Ed25519PrivateKey

    def __repr__(self) -> str:
        return f"NodeIdentity({self.node_id!r})"

    @property
    def node_id(self) -> NodeId:
        """The id under which the chain knows this node."""
        return node_id_of_key(self.key.public_key())

    @property
    def key_path(self) -> Path:
        """Where the private key lies as PEM."""
        return self.folder / KEY_FILE

    @property
    def certificate_path(self) -> Path:
        """Where `certify` writes the certificate."""
        return self.folder / CERTIFICATE_FILE

    @classmethod
    def load_or_create(cls, state_folder: Path) -> NodeIdentity:
        """Return the identity in ``state_folder``, made there at the first start.

        Raises `IdentityError` when the key file is damaged, foreign or open to others.
        """
        folder = state_folder / "identity"
        path = folder / KEY_FILE
        if not path.exists():
            write_secret(path, _pem(Ed25519PrivateKey.generate()), _WHAT, replace=False)
        try:
            key = load_pem_private_key(read_secret(path, _WHAT).encode(), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise IdentityError(
                f"the node key {path} is damaged ({error})",
                "Delete it: the node takes a new id at its next start.",
            ) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise IdentityError(
                f"the node key {path} is no Ed25519 key",
                "Delete it: the node takes a new id at its next start.",
            )
        return cls(folder, key)

    @classmethod
    def renew(cls, state_folder: Path) -> NodeIdentity:
        """Return a new identity that has replaced the one in ``state_folder`` (a cloned disk)."""
        path = state_folder / "identity" / KEY_FILE
        write_secret(path, _pem(Ed25519PrivateKey.generate()), _WHAT)
        return cls.load_or_create(state_folder)

    def certify(self, authority: Authority) -> None:
        """Write this node's certificate under ``authority`` to `certificate_path`."""
        write_secret(self.certificate_path, authority.issue(self.key.public_key()), "node certificate")


def gives_way(mine: NodeInfo, theirs: NodeInfo) -> bool:
    """Tell which of two machines with one node id takes a new one: True = we do.

    The copy of a running node's disk has started once more than the original, so the higher
    incarnation gives way; between equals (both started since) the higher machine id does, so that
    exactly one of the two moves.
    """
    return (mine.incarnation, mine.machine_id) > (theirs.incarnation, theirs.machine_id)


def _pem(key: Ed25519PrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
