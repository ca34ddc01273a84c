"""What is fetched stays within its budget; what goes for it was fetched, has ended, and is the oldest."""

from __future__ import annotations

import pytest

from daisychain.host.bundles.budget import (
    BLOCK_BYTES,
    Disk,
    FetchedCopy,
    NoRoom,
    Room,
    footprint_bytes,
    make_room,
    told,
)
from support.bundles import manifest_of

GIB = 1 << 30
DISK = Disk(total_bytes=100 * GIB, free_bytes=50 * GIB)


def copy(name: str, gib: float, at: float) -> FetchedCopy:
    return FetchedCopy(name, f"digest of {name}", 1, int(gib * GIB), at)


OLD, MIDDLE, NEW = copy("old", 3, 1.0), copy("middle", 3, 2.0), copy("new", 3, 3.0)
COPIES = (NEW, OLD, MIDDLE)


def test_within_the_budget_nothing_goes() -> None:
    assert make_room(GIB, COPIES, frozenset(), DISK) == Room(())
    assert make_room(10 * GIB, (), frozenset(), DISK) == Room(())


def test_the_oldest_go_and_only_as_many_as_are_needed() -> None:
    assert make_room(2 * GIB, COPIES, frozenset(), DISK) == Room((OLD,))
    assert make_room(5 * GIB, COPIES, frozenset(), DISK) == Room((OLD, MIDDLE))
    assert make_room(10 * GIB, COPIES, frozenset(), DISK) == Room((OLD, MIDDLE, NEW))


def test_what_has_not_ended_stays() -> None:
    assert make_room(2 * GIB, COPIES, frozenset({OLD.digest}), DISK) == Room((MIDDLE,))
    refused = make_room(8 * GIB, COPIES, frozenset({OLD.digest}), DISK)
    assert isinstance(refused, NoRoom)
    assert "8.0 GiB" in refused.reason
    assert "10.0 GiB" in refused.reason
    assert "3.0 GiB of 1 that have not ended" in refused.reason
    assert "fetched_max_bytes" in refused.remedy


def test_what_is_larger_than_the_budget_is_refused_with_both_numbers() -> None:
    refused = make_room(11 * GIB, COPIES, frozenset(), DISK)
    assert isinstance(refused, NoRoom)
    assert refused.reason == "it takes 11.0 GiB, and fetched copies may take 10.0 GiB"


def test_a_person_may_set_the_budget() -> None:
    assert make_room(11 * GIB, (), frozenset(), DISK, max_bytes=12 * GIB) == Room(())
    assert isinstance(make_room(1, (), frozenset(), DISK, max_bytes=0), NoRoom)
    assert isinstance(make_room(60 * GIB, (), frozenset(), DISK, max_bytes=90 * GIB), NoRoom)


def test_some_of_the_disk_stays_free_whatever_the_budget() -> None:
    nearly_full = Disk(100 * GIB, 3 * GIB)
    assert make_room(2 * GIB, (), frozenset(), nearly_full) == Room(())
    refused = make_room(2 * GIB + 1, (), frozenset(), nearly_full)
    assert isinstance(refused, NoRoom)
    assert "3.0 GiB free" in refused.reason
    assert "1.0 GiB stay free" in refused.reason
    assert make_room(2 * GIB + 1, (OLD,), frozenset(), nearly_full) == Room((OLD,))
    card = Disk(8 * GIB, GIB)
    assert isinstance(make_room(GIB * 7 // 10, (), frozenset(), card, max_bytes=GIB), NoRoom)
    assert make_room(GIB // 2, (), frozenset(), card, max_bytes=GIB) == Room(())


@pytest.mark.parametrize("need", [0, 1, GIB, 9 * GIB])
@pytest.mark.parametrize("used", [frozenset[str](), frozenset({OLD.digest}), frozenset({NEW.digest})])
def test_after_making_room_it_fits(need: int, used: frozenset[str]) -> None:
    match make_room(need, COPIES, used, DISK):
        case Room(remove):
            left = sum(each.takes_bytes for each in COPIES) - sum(each.takes_bytes for each in remove)
            assert left + need <= 10 * GIB
            assert not {each.digest for each in remove} & used
        case NoRoom():
            assert need + sum(each.takes_bytes for each in COPIES if each.digest in used) > 10 * GIB


def test_empty_files_and_folders_count() -> None:
    assert footprint_bytes(manifest_of({"a": b""})) >= 2 * BLOCK_BYTES
    deep = manifest_of(
        {"/".join(f"{number}"[:2] + "d" for _ in range(15)) + "/x": b"" for number in range(10)}
    )
    assert footprint_bytes(deep) >= 10 * 15 * BLOCK_BYTES


def test_sizes_are_told_as_people_read_them() -> None:
    assert [told(size) for size in (0, 1023, 1536, 5 << 30, 3 << 41)] == [
        "0 bytes",
        "1023 bytes",
        "1.5 KiB",
        "5.0 GiB",
        "6.0 TiB",
    ]
