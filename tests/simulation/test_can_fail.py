"""The simulator sees a broken core: each of these breaks one rule, and must not get through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from daisychain.core.compute_world import Applicant
from daisychain.core.effects import Effect, PersistTerm
from daisychain.core.election import Election, Voice
from daisychain.core.events import Event
from daisychain.core.ids import NodeId, RunId, Term
from daisychain.core.jobs import JobCard
from daisychain.core.machine import Machine
from daisychain.core.node import NodeInfo
from daisychain.core.rendezvous import Rendezvous
from daisychain.core.settings import CoreSettings
from daisychain.core.shares import Capacity, split
from daisychain.core.trainer_watch import TrainerWatch
from daisychain.core.world_phase import Post, Roll, Running
from simulation import content, rooms
from simulation.node import MachineMaker, make_machine
from simulation.scenario import run_seed
from simulation.story import Violation
from simulation.trainer import SimTrainer

SEEDS = 200


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


class Aloof(Rendezvous):
    """Takes nobody into a world that runs."""

    def review(self, roll: Roll, now: float) -> list[Post]:
        posts = super().review(replace(roll, applicants=self._members(roll)), now)
        return posts

    def _members(self, roll: Roll) -> tuple[Applicant, ...]:
        if not isinstance(self.phase, Running):
            return roll.applicants
        plan = self.phase.plan
        return tuple(a for a in roll.applicants if plan.rank_of(a.info.node_id) is not None)


class Credulous(TrainerWatch):
    """Enters any world that it is told of, older ones too."""

    @property
    def able(self) -> bool:
        self._highest = None
        return super().able


class Democrat(Election):
    """Claims a term only while it hears somebody else."""

    def review(self, voices: Sequence[Voice], now: float) -> bool:
        return bool(voices) and super().review(voices, now)

    def deadline(self, voices: Sequence[Voice]) -> float | None:
        return super().deadline(voices) if voices else None


class Stubborn(Election):
    """Leads on whoever else does."""

    def adopt(self, term: Term) -> bool:
        return not self.leading and super().adopt(term)

    def rival(self, term: Term, leading: bool) -> bool:
        return False


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


def amnesiac(
    info: NodeInfo, settings: CoreSettings, term: Term, ledger: tuple[JobCard, ...], seed: int, now: float
) -> Machine:
    """Return a machine that does not read the term on its disk."""
    return make_machine(info, settings, Term(0, NodeId("")), ledger, seed, now)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        pytest.param(forgetful, "on its disk", id="a term is not written down"),
        pytest.param(amnesiac, "writes term|tells term", id="a term is forgotten at a restart"),
        pytest.param(with_part("rendezvous", Hasty), "finished at step", id="a run ends too early"),
        pytest.param(with_part("rendezvous", Repeating), "hands out", id="a generation does not rise"),
        pytest.param(with_part("rendezvous", Aloof), "not together again", id="nobody joins"),
        pytest.param(with_part("watch", Credulous), "enters", id="an old world is entered"),
        pytest.param(with_part("election", Democrat), "no step in", id="a lone node waits for others"),
        pytest.param(with_part("election", Stubborn), "not together again", id="two lead on"),
    ],
)
def test_a_broken_core_is_seen(make: MachineMaker, what: str) -> None:
    with pytest.raises(Violation, match=what):
        for seed in range(SEEDS):
            run_seed(seed, make)


def test_a_sample_that_nobody_computes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def lossy(capacities: Sequence[Capacity], units: int) -> tuple[int, ...]:
        return split(capacities, units - (len(capacities) == 3))

    content.shares_of.cache_clear()
    monkeypatch.setattr(content, "split", lossy)
    with pytest.raises(Violation, match="another content of step"):
        for seed in range(SEEDS):
            run_seed(seed)
    content.shares_of.cache_clear()


def test_a_trainer_in_two_worlds_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimTrainer, "_leave", lambda self: setattr(self, "room", None))  # its sockets stay
    with pytest.raises(Violation, match="out of another world"):
        for seed in range(SEEDS):
            run_seed(seed)


def test_a_state_older_than_the_greatest_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "donor_of", lambda inside: min(inside, key=lambda trainer: trainer.step))
    with pytest.raises(Violation, match="falls from step"):
        for seed in range(SEEDS):
            run_seed(seed)
