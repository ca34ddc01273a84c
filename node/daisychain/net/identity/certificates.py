"""The cluster's certificate authority, derived from the key, and the certificates under it.

Everything is a function of the key and the node's public key: every holder of the cluster key
derives the same authority, bit for bit, and a node issues the same certificate to itself at
every start. Certificates hold from 1970 to 9999: an old machine whose clock battery died boots
in the past, and must still be let in. What a certificate proves is the key, not the date.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from daisychain.core.ids import ClusterId, NodeId
from daisychain.errors import ProtocolError
from daisychain.net.identity.cluster_key import ClusterKey

VALID_FROM = datetime(1970, 1, 1, tzinfo=UTC)
VALID_UNTIL = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)

_AUTHORITY_NAME = "DaisyChain cluster "
_URI = "daisychain:node:"


def node_id_of_key(key: Ed25519PublicKey) -> NodeId:
    """Return the id of the node that holds the private half of ``key``.

    The id is 128 bits of the key's SHA-256, so no node can take another's id, not even with
    the cluster key.
    """
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return NodeId(hashlib.sha256(b"daisychain 1 node id" + raw).hexdigest()[:32])


@dataclass(frozen=True, slots=True)
class Authority:
    """A cluster's certificate authority: whoever holds the cluster key is it.

    Attributes:
        certificate: self-signed; the only trust anchor of every control connection.
    """

    certificate: x509.Certificate
    _key: Ed25519PrivateKey

    @classmethod
    def of(cls, cluster_key: ClusterKey) -> Authority:
        """Derive the authority of a cluster."""
        key = Ed25519PrivateKey.from_private_bytes(cluster_key.derive("certificate authority", 32))
        name = _name(_AUTHORITY_NAME + cluster_key.cluster_id)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            _builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(certificates=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, algorithm=None)
        )
        return cls(certificate, key)

    @property
    def pem(self) -> str:
        """The authority's certificate, as TLS libraries read it."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(self, key: Ed25519PublicKey) -> str:
        """Return, as PEM, the certificate of the node that holds ``key``; good for both ends of TLS."""
        node_id = node_id_of_key(key)
        authority = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        certificate = (
            _builder(_name(node_id), self.certificate.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(_URI + node_id)]),
                critical=False,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority), critical=False
            )
            .sign(self._key, algorithm=None)
        )
        return certificate.public_bytes(Encoding.PEM).decode()


def node_id_in(der: bytes) -> NodeId:
    """Return the node id that a verified certificate proves.

    Raises `ProtocolError` unless subject, alternative name and key all say the same id. The
    chain to the authority is the TLS library's affair and must have been verified before.
    """
    try:
        certificate = x509.load_der_x509_certificate(der)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        uris = extension.value.get_values_for_type(x509.UniformResourceIdentifier)
        key = certificate.public_key()
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise ProtocolError(f"a certificate that no DaisyChain node issues: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ProtocolError("a certificate whose key is not Ed25519")
    node_id = node_id_of_key(key)
    if [name.value for name in names] != [node_id] or uris != [_URI + node_id]:
        raise ProtocolError(f"a certificate whose names are not the id of its key, {node_id}")
    return node_id


def cluster_id_in(der: bytes) -> ClusterId | None:
    """Return the cluster id that an *unverified* certificate's issuer claims, for people; None if none."""
    try:
        names = x509.load_der_x509_certificate(der).issuer.get_attributes_for_oid(NameOID.COMMON_NAME)
    except ValueError:
        return None
    for name in names:
        claimed = str(name.value).removeprefix(_AUTHORITY_NAME)
        if claimed != name.value and len(claimed) == 16 and set(claimed) <= set("0123456789abcdef"):
            return ClusterId(claimed)
    return None


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: Ed25519PublicKey) -> x509.CertificateBuilder:
    """Return what all our certificates share; the serial number is a function of the key."""
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    serial = int.from_bytes(hashlib.sha256(b"daisychain 1 serial" + raw).digest()[:16], "big") >> 1 | 1
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(VALID_FROM)
        .not_valid_after(VALID_UNTIL)
    )


def _usage(*, certificates: bool) -> x509.KeyUsage:
    """Return what the key may sign: certificates (the authority) or handshakes (a node)."""
    return x509.KeyUsage(
        digital_signature=not certificates,
        key_cert_sign=certificates,
        crl_sign=certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
