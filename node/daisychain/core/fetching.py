"""Which run's files this node fetches, from whom, and when it tries again: pure decisions.

Which chunk is asked of whom is the affair of `chunk_schedule`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from daisychain.core.effects import DropFetch, Effect, Fetch, Level, Note, Part, RecordJob, Source
from daisychain.core.ids import NodeId, RunId
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.settings import CoreSettings


@dataclass(frozen=True, slots=True)
class Lack:
    """Files of a run that this node does not have, and the nodes that do, by name.

    ``digest``: of the files as a bundle.
    """

    card: JobCard
    digest: str
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class _Setback:
    """A fetch of the bundle with this digest that ended, from the nodes ``tried``.

    ``due_at``: when it is tried again; ``count``: how often it failed; 0 when it is here, not yet looked at.
    """

    digest: str
    count: int
    due_at: float
    reason: str
    tried: frozenset[NodeId]


class Fetching:
    """One fetch at a time of one part (job folders, or results); what was verified is kept by the fetcher."""

    def __init__(self, part: Part, settings: CoreSettings) -> None:
        self._part = part
        self._settings = settings
        self._under_way: Lack | None = None
        self._setbacks: dict[RunId, _Setback] = {}
        self._due_at: float | None = None

    def review(self, lacking: Sequence[Lack], now: float) -> list[Effect]:
        """Fetch the first of what is lacking (the most wanted comes first) that somebody has and that is due.

        A run that is no longer lacking, or that waits behind a more wanted one, is dropped; a change of
        the nodes that have it is passed on.
        """
        wanted_runs = {lack.card.run_id for lack in lacking}
        self._setbacks = {run_id: s for run_id, s in self._setbacks.items() if run_id in wanted_runs}
        offered = [lack for lack in lacking if lack.sources]
        due = [lack for lack in offered if self._is_due(lack, now)]
        waits = [self._setbacks[lack.card.run_id].due_at for lack in offered if lack not in due]
        self._due_at = min(waits, default=None)
        wanted = due[0] if due else None
        before, self._under_way = self._under_way, wanted
        effects: list[Effect] = []
        same = before is not None and wanted is not None and _same_bundle(before, wanted)
        if before is not None and not same:
            effects.append(DropFetch(before.card.run_id, self._part))
        if wanted is not None and not (same and before is not None and before.sources == wanted.sources):
            if self._part is Part.FOLDER and not same:  # so that the folder is known as this very run
                effects.append(RecordJob(replace(wanted.card, state=JobState.QUEUED, step=0)))
            effects.append(Fetch(wanted.card, self._part, wanted.digest, wanted.sources))
        return effects

    def arrived(self, run_id: RunId, now: float) -> None:
        """The files are in place; they are not asked for again while they are still being looked at."""
        lack = self._ended(run_id)
        if lack is not None:
            everybody = frozenset(source.node_id for source in lack.sources)
            self._setbacks[run_id] = _Setback(lack.digest, 0, now + self._settings.fetched_s, "", everybody)

    def failed(self, run_id: RunId, reason: str, now: float) -> list[Effect]:
        """The fetch gave up; it is tried again after a wait that doubles each time.

        It is said when the reason is new.
        """
        lack = self._ended(run_id)
        if lack is None:
            return []
        former = self._setbacks.get(run_id)
        count = 1 if former is None else former.count + 1
        settings = self._settings
        wait_s = min(settings.fetch_retry_max_s, settings.fetch_retry_s * 2.0 ** min(count - 1, 16))
        tried = frozenset(source.node_id for source in lack.sources)
        self._setbacks[run_id] = _Setback(lack.digest, count, now + wait_s, reason, tried)
        if former is not None and _kind(former.reason) == _kind(reason):
            return []  # said already; who stands by for it goes on telling why
        where = f"jobs/{lack.card.name}" + ("" if self._part is Part.FOLDER else "/result")
        again = f"tried again in {wait_s:g} s, then every {settings.fetch_retry_max_s:g} s at the latest"
        text = f"{where} could not be fetched: {reason}; {again}"
        return [Note(Level.WARNING, text, f"fetch {run_id}")]

    def told(self, run_id: RunId) -> str:
        """Return how far this node is with the run's files, for people; empty when nobody has them."""
        lack, setback = self._under_way, self._setbacks.get(run_id)
        if lack is not None and lack.card.run_id == run_id:
            return f"fetching jobs/{lack.card.name} from {', '.join(s.name for s in lack.sources)}"
        if setback is None:
            return ""
        if setback.count == 0:
            return "looking at the files that were fetched"
        return f"could not fetch the job's folder: {setback.reason}. It tries again"

    def deadline(self) -> float | None:
        """Return when a fetch that failed is due again."""
        return self._due_at

    def _ended(self, run_id: RunId) -> Lack | None:
        """Return the fetch of this run that was under way, and that has ended."""
        lack = self._under_way
        if lack is None or lack.card.run_id != run_id:
            return None
        self._under_way = None
        return lack

    def _is_due(self, lack: Lack, now: float) -> bool:
        """Whether it may be tried: no setback, its wait is over, or somebody has it who was not asked yet.

        A setback with another bundle (of a result a lesser one turned up) is none.
        """
        setback = self._setbacks.get(lack.card.run_id)
        if setback is None or setback.digest != lack.digest or now >= setback.due_at:
            return True
        return setback.count > 0 and any(source.node_id not in setback.tried for source in lack.sources)


def _kind(reason: str) -> str:
    """Return a reason without its numbers: the free bytes of a disk are others with every look."""
    return "".join(character for character in reason if not character.isdigit())


def _same_bundle(one: Lack, other: Lack) -> bool:
    return (one.card.run_id, one.digest) == (other.card.run_id, other.digest)


def pace_beside_training(settings: CoreSettings) -> float:
    """Return the bytes a second at which bundles may move while a run trains.

    A step that is all communication, on a link of ``link_bytes_per_s`` of which bundles take r, takes
    link / (link - r) times as long. Held to ``1 + bundle_slowdown`` times, r is at most
    link x slowdown / (1 + slowdown).
    """
    slowdown = settings.bundle_slowdown
    return settings.link_bytes_per_s * slowdown / (1.0 + slowdown)
