"""The jobs folder under watch: news at once, silence while nothing changes, an end when asked."""

from __future__ import annotations

import threading
from pathlib import Path

from daisychain.core.ids import NodeId
from daisychain.host.bundles.results import ResultBook
from daisychain.host.clock import SystemClock
from daisychain.host.folder_changes import Changes
from daisychain.host.job_folder import JobFolderSettings
from daisychain.runtime.folder_watch import QUIET_S, FolderWatch, Look
from support.waiting import until

ME = NodeId("a" * 32)
OTHER = ".daisychain-node-" + "b" * 32


class Stepping(SystemClock):
    """A clock that goes on by ``step_s`` between two looks, and stands still during each."""

    def __init__(self) -> None:
        self.step_s = 0.0
        self.now = 0.0
        self._calls = 0

    def begin(self, step_s: float) -> None:
        """From the next call of `FolderWatch.next` on, whose first look at the clock is its own."""
        self.step_s, self._calls = step_s, 0

    def monotonic(self) -> float:
        self._calls += 1
        if self._calls % 2 == 0:
            self.now += self.step_s
        return self.now


def watch(folder: Path, clock: SystemClock, poll_s: float = 0.01) -> FolderWatch:
    jobs = folder / "jobs"
    jobs.mkdir(exist_ok=True)
    settings = JobFolderSettings(poll_s=poll_s, settle_s=0.0)
    return FolderWatch(jobs, ME, ResultBook(folder / "results.json"), settings, clock)


def test_the_first_look_is_told_at_once_and_the_second_is_settled(tmp_path: Path) -> None:
    watched = watch(tmp_path, Stepping())
    first, _ = watched.next(None)
    assert first == Look()
    second, changes = watched.next(first)
    assert second == Look(settled=True)
    assert changes == Changes()


def test_a_folder_that_stands_still_is_looked_at_often_and_told_seldom(tmp_path: Path) -> None:
    clock = Stepping()
    watched = watch(tmp_path, clock, poll_s=0.0)
    look, _ = watched.next(None)
    look, _ = watched.next(look)
    clock.begin(QUIET_S / 4)
    same, _ = watched.next(look)
    assert same == look
    assert clock.now == QUIET_S, "four looks, one word"


def test_what_is_new_is_told_before_the_silence_is_over(tmp_path: Path) -> None:
    watched = watch(tmp_path, SystemClock())
    look, _ = watched.next(None)
    look, _ = watched.next(look)
    heard: list[Look] = []
    listening = threading.Thread(target=lambda: heard.append(watched.next(look)[0]))
    listening.start()
    (tmp_path / "jobs" / OTHER).write_text("b" * 32)
    listening.join(QUIET_S)
    assert [told.sharers for told in heard] == [frozenset({NodeId("b" * 32)})]


def test_a_watch_that_waits_ends_when_asked(tmp_path: Path) -> None:
    watched = watch(tmp_path, SystemClock(), poll_s=60.0)
    look, _ = watched.next(None)
    listening = threading.Thread(target=watched.next, args=(look,))
    listening.start()
    watched.stop()
    until(lambda: not listening.is_alive(), 5.0, "it goes on")


def test_a_copy_that_was_fetched_is_found_whole_at_once(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    settings = JobFolderSettings(poll_s=60.0, settle_s=60.0)
    watched = FolderWatch(jobs, ME, ResultBook(tmp_path / "results.json"), settings, SystemClock())
    look, _ = watched.next(None)
    stage = tmp_path / "stage"
    stage.mkdir()
    (stage / "job.yaml").write_text("kind: python\nfile: net.py\nglobal_batch_size: 4\nsteps: 3\n")
    (stage / "net.py").write_text("")
    heard: list[Look] = []
    listening = threading.Thread(target=lambda: heard.append(watched.next(look)[0]))
    listening.start()
    watched.placing("net", stage.stat().st_ino)
    stage.rename(jobs / "net")
    watched.look_now()
    listening.join(5.0)
    assert [[job.name for job in told.jobs] for told in heard] == [["net"]]
