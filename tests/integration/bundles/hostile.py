"""Hostile bundles by seed: what a peer may say, send and plant to leave its folder or wear a node out."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import stat
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from daisychain.core.manifest import CHUNK_BYTES
from support.bundles import chunks_of

BAD_PARTS = [
    *(
        "",
        ".",
        "..",
        "~",
        "-rf",
        "$HOME",
        "%00",
        "con",
        "NUL.txt",
        "aux .x",
        "com1",
        "LPT³.y",
        "a.",
        "a ",
        "a:b",
    ),
    *(
        "a\\..\\b",
        "C:",
        "\\\\host\\share",
        "a\0b",
        "a\nb",
        "a\x1b[2J",
        "\u202egnp.py",
        "\u200b",
        "re\u200dsult",
    ),
    *(
        "result",
        "Result",
        "__pycache__",
        ".git",
        ".daisychain-incoming",
        ".ssh",
        "x" * 255,
        "x" * 256,
        "x" * 5000,
    ),
    *(
        "e\u0301",
        "\u212b",
        "ﬁ",
        "ß",
        "ſ",
        "İ",
        "ı",
        "K",
        "\uf03a",
        "\uffff",
        "\U000e0001",
        "👩\u200d💻",
        "한국",
        "한국어",
    ),
    *("\u0301" * 80, "a" + "\u0327\u0301" * 60, "データ", "ก็" * 30, "job.yaml ", "JOB.YAML", "data", "DATA"),
]
FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")


Plant = Callable[[Path, Path, Path, random.Random], None]


@dataclass
class Hostile:
    """One bundle as a peer tells it: ``entries`` are (name, size, hashes), ``contents`` what it has."""

    seed: int
    entries: list[tuple[object, object, object]]
    contents: dict[str, bytes]
    job: str
    wire: bytes
    lies: float
    plants: Sequence[Plant]


def hostile_bundle(seed: int) -> Hostile:
    """Return the hostile bundle of this seed."""
    chance = random.Random(seed)
    contents = {"job.yaml": b"kind: table\n"}
    for _ in range(chance.randrange(4)):
        contents[_good_name(chance)] = _data(chance)
    entries: list[tuple[object, object, object]] = [
        (name, len(data), b"".join(hashlib.sha256(chunk).digest() for chunk in chunks_of(data)))
        for name, data in sorted(contents.items())
    ]
    for _ in range(chance.choice((0, 1, 1, 2))):
        chance.choice(SPOIL)(entries, chance)
    if chance.random() < 0.8 and all(isinstance(entry[0], str) for entry in entries):
        entries.sort(key=lambda entry: str(entry[0]))
    job = _bad_name(chance) if chance.random() < 0.2 else chance.choice(("digits", "mine", "link", "Digits"))
    wire = _encode([1, entries])
    for _ in range(chance.choice((0, 0, 0, 1, 3))):
        wire = chance.choice((_flip, _cut, _noise))(wire, chance)
    plants = [chance.choice(PLANTS) for _ in range(chance.choice((0, 0, 1, 2)))]
    return Hostile(seed, entries, contents, job, wire, chance.choice((0.0, 0.0, 0.5)), plants)


def a_lie(data: bytes, chance: random.Random) -> bytes:
    """Return something else in a chunk's place."""
    return chance.choice((data[:-1], data + b"x", b"", bytes(len(data)), data[::-1], bytes(CHUNK_BYTES + 1)))


