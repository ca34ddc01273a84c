"""How each run of a simulated chain may end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard, JobState
from simulation.parts import WHY, BadParts


@dataclass(frozen=True, slots=True)
class Ends:
    """What was done to the runs.

    A run with a sample that no node can compute has failed, on every node and for that reason; any other
    one is finished, unless it is one of ``may_fail``. One that a user cancelled may have ended in any way.

    Attributes:
        steps: of each whole run.
    """

    steps: Mapping[RunId, int]
    cancelled: Collection[RunId]
    may_fail: Collection[RunId]
    bad: BadParts

    def objection(self, card: JobCard) -> str:
        """Return what is wrong with the end of a run; empty when it is as it should be."""
        doomed = any(run_id == card.run_id for run_id, _ in self.bad.samples)
        fits = {JobState.FAILED} if doomed else {JobState.FINISHED}
        if card.run_id in self.may_fail:
            fits.add(JobState.FAILED)
        if card.run_id not in self.cancelled and card.state not in fits:
            return f"{card.run_id} is {card.state}: {card.reason}"
        if card.state is JobState.FAILED and WHY not in card.reason:
            return f"{card.run_id} failed for another reason: {card.reason}"
        if card.state is JobState.FINISHED and card.step != self.steps[card.run_id]:
            return f"{card.run_id} finished at step {card.step}"
        return ""
