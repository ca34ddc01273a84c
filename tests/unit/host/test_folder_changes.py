"""What counts as dropped, edited and deleted, and what does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from daisychain.host.folder_changes import BELIEVE_S, EMPTIED_S, PLACED_MAX, Changes, FolderChanges

NOTHING = Changes()


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        (tmp_path / "jobs" / name).mkdir(parents=True)
    return tmp_path / "jobs"


ALL = {"a": "1", "b": "2", "c": "3"}


def watched(jobs: Path) -> FolderChanges:
    changes = FolderChanges(jobs)
    assert changes.look(ALL, 0.0) == NOTHING, "what is there at the first look was not dropped just now"
    return changes


def without(*names: str) -> dict[str, str]:
    return {name: digest for name, digest in ALL.items() if name not in names}


def test_a_folder_that_stays_gone_was_deleted_once(jobs: Path) -> None:
    changes = watched(jobs)
    (jobs / "b").rmdir()
    assert changes.look(without("b"), 1.0) == NOTHING
    assert changes.look(without("b"), 0.9 + BELIEVE_S) == NOTHING
    assert changes.look(without("b"), 1.0 + BELIEVE_S) == Changes(deleted=(("b", "2"),))
    assert changes.look(without("b"), 100.0) == NOTHING


def test_a_folder_that_is_still_there_but_no_job_just_now_was_not_deleted(jobs: Path) -> None:
    changes = watched(jobs)
    for now in (1.0, 50.0, 100.0):
        assert changes.look(without("b"), now) == NOTHING
    assert changes.look(ALL, 101.0) == NOTHING, "nor was it dropped anew"


def test_a_folder_that_comes_back_in_time_was_replaced(jobs: Path) -> None:
    changes = watched(jobs)
    (jobs / "b").rmdir()
    changes.look(without("b"), 1.0)
    (jobs / "b").mkdir()
    assert changes.look({**ALL, "b": "9"}, 2.0) == Changes(frozenset({"9"}), (("b", "2"),))
    assert changes.look({**ALL, "b": "9"}, 60.0) == NOTHING


def test_a_folder_that_was_renamed_or_has_a_twin_was_not_deleted(jobs: Path) -> None:
    changes = watched(jobs)
    (jobs / "b").rename(jobs / "z")
    for now in (1.0, 1.0 + BELIEVE_S, 60.0):
        assert changes.look({**without("b"), "z": "2"}, now) == NOTHING


def test_an_edit_back_and_forth_is_two_edits_and_two_drops(jobs: Path) -> None:
    changes = watched(jobs)
    assert changes.look({**ALL, "a": "7"}, 1.0) == Changes(frozenset({"7"}), (("a", "1"),))
    assert changes.look(ALL, 2.0) == Changes(frozenset({"1"}), (("a", "7"),))


def test_a_job_that_is_dropped_again_after_its_deletion_is_dropped(jobs: Path) -> None:
    changes = watched(jobs)
    (jobs / "b").rmdir()
    changes.look(without("b"), 1.0)
    changes.look(without("b"), 1.0 + BELIEVE_S)
    (jobs / "b").mkdir()
    assert changes.look(ALL, 10.0) == Changes(dropped=frozenset({"2"}))


def test_a_jobs_folder_that_vanishes_or_is_another_one_tells_of_no_deletion(jobs: Path) -> None:
    changes = watched(jobs)
    jobs.rename(jobs.with_name("away"))
    for now in (1.0, 40.0, 80.0):
        assert changes.look({}, now) == NOTHING
    jobs.mkdir()  # what lies under a mount that is gone: another inode
    for now in (81.0, 120.0, 160.0):
        assert changes.look({}, now) == NOTHING
    shutil.rmtree(jobs)
    jobs.with_name("away").rename(jobs)
    for now in (161.0, 200.0):
        assert changes.look(ALL, now) == NOTHING, "nor is anything dropped when it comes back"


def test_all_folders_gone_at_once_is_believed_later(jobs: Path) -> None:
    changes = watched(jobs)
    for name in ALL:
        (jobs / name).rmdir()
    changes.look({}, 1.0)
    assert changes.look({}, 1.0 + BELIEVE_S) == NOTHING
    assert changes.look({}, 1.0 + EMPTIED_S) == Changes(deleted=(("a", "1"), ("b", "2"), ("c", "3")))


def test_a_jobs_folder_that_cannot_be_read_tells_of_no_deletion(jobs: Path) -> None:
    changes = watched(jobs)
    for now in (1.0, 40.0):
        assert changes.look(None, now) == NOTHING
    for name in ALL:
        (jobs / name).rmdir()
    assert changes.look({}, 80.0) == NOTHING, "what is there when it can be read again is all that is known"
    assert changes.look({}, 160.0) == NOTHING


def test_a_copy_that_was_fetched_was_not_dropped_by_anybody(jobs: Path) -> None:
    """Landing just as its run is withdrawn, it would otherwise be queued anew."""
    changes = watched(jobs)
    changes.placing("z", (jobs / "b").stat().st_ino)
    assert changes.look(ALL, 0.5) == NOTHING, "it is not there yet"
    (jobs / "b").rename(jobs / "z")  # as a stage is: what it was keeps its inode
    assert changes.look({**without("b"), "z": "9"}, 1.0) == NOTHING
    changes.look({**without("b"), "z": "9"}, 1.0 + BELIEVE_S)
    (jobs / "z").rmdir()
    changes.look(without("b"), 10.0)
    assert changes.look(without("b"), 10.0 + BELIEVE_S) == Changes(deleted=(("z", "9"),))
    (jobs / "z").mkdir()
    assert changes.look({**without("b"), "z": "9"}, 20.0) == Changes(dropped=frozenset({"9"})), "put back"


def test_a_folder_dropped_where_a_fetched_one_was_to_land_was_dropped(jobs: Path) -> None:
    changes = watched(jobs)
    (jobs / "stage").mkdir()
    changes.placing("z", (jobs / "stage").stat().st_ino)
    (jobs / "z").mkdir()
    assert changes.look({**ALL, "z": "9"}, 1.0) == Changes(dropped=frozenset({"9"}))


def test_fetched_copies_that_never_land_do_not_add_up(jobs: Path) -> None:
    changes = watched(jobs)
    for number in range(4 * PLACED_MAX):
        changes.placing(f"z{number}", number)
    assert max(len(it) for it in vars(changes).values() if isinstance(it, dict)) <= PLACED_MAX
