"""Who a node is, and what its certificate proves."""

from __future__ import annotations

import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from daisychain.core.ids import NodeId
from daisychain.errors import IdentityError, ProtocolError
from daisychain.net.identity.certificates import Authority, cluster_id_in, node_id_in, node_id_of_key
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.net.identity.node_identity import NodeIdentity, gives_way
from support.chain_node import node_info

KEY = ClusterKey(bytes(range(20)))


def der(pem: str) -> bytes:
    return x509.load_pem_x509_certificate(pem.encode()).public_bytes(Encoding.DER)


def test_an_identity_is_made_once_and_kept_privately(tmp_path: Path) -> None:
    first = NodeIdentity.load_or_create(tmp_path)
    assert NodeIdentity.load_or_create(tmp_path).node_id == first.node_id
    assert len(first.node_id) == 32
    assert set(first.node_id) <= set("0123456789abcdef")
    assert stat.S_IMODE(first.key_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.folder.stat().st_mode) == 0o700


def test_a_new_id_on_demand(tmp_path: Path) -> None:
    first = NodeIdentity.load_or_create(tmp_path)
    renewed = NodeIdentity.renew(tmp_path)
    assert renewed.node_id != first.node_id
    assert NodeIdentity.load_or_create(tmp_path).node_id == renewed.node_id


def test_a_damaged_or_foreign_node_key_is_named_with_the_remedy(tmp_path: Path) -> None:
    path = NodeIdentity.load_or_create(tmp_path).key_path
    path.write_text("-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n")
    with pytest.raises(IdentityError, match=r"is damaged .* Delete it"):
        NodeIdentity.load_or_create(tmp_path)
    other = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(IdentityError, match="no Ed25519 key"):
        NodeIdentity.load_or_create(tmp_path)
    path.chmod(0o644)
    with pytest.raises(IdentityError, match="chmod 600"):
        NodeIdentity.load_or_create(tmp_path)


def test_every_holder_of_the_key_derives_the_same_authority_to_the_bit() -> None:
    assert Authority.of(KEY).pem == Authority.of(ClusterKey.parse(KEY.text)).pem
    assert Authority.of(KEY).pem != Authority.of(ClusterKey(bytes(20))).pem


def test_a_certificate_is_issued_alike_each_time_and_proves_the_node_id(tmp_path: Path) -> None:
    identity = NodeIdentity.load_or_create(tmp_path)
    authority = Authority.of(KEY)
    identity.certify(authority)
    pem = identity.certificate_path.read_text()
    assert pem == authority.issue(identity.key.public_key())
    assert stat.S_IMODE(identity.certificate_path.stat().st_mode) == 0o600
    assert node_id_in(der(pem)) == identity.node_id
    assert cluster_id_in(der(pem)) == KEY.cluster_id


@pytest.mark.parametrize("year", [1970, 1980, 2026, 2036, 2049, 2050, 9999])
def test_certificates_verify_in_every_year(year: int, tmp_path: Path) -> None:
    """Both certificates hold at the instant, and the node's is signed by the authority."""
    authority = Authority.of(KEY)
    key = NodeIdentity.load_or_create(tmp_path).key.public_key()
    issued = x509.load_pem_x509_certificate(authority.issue(key).encode())
    instant = datetime(year, 6, 15, tzinfo=UTC)
    for certificate in (issued, authority.certificate):
        assert certificate.not_valid_before_utc <= instant <= certificate.not_valid_after_utc
        certificate.verify_directly_issued_by(authority.certificate)
    assert issued.not_valid_before_utc == datetime(1970, 1, 1, tzinfo=UTC)
    assert issued.not_valid_after_utc == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def test_a_node_cannot_take_another_nodes_id_even_with_the_cluster_key() -> None:
    """A certificate whose names are not the id of its own key proves nothing."""
    authority = Authority.of(KEY)
    mine, victim = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    honest = x509.load_pem_x509_certificate(authority.issue(victim.public_key()).encode())
    forged = (
        x509.CertificateBuilder()
        .subject_name(honest.subject)
        .issuer_name(honest.issuer)
        .public_key(mine.public_key())
        .serial_number(1)
        .not_valid_before(honest.not_valid_before_utc)
        .not_valid_after(honest.not_valid_after_utc)
        .add_extension(honest.extensions.get_extension_for_class(x509.SubjectAlternativeName).value, False)
        .sign(authority._key, None)
    )
    with pytest.raises(ProtocolError, match=f"not the id of its key, {node_id_of_key(mine.public_key())}"):
        node_id_in(forged.public_bytes(Encoding.DER))


def test_what_is_no_node_certificate_is_refused() -> None:
    for data in (b"", b"garbage", der(Authority.of(KEY).pem)):
        with pytest.raises(ProtocolError):
            node_id_in(data)
    assert cluster_id_in(b"garbage") is None


def test_of_two_with_one_id_exactly_one_gives_way() -> None:
    node_id = NodeId("a" * 32)
    original = replace(node_info(node_id, "x"), incarnation=4, machine_id="m1")
    later = replace(original, incarnation=5, machine_id="m0")
    twin = replace(original, machine_id="m2")
    assert gives_way(later, original)
    assert not gives_way(original, later)
    assert gives_way(twin, original)
    assert not gives_way(original, twin)