def _encode(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def _good_name(chance: random.Random) -> str:
    return "/".join(
        chance.choice(("a", "b", "data", "Zürich", "データ", "x y")) for _ in range(chance.randint(1, 3))
    )


def _bad_name(chance: random.Random) -> str:
    parts = [chance.choice(BAD_PARTS) for _ in range(chance.randint(1, 4))]
    return unicodedata.normalize(chance.choice(FORMS), chance.choice(("/", "/", "", "\\")).join(parts))


def _data(chance: random.Random) -> bytes:
    size = chance.choice((0, 1, 100, 5000, 5000, CHUNK_BYTES + 1 if chance.random() < 0.1 else 7))
    return bytes([chance.randrange(256)]) * size


Entries = list[tuple[object, object, object]]


def name_one(entries: Entries, chance: random.Random) -> None:
    at = chance.randrange(len(entries))
    entries[at] = (_bad_name(chance), *entries[at][1:])


def climb(entries: Entries, chance: random.Random) -> None:
    up = "../" * chance.randint(1, 6) + chance.choice(("outside/canary", "etc/cron.d/x", "x"))
    entries.append((chance.choice((up, "a/" + up, "/" + up, "./" + up)), 0, b""))


def collide(entries: Entries, chance: random.Random) -> None:
    name = str(entries[chance.randrange(len(entries))][0])
    turned = chance.choice(
        (name.upper(), name.swapcase(), name + "\u200b", unicodedata.normalize("NFD", name), name)
    )
    entries.append((turned, 0, b""))


def use_as_folder(entries: Entries, chance: random.Random) -> None:
    entries.append((f"{entries[chance.randrange(len(entries))][0]}/x", 0, b""))


def deep(entries: Entries, chance: random.Random) -> None:
    entries.append(("d/" * chance.choice((14, 15, 16, 100, 250, 5000)) + "x", 0, b""))


def many(entries: Entries, chance: random.Random) -> None:
    fanned = chance.random() < 0.5
    for number in range(chance.choice((100, 300, 3000))):
        entries.append((f"m{number}/" + "d/" * 13 + "x" if fanned else f"m{number}", 0, b""))


def size_lie(entries: Entries, chance: random.Random) -> None:
    at = chance.randrange(len(entries))
    sizes = (-1, 0, 1, 2, 1 << 20, 1 << 33, (1 << 62) - 1, 1 << 63, (1 << 64) - 1, 1.5, None, "9")
    entries[at] = (entries[at][0], chance.choice(sizes), entries[at][2])


def sparse(entries: Entries, chance: random.Random) -> None:
    zeros = hashlib.sha256(bytes(CHUNK_BYTES)).digest()
    count = chance.choice((2, 5, 16, 2000))
    entries.append(("zeros.bin", count * CHUNK_BYTES, zeros * count))


def wrong_hashes(entries: Entries, chance: random.Random) -> None:
    at = chance.randrange(len(entries))
    hashes = chance.choice((b"", bytes(31), bytes(32), bytes(64), bytes(1000), None, "text", 7))
    entries[at] = (*entries[at][:2], hashes)


def other_kind(entries: Entries, chance: random.Random) -> None:
    entries.append(
        chance.choice(((b"x", 0, b""), (None, 0, b""), (7, 0, b""), ([["x"]], 0, b""), ({}, {}, {})))
    )


SPOIL: list[Callable[[Entries, random.Random], None]] = [
    *(name_one, name_one, name_one, climb, collide, collide, use_as_folder, deep, many, size_lie, sparse),
    *(wrong_hashes, other_kind),
]


def _flip(wire: bytes, chance: random.Random) -> bytes:
    if not wire:
        return wire
    broken = bytearray(wire)
    broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
    return bytes(broken)


def _cut(wire: bytes, chance: random.Random) -> bytes:
    return wire[: chance.randrange(len(wire) + 1)]


def _noise(wire: bytes, chance: random.Random) -> bytes:
    return chance.choice(
        (wire + chance.randbytes(9), chance.randbytes(200), b"\x91" * 3000, b"\xdd\xff\xff\xff\xff")
    )


# What stands in the way on the disk: in the stage (``folder``), in ``jobs``, pointing to ``outside``.


def _somewhere(folder: Path, chance: random.Random) -> Path | None:
    """Return something in the stage, or where something may come to be; None where a link leads out of it."""
    try:
        inside = [path for path in sorted(folder.rglob("*")) if not path.is_symlink()]
    except OSError:
        return None
    path = chance.choice([folder, folder / "job.yaml", folder / "data", folder / "planted", *inside])
    leads_to = os.path.realpath(path.parent)
    return path if leads_to.startswith(str(folder.parent)) else None


def _clear(path: Path) -> bool:
    try:
        if path.is_symlink() or path.is_file() or path.exists():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return True


def plant_link(folder: Path, jobs: Path, outside: Path, chance: random.Random) -> None:
    path = _somewhere(folder, chance)
    if path is not None and _clear(path):
        path.symlink_to(chance.choice((outside, outside / "canary", outside / "none", "/dev/zero", path)))


def plant_second_name(folder: Path, jobs: Path, outside: Path, chance: random.Random) -> None:
    path = _somewhere(folder, chance)
    if path is not None and path != folder and _clear(path):
        path.hardlink_to(outside / "canary")


def plant_special(folder: Path, jobs: Path, outside: Path, chance: random.Random) -> None:
    path = _somewhere(folder, chance)
    if path is not None and path != folder and _clear(path):
        kind = chance.choice((stat.S_IFIFO, stat.S_IFSOCK, *([stat.S_IFCHR] if os.geteuid() == 0 else [])))
        try:
            os.mknod(path, kind | 0o666, os.makedev(1, 3))
        except PermissionError:  # no devices in a user namespace
            os.mkfifo(path)


def plant_folder(folder: Path, jobs: Path, outside: Path, chance: random.Random) -> None:
    path = _somewhere(folder, chance)
    if path is not None and path != folder and _clear(path):
        path.joinpath(*["d"] * chance.choice((1, 50))).mkdir(parents=True, exist_ok=True)


def plant_modes(folder: Path, jobs: Path, outside: Path, chance: random.Random) -> None:
    path = _somewhere(folder, chance)
    if path is not None and path.exists() and not path.is_symlink():
        path.chmod(chance.choice((0o6777, 0o4755, 0o2777, 0o777)))


def plant_in_jobs(folder: Path, jobs: Path, outside: Path, chance: random.Random) -> None:
    path = jobs / chance.choice(("digits", ".daisychain-incoming", "Digits"))
    if _clear(path):
        path.symlink_to(chance.choice((outside, outside / "canary", "nowhere", jobs)))


PLANTS = [plant_link, plant_link, plant_second_name, plant_special, plant_folder, plant_modes, plant_in_jobs]
