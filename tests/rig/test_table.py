"""The table of faults: complete, explained, and covered by its selection."""

from __future__ import annotations

import pytest

from rig.chain import ROOT
from rig.jobs import Mode
from rig.matrix import LINES, Fate, Fault, Phase, Role, must_cover, rows, selection

TABLE = rows()


def test_every_fault_has_a_line_and_every_row_one_name() -> None:
    assert {line.fault for line in LINES} == set(Fault)
    names = [row.name for row in TABLE]
    assert len(set(names)) == len(names)
    assert {row.mode for row in TABLE} == set(Mode)
    assert len({row.name.rpartition("/")[0] for row in TABLE}) * len(Mode) == len(TABLE)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.fault)
def test_whatever_is_left_out_is_explained_and_whatever_stands_by_says_why(line) -> None:  # type: ignore[no-untyped-def]
    assert (set(line.phases) == set(Phase)) == (not line.left_out)
    assert line.expected.fate is not Fate.STANDS_BY or line.expected.says


def test_the_selection_shows_every_fault_every_phase_and_every_pair_of_fault_and_role() -> None:
    chosen = selection(TABLE)
    assert {row.fault for row in chosen} == set(Fault)
    assert {row.phase for row in chosen} == set(Phase)
    assert {(row.fault, row.role) for row in chosen} == {
        (line.fault, role) for line in LINES for role in line.roles
    }
    assert {(row.phase, row.mode) for row in chosen} == {(phase, mode) for phase in Phase for mode in Mode}
    assert must_cover(chosen) == must_cover(TABLE)
    assert len(chosen) <= len({(row.fault, row.role) for row in TABLE}) + len(Phase)


def test_a_selection_follows_the_table() -> None:
    few = [row for row in TABLE if row.fault is Fault.LINK_CUT and row.role is Role.WORKER]
    assert must_cover(selection(few)) == must_cover(few)
    assert all(row in few for row in selection(few))


def test_nobody_comes_back_before_the_end_of_the_last_step() -> None:
    last = [row for row in TABLE if row.phase is Phase.LAST_STEP]
    assert last
    assert all(row.expected.fate in (Fate.GONE, Fate.LATE) for row in last)


def test_every_fault_is_told_to_people() -> None:
    told = (ROOT / "docs" / "RELIABILITY.md").read_text()
    assert not [fault.value for fault in Fault if f"`{fault}`" not in told]
