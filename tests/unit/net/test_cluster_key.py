"""The cluster key: readable, typo-proof, kept safely, rotated honestly."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from daisychain.errors import IdentityError
from daisychain.net.identity.cluster_key import GROUPS, SECRET_BYTES, ClusterKey, join_line, rotate

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
secrets = st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES)


@given(secrets)
def test_what_is_printed_can_be_typed_again(secret: bytes) -> None:
    key = ClusterKey(secret)
    groups = key.text.split("-")
    assert [len(group) for group in groups] == [5] * GROUPS
    assert ClusterKey.parse(key.text) == key
    assert ClusterKey.parse(f" {key.text.lower().replace('-', ' ')}\n") == key
    assert ClusterKey.parse(key.text.replace("0", "o").replace("1", "l")) == key


@given(secrets, st.integers(0, 39), st.sampled_from(ALPHABET))
def test_any_one_wrong_character_is_found_and_its_group_named(secret: bytes, place: int, wrong: str) -> None:
    characters = ClusterKey(secret).text.replace("-", "")
    assume(characters[place] != wrong)
    typed = characters[:place] + wrong + characters[place + 1 :]
    with pytest.raises(IdentityError, match=rf"typo in group {place // 5 + 1} \("):
        ClusterKey.parse(typed)


@given(secrets, st.integers(0, 7), st.integers(0, 4), st.integers(0, 4))
def test_any_two_swapped_characters_of_a_group_are_found(secret: bytes, group: int, i: int, j: int) -> None:
    groups = ClusterKey(secret).text.split("-")
    characters = list(groups[group])
    assume(characters[i] != characters[j])
    characters[i], characters[j] = characters[j], characters[i]
    groups[group] = "".join(characters)
    with pytest.raises(IdentityError, match=f"typo in group {group + 1} "):
        ClusterKey.parse("-".join(groups))


@given(secrets, st.integers(0, 7), st.integers(0, 7))
def test_swapped_groups_are_found(secret: bytes, i: int, j: int) -> None:
    assume(i != j)
    groups = ClusterKey(secret).text.split("-")
    groups[i], groups[j] = groups[j], groups[i]
    with pytest.raises(IdentityError, match="typo in group"):
        ClusterKey.parse("-".join(groups))


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        ("", "40 characters, this one 0"),
        ("ABCDE-ABCDE", "40 characters, this one 10"),
        ("U" * 40, "'U' is no character"),
        ("é" * 40, "is no character"),
    ],
)
def test_what_is_no_key_is_refused_with_the_reason(typed: str, complaint: str) -> None:
    with pytest.raises(IdentityError, match=complaint):
        ClusterKey.parse(typed)


def test_new_keys_differ_and_have_160_bits() -> None:
    keys = {ClusterKey.generate().secret for _ in range(50)}
    assert len(keys) == 50
    assert {len(secret) for secret in keys} == {20}


def test_the_public_id_is_stable_and_tells_keys_apart() -> None:
    key = ClusterKey(bytes(range(20)))
    assert key.cluster_id == "8854a58fe13e20cb"  # RFC 5869, worked out apart
    assert len({ClusterKey(bytes([i]) * 20).cluster_id for i in range(100)}) == 100
    assert key.derive("one purpose", 32) != key.derive("another", 32)


def test_the_secret_does_not_show_by_accident() -> None:
    key = ClusterKey.generate()
    for shown in (repr(key), str(key), f"{[key]}"):
        assert key.text not in shown
        assert key.secret.hex() not in shown
        assert repr(key.secret) not in shown


def test_a_key_file_is_private_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "state" / "cluster.key"
    key, made = ClusterKey.load_or_create(path)
    assert made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ClusterKey.load(path) == key
    assert ClusterKey.load_or_create(path) == (key, False)
    assert [entry.name for entry in path.parent.iterdir()] == ["cluster.key"]


def test_a_key_pasted_without_comment_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    key = ClusterKey.generate()
    path.write_text(f"\n  {key.text.lower()}  \n")
    path.chmod(0o600)
    assert ClusterKey.load(path) == key


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o777])
def test_a_key_file_open_to_all_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "cluster.key"
    ClusterKey.generate().save(path)
    path.chmod(mode)
    with pytest.raises(IdentityError, match=f"mode {mode:03o}.*chmod 600 {path}"):
        ClusterKey.load(path)


def test_a_damaged_key_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    path.write_bytes(b"\xff\xfe\x00")
    path.chmod(0o600)
    with pytest.raises(IdentityError, match="is not text"):
        ClusterKey.load(path)
    path.write_bytes(b"A" * 20_000)
    with pytest.raises(IdentityError, match="over 16384 bytes"):
        ClusterKey.load(path)
    path.write_text("too short")
    with pytest.raises(IdentityError, match=f"{path}: a cluster key has 40 characters"):
        ClusterKey.load(path)
    with pytest.raises(IdentityError, match="there is no cluster key at"):
        ClusterKey.load(tmp_path / "absent")


def test_saving_replaces_whole_and_failing_leaves_the_old_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cluster.key"
    old = ClusterKey.generate()
    old.save(path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("daisychain.net.identity.secret_files.os.fsync", full)
    with pytest.raises(IdentityError, match="cannot be written"):
        ClusterKey.generate().save(path)
    monkeypatch.undo()
    assert ClusterKey.load(path) == old
    assert [entry.name for entry in tmp_path.iterdir()] == ["cluster.key"]


def test_rotation_leaves_nothing_of_the_old_key(tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    old = ClusterKey.generate()
    old.save(path)
    rotation = rotate(path)
    assert rotation.left_cluster_id == old.cluster_id
    assert rotation.key != old
    assert ClusterKey.load(path) == rotation.key
    assert old.text not in path.read_text()
    with pytest.raises(IdentityError, match="there is no cluster key"):
        rotate(tmp_path / "absent")


def test_the_line_that_joins_two_clusters_names_both() -> None:
    ours, theirs = ClusterKey(bytes(20)).cluster_id, ClusterKey(bytes([1] * 20)).cluster_id
    line = join_line(theirs, ours)
    assert f"belongs to cluster {theirs}; this node belongs to cluster {ours}" in line
    assert "`daisychain key show`" in line
    assert "another cluster" in join_line(None, ours)
