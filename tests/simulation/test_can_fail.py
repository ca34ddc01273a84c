"""The simulator sees a broken core: each of these breaks one rule, and must not get through."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from daisychain.core.compute_world import Applicant
from daisychain.core.effects import Effect, PersistTerm
from daisychain.core.events import Event
from daisychain.core.ids import RunId, Term
from daisychain.core.jobs import JobCard
from daisychain.core.machine import Machine
from daisychain.core.node import NodeInfo
from daisychain.core.rendezvous import Rendezvous
from daisychain.core.settings import CoreSettings
from daisychain.core.trainer_watch import TrainerWatch
from daisychain.core.world_phase import Post, Roll
from simulation.faults import run_seed
from simulation.node import MachineMaker, make_machine
from simulation.story import Violation

SEEDS = 60


class Forgetful(Machine):
    """Tells terms that it never wrote down."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        return [effect for effect in super().handle(event, now) if not isinstance(effect, PersistTerm)]


class Hasty(Rendezvous):
    """Calls a run finished as soon as a world runs."""

    def finished(self, run_id: RunId, applicants: Iterable[Applicant]) -> bool:
        return super().finished(run_id, applicants) or type(self.phase).__name__ == "Running"


class Repeating(Rendezvous):
    """Hands out generations that do not rise."""

    def review(self, roll: Roll, now: float) -> list[Post]:
        self._counter = 0
        return super().review(roll, now)


class Credulous(TrainerWatch):
    """Enters any world that it is told of, older ones too."""

    @property
    def able(self) -> bool:
        self._highest = None
        return super().able


def with_part(name: str, kind: type) -> MachineMaker:
    """Return a maker of machines one part of which is of another class."""

    def make(
        info: NodeInfo, settings: CoreSettings, term: Term, ledger: tuple[JobCard, ...], seed: int, now: float
    ) -> Machine:
        machine = make_machine(info, settings, term, ledger, seed, now)
        getattr(machine._parts, name).__class__ = kind
        return machine

    return make


def forgetful(
    info: NodeInfo, settings: CoreSettings, term: Term, ledger: tuple[JobCard, ...], seed: int, now: float
) -> Machine:
    machine = make_machine(info, settings, term, ledger, seed, now)
    machine.__class__ = Forgetful
    return machine


@pytest.mark.parametrize(
    ("make", "what"),
    [
        pytest.param(forgetful, "on its disk", id="a term is not written down"),
        pytest.param(with_part("rendezvous", Hasty), "finished at step", id="a run ends too early"),
        pytest.param(with_part("rendezvous", Repeating), "enters", id="a generation does not rise"),
        pytest.param(with_part("watch", Credulous), "enters", id="an old world is entered"),
    ],
)
def test_a_broken_core_is_seen(make: MachineMaker, what: str) -> None:
    with pytest.raises(Violation, match=what):
        for seed in range(SEEDS):
            run_seed(seed, make)
