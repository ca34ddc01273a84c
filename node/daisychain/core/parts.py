"""The parts of one node's machine, and what they say together."""

from __future__ import annotations

from daisychain.core.candidates import Candidates
from daisychain.core.compute_world import Applicant
from daisychain.core.effects import Part
from daisychain.core.election import Election, Voice
from daisychain.core.failures import Failures
from daisychain.core.fetching import Fetching
from daisychain.core.ids import ClusterId, NodeId, RunId, Term
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.membership import Health, Membership, Peer
from daisychain.core.node import NodeInfo, NodeStatus, TrainerState
from daisychain.core.pace import Pace
from daisychain.core.pulse import Pulse, chain_part, urgent_part
from daisychain.core.queue import JobQueue
from daisychain.core.queue_view import Situation, queue_view
from daisychain.core.rendezvous import Rendezvous
from daisychain.core.results import FolderReport, told_results
from daisychain.core.rng import Rng
from daisychain.core.settings import CoreSettings
from daisychain.core.snapshot import peer_views
from daisychain.core.strangers import Strangers
from daisychain.core.trainer_watch import TrainerWatch
from daisychain.core.view import ChainView
from daisychain.core.world_phase import Idle, Roll
from daisychain.core.written import Written


class Parts:
    """Everything that one node knows, and the questions that need more than one part to answer.

    Attributes:
        current: the run that the chain trains, as far as this node knows.
        chosen_at: since when.
        standby: why this node does not train it; empty when it does.
        folders, results: the folders and the results of runs that this node fetches.
        beside: what is in its jobs folder beside the jobs.
        written: the runs whose result is in it while others still write theirs.
        bundle_pace: bytes a second at which bundles may move; 0 = as fast as it goes.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a node is made of; see Machine
        self,
        info: NodeInfo,
        cluster_id: ClusterId,
        settings: CoreSettings,
        term: Term,
        ledger: tuple[JobCard, ...],
        seed: int,
        now: float,
    ) -> None:
        rng = Rng(seed)
        self.info = info
        self.cluster_id = cluster_id
        self.settings = settings
        self.candidates = Candidates(settings, rng)
        self.strangers = Strangers(settings.strangers_max)
        self.members = Membership(info, settings)
        self.election = Election(info.node_id, term, settings, now)
        self.queue = JobQueue(ledger)
        self.watch = TrainerWatch(settings)
        self.failures = Failures()
        self.rendezvous = Rendezvous(info, settings, rng)
        self.pace = Pace()
        self.pulse = Pulse(settings.heartbeat_s, now)
        self.current: RunId | None = None
        self.chosen_at = now
        self.standby = ""
        self.folders = Fetching(Part.FOLDER, settings)
        self.results = Fetching(Part.RESULT, settings)
        self.beside = FolderReport(settled=False)  # nobody has looked yet
        self.written = Written()
        self.bundle_pace = 0.0

    def voice(self, peer: Peer, status: NodeStatus) -> Voice:
        """Return what a peer has to say in an election."""
        candidate = peer.alive and self.info.node_id in status.reachable
        return Voice(peer.info.node_id, status.term, status.leading, status.reachable, candidate)

    def voices(self) -> list[Voice]:
        """Return what every present peer has to say in an election; once decided, the winner's voice."""
        leader = self.leader()
        peer = None if leader is None else self.members.get(leader)
        peers = self.members if leader is None else () if peer is None else (peer,)
        return [self.voice(p, p.status) for p in peers if p.present and p.status is not None]

    def leader(self) -> NodeId | None:
        """Return who coordinates, as far as this node hears it itself."""
        election, node_id = self.election, self.election.term.node_id
        if election.leading:
            return self.info.node_id
        peer = self.members.get(node_id)
        status = peer.status if peer is not None and peer.present else None
        return node_id if status is not None and status.leading and status.term == election.term else None

    def concerned(self, peer: Peer, old: NodeStatus, new: NodeStatus) -> bool:
        """Whether a peer's new status is looked at right now; if not, it is with the next regular beat.

        A coordinator minds whatever its members tell, and so does a node that has just lost its own. All
        others mind the coordinator's status, and of the rest what is of the whole chain: while a large
        chain forms a world, everybody tells everybody many things that only one of them decides on.
        """
        leader = self.leader()
        deciding = self.election.leading or (leader is None and not self.election.settling)
        if deciding or peer.info.node_id == leader:
            return urgent_part(old) != urgent_part(new)
        return chain_part(old) != chain_part(new)

    def linked(self) -> list[NodeId]:
        """Return the peers that messages can be sent to."""
        return [peer.info.node_id for peer in self.members if peer.linked]

    def unwanted(self) -> set[NodeId]:
        """Return the nodes that need no dial."""
        return {peer.info.node_id for peer in self.members if peer.linked or peer.health is Health.LEFT}

    def available(self) -> set[RunId]:
        """Return the runs that some present node holds or has loaded."""
        runs = set(self.queue.held())
        statuses = [peer.status for peer in self.members if peer.present and peer.status is not None]
        for status in statuses:
            runs.update(status.holds)
        for trainer in [self.watch.status, *(status.trainer for status in statuses)]:
            if trainer.run_id is not None:
                runs.add(trainer.run_id)
        return runs

    def believed(self) -> frozenset[RunId]:
        """Return the runs that some present peer tells as queued or running."""
        statuses = [peer.status for peer in self.members if peer.present and peer.status is not None]
        return frozenset(card.run_id for status in statuses for card in status.jobs if not card.state.ended)

    def training(self, run_id: RunId) -> tuple[str, ...]:
        """Return the names of the other present nodes that are in a world of this run, sorted."""
        trainers = [
            (p.info.name, p.status.trainer) for p in self.members if p.present and p.status is not None
        ]
        return tuple(sorted(name for name, t in trainers if t.run_id == run_id and t.generation is not None))

    def foreseen(self) -> JobCard | None:
        """Return the run to load while this node still settles: the one that it would choose itself.

        Whoever leads in the end most likely chooses the same, and loading takes longer than settling. A
        trainer that is there already stays: what it holds may be needed.
        """
        head = self.queue.head(self.available()) if self.election.settling else None
        fits = head is not None and self.watch.status.run_id in (None, head.run_id)
        return head if fits else None

    def applicants(self) -> tuple[Applicant, ...]:
        """Return every present node, this one first, as the rendezvous sees it."""
        current = self.current
        mine = Applicant(
            info=self.info,
            trainer=self.watch.status,
            reachable=self.members.reachable(),
            holds=current in self.queue.held(),
            standby=self.standby,
        )
        others = [
            Applicant(
                info=peer.info,
                trainer=peer.status.trainer,
                reachable=peer.status.reachable,
                holds=current in peer.status.holds,
                doubtful=not peer.alive,
                standby=peer.status.standby,
            )
            for peer in self.members
            if peer.present and peer.status is not None
        ]
        return (mine, *others)

    def roll(self, card: JobCard | None) -> Roll:
        """Return what the rendezvous decides by."""
        election = self.election
        return Roll(election.term, card, self.chosen_at, self.applicants(), election.quiet_at)

    def status(self) -> NodeStatus:
        """Return what peers are told."""
        return NodeStatus(
            incarnation=self.info.incarnation,
            term=self.election.term,
            leading=self.election.leading,
            reachable=self.members.reachable(),
            jobs=self.queue.told(self.believed() if self.queue.ended() else ()),
            trainer=self.watch.status,
            standby=self.standby,
            holds=self.queue.held(),
            current=self.current,
            results=told_results(self.beside.results, self.queue.all()),
        )

    def deadline(self, now: float, voices: list[Voice]) -> float:
        """Return when any part next has something to do."""
        deadlines = [
            self.members.deadline(now),
            self.election.deadline(voices),
            self.watch.deadline(now),
            self.rendezvous.deadline(now) if self.election.leading else None,
            self.candidates.deadline(now, self.unwanted()),
            self.folders.deadline(),
            self.results.deadline(),
            self.pulse.deadline(),
        ]
        return min(deadline for deadline in deadlines if deadline is not None)

    def fetching(self, part: Part) -> Fetching:
        """Return who decides on the fetches of this part."""
        return self.folders if part is Part.FOLDER else self.results

    def choose(self, now: float) -> JobCard | None:
        """Return the run that the chain trains: our own choice when leading, else the coordinator's."""
        leader = self.leader()
        if self.queue.stray():
            self.queue.prune(self.available())
        if leader == self.info.node_id:
            card = self.queue.pick(self.current, self.available())
        else:
            peer = None if leader is None else self.members.get(leader)
            status = None if peer is None else peer.status
            named = None if status is None else status.current
            if leader is None:  # a moment without a coordinator changes nothing
                named = self.watch.status.run_id
            card = None if named is None else self.queue.get(named)
            loaded_ahead = leader is None and card is not None and card.state is JobState.QUEUED
            if card is not None and (card.state.ended or card.state is JobState.PAUSED or loaded_ahead):
                card = None
        chosen = None if card is None else card.run_id
        if chosen != self.current:
            self.current, self.chosen_at = chosen, now
        return card

    def at_work(self) -> frozenset[RunId]:
        """Return the runs that some present node's trainer trains, or writes the result of."""
        trainers = [peer.status.trainer for peer in self.members if peer.present and peer.status is not None]
        trainers.append(self.watch.status)
        runs = [trainer.run_id for trainer in trainers if trainer.state is TrainerState.TRAINING]
        return frozenset(run_id for run_id in runs if run_id is not None)

    def end_what_is_written(self) -> None:
        """A run whose result lies in our folder is over once nobody is at work on it any more."""
        for run_id in self.written.over(self.at_work()):
            self.queue.mark(run_id, JobState.FINISHED)

    def end_what_was_paused_too_late(self) -> None:
        """A paused run whose final state our trainer holds, its result written, is over."""
        trainer = self.watch.status
        if trainer.state is TrainerState.DONE and trainer.run_id is not None:
            card = self.queue.get(trainer.run_id)
            if card is not None and card.state is JobState.PAUSED:
                self.queue.mark(card.run_id, JobState.FINISHED)

    def watch_pace(self, now: float) -> None:
        """Take note of how far the chain's run is."""
        card = None if self.current is None else self.queue.get(self.current)
        if card is not None and card.step:
            self.pace.seen(card.run_id, card.step, now)

    def situation(self, waiting: str, now: float) -> Situation:
        """Return what people are told of the queue from."""
        present = [
            (p.info.name, p.status.trainer) for p in self.members if p.present and p.status is not None
        ]
        card = None if self.current is None else self.queue.get(self.current)
        pace = None if card is None else self.pace.steps_per_s(card.run_id, card.step, now)
        here = ((self.info.name, self.watch.status), *present)
        return Situation(self.current, here, self.available(), pace, waiting)

    def view(self, now: float) -> ChainView:
        """Return what this node knows of the chain."""
        phase = self.rendezvous.phase
        coordinated = None if isinstance(phase, Idle) else phase.plan
        world = self.watch.plan or coordinated
        waiting = phase.waiting if self.election.leading and isinstance(phase, Idle) else ""
        return ChainView(
            cluster_id=self.cluster_id,
            me=self.info,
            term=self.election.term,
            coordinator=self.leader(),
            peers=peer_views(self.members, self.rendezvous.left_out.items(), now),
            strangers=self.strangers.all(),
            jobs=self.queue.all(),
            trainer=self.watch.status,
            world=self.watch.plan,
            progress=self.watch.progress,
            standby=self.standby,
            waiting=waiting,
            queue=queue_view(self.queue.all(), self.situation(waiting, now)),
            caution="" if world is None else world.caution,
        )
