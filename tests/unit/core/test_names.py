"""Names that mean one file on every machine are taken; every other is refused, with its rule."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.core.names import NAME_MAX_BYTES, NAMES_MAX_BYTES, check_job_name, check_names, folded, shown
from daisychain.errors import BundleError

MANY = 50_000

GOOD = [
    "job.yaml",
    "data/houses.csv",
    "a b/c-d_e(1)+~#%&'=@[]{}!$;,.x",
    "Zürich.csv",
    "データ/画像.png",
    "данные.csv",
    "😀.txt",
    "com10.txt",
    "console.log",
    "nul_values.csv",
    "lpt/x",
    " leading",
    "x..y",
    "sub/result/part.csv",
    "results.csv",
    "a/" * 15 + "b",
    "é" * 127,
]


@pytest.mark.parametrize("name", GOOD)
def test_a_name_that_every_machine_can_hold_is_taken(name: str) -> None:
    check_names([name], MANY)


BAD = [
    ("", "part by part"),
    ("/etc/passwd", "part by part"),
    ("..", "part by part"),
    ("a/../../b", "part by part"),
    ("./a", "part by part"),
    ("a//b", "part by part"),
    ("a/", "part by part"),
    ("C:/x", "Windows forbids"),
    ("C:x", "Windows forbids"),
    ("a:stream", "Windows forbids"),
    ("\\\\server\\share", "Windows forbids"),
    ("..\\up", "Windows forbids"),
    ("a*", "Windows forbids"),
    ("what?", "Windows forbids"),
    ('"a"', "Windows forbids"),
    ("<a>", "Windows forbids"),
    ("a|b", "Windows forbids"),
    ("a\0b", "Windows forbids"),
    ("a\nb", "Windows forbids"),
    ("a\x1b[2Jb", "Windows forbids"),
    ("a\x7f", "Windows forbids"),
    ("a\x85b", "machines differ"),
    ("a\u2028b", "machines differ"),
    ("exe\u202etxt.py", "machines differ"),
    ("a\uf03ab", "machines differ"),
    ("a\uffffb", "machines differ"),
    ("a\U000e0fffb", "machines differ"),
    ("bad-\udcff", "not UTF-8"),
    (unicodedata.normalize("NFD", "Zürich.csv"), "decomposed"),
    ("\u212b", "decomposed"),  # the angstrom sign, which is composed to another character
    ("CON", "device"),
    ("con.txt", "device"),
    ("a/Nul.tar.gz", "device"),
    ("AUX .csv", "device"),
    ("com1", "device"),
    ("LPT³.x", "device"),
    ("CONIN$", "device"),
    ("dot.", "drops a dot"),
    ("a /b", "drops a dot"),
    (".hidden", "hidden"),
    ("a/.git/config", "hidden"),
    ("result/model.safetensors", "puts its result"),
    ("Result/x", "puts its result"),
    ("re\u200dsult", "puts its result"),
    ("a/__pycache__/x.pyc", "Python writes"),
    ("__PyCache__", "Python writes"),
    ("a/" * 16 + "b", "17 deep"),
    ("x" * 256, "255 bytes"),
    ("é" * 128, "255 bytes"),
    ("x" * 200 + "/" + "y" * 200 + "/" + "z" * 200, str(NAME_MAX_BYTES)),
    ("é" * 300, str(NAME_MAX_BYTES)),
]


@pytest.mark.parametrize(("name", "rule"), BAD)
def test_any_other_name_is_refused_with_its_rule(name: str, rule: str) -> None:
    with pytest.raises(BundleError) as told:
        check_names(["job.yaml", name], MANY)
    assert rule in str(told.value)
    assert str(told.value).isprintable()
    assert told.value.where == shown(name)


@pytest.mark.parametrize(
    "names",
    [
        ("data.csv", "Data.csv"),
        ("Data/a", "data/b"),
        ("straße", "STRASSE"),
        ("ﬁx", "fix"),
        ("ı", "I"),
        ("Σ", "ς"),
        ("a\u200db", "ab"),
        ("a\ufe0fb", "ab"),
        ("İ", "i̇".upper()),
        ("x", "x"),
    ],
)
def test_two_names_that_are_one_somewhere_are_refused(names: tuple[str, str]) -> None:
    names = (unicodedata.normalize("NFC", names[0]), unicodedata.normalize("NFC", names[1]))
    if names[0] == names[1]:  # told by the manifest's order, which names itself rises strictly
        check_names(names, MANY)
        return
    with pytest.raises(BundleError, match="are one name"):
        check_names(names, MANY)


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b/c", "a/b"), ("A", "a/b"), ("d/E/f", "d/e")])
def test_a_file_used_as_a_folder_is_refused(names: tuple[str, str]) -> None:
    with pytest.raises(BundleError, match=r"one name|a folder of the same name"):
        check_names(names, MANY)


def test_names_are_bounded_together() -> None:
    many = [f"{number:0500}" for number in range(NAMES_MAX_BYTES // 500 + 1)]
    with pytest.raises(BundleError, match=str(NAMES_MAX_BYTES)):
        check_names(many, MANY)


@pytest.mark.parametrize("filler", ["x", "é", "\u0301", "ก็", "ß", "\u200d", "😀"])
def test_checking_the_most_names_takes_no_second(filler: str) -> None:
    part = unicodedata.normalize("NFC", "a" + filler * 60)
    names = [f"{number:05}/{part}" for number in range(20_000)]
    began = time.process_time()
    try:
        check_names(names, MANY)
    except BundleError as told:
        assert str(NAMES_MAX_BYTES) in str(told)  # wide characters: over the bound
    assert time.process_time() - began < 1.0


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))
def test_whatever_is_taken_is_safe_below_any_folder(name: str) -> None:
    try:
        check_names([name], MANY)
    except BundleError:
        return
    parts = name.split("/")
    assert not name.startswith("/")
    assert not {"", ".", ".."} & set(parts)
    assert not set("\\:\0") & set(name)
    assert len(name.encode()) <= NAME_MAX_BYTES
    assert folded(name) == folded(name.swapcase()) or "ß" in folded(name.swapcase())


def test_what_a_message_shows_of_a_name_is_one_bounded_line() -> None:
    assert shown("a\x1b]0;x\n") == "a\\x1b]0;x\\n"
    assert len(shown("x" * 1000)) == 80


def test_folders_count_like_files() -> None:
    names = [f"{number}/{'d/' * 8}x" for number in range(10)]
    check_names(names, 100)
    with pytest.raises(BundleError, match="more than 99 files and folders"):
        check_names(names, 99)


@pytest.mark.parametrize("name", ["digits", "Zürich 2", "result", "a.b-c_d"])
def test_a_job_may_have_a_name_that_every_machine_can_hold(name: str) -> None:
    check_job_name(name)


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", ".x", "con", "a:b", "x" * 256, "x\u202e", "a.", "e\u0301", "\udc80", "x.part"]
)
def test_a_job_of_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(BundleError):
        check_job_name(name)
