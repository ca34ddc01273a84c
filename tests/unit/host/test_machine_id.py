"""One id a machine: the same at every start, another on a clone."""

from __future__ import annotations

from pathlib import Path

from daisychain.host.machine_id import in_container, machine_id


def machine(root: Path, name: str, files: dict[str, str], cards: dict[str, str]) -> Path:
    base = root / name
    for path, text in files.items():
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_text(text)
    for card, address in cards.items():
        device = base / "sys/class/net" / card
        (device / "device").mkdir(parents=True)
        (device / "addr_assign_type").write_text("0\n")
        (device / "address").write_text(f"{address}\n")
    return base


DISK = {"etc/machine-id": "0123456789abcdef0123456789abcdef\n"}


def test_it_is_the_same_at_every_start(tmp_path: Path) -> None:
    base = machine(tmp_path, "a", DISK, {"eth0": "02:00:00:00:00:01", "wlan0": "02:00:00:00:00:02"})
    assert machine_id(base) == machine_id(base)
    assert len(machine_id(base)) == 32 and set(machine_id(base)) <= set("0123456789abcdef")


def test_a_cloned_disk_in_another_machine_has_another(tmp_path: Path) -> None:
    first = machine(tmp_path, "a", DISK, {"eth0": "02:00:00:00:00:01"})
    clone = machine(tmp_path, "b", DISK, {"eth0": "02:00:00:00:00:09"})
    assert machine_id(first) != machine_id(clone)
    virtual = machine(tmp_path, "c", DISK | {"sys/class/dmi/id/product_uuid": "AAAA"}, {})
    other = machine(tmp_path, "d", DISK | {"sys/class/dmi/id/product_uuid": "BBBB"}, {})
    assert machine_id(virtual) != machine_id(other)


def test_interfaces_that_come_and_go_do_not_change_it(tmp_path: Path) -> None:
    base = machine(tmp_path, "a", DISK, {"eth0": "02:00:00:00:00:01"})
    before = machine_id(base)
    bridge = base / "sys/class/net/docker0"  # no device behind it
    bridge.mkdir()
    (bridge / "addr_assign_type").write_text("0\n")
    (bridge / "address").write_text("02:42:00:00:00:01\n")
    assert machine_id(base) == before


def test_containers_of_one_image_are_told_apart_by_their_names(tmp_path: Path) -> None:
    base = machine(tmp_path, "image", {".dockerenv": ""}, {})
    assert in_container(base)
    assert machine_id(base, "c0ffee") == machine_id(base, "c0ffee") != machine_id(base, "decade")


def test_a_machine_that_tells_nothing_has_one_all_the_same(tmp_path: Path) -> None:
    assert machine_id(tmp_path) == machine_id(tmp_path)
