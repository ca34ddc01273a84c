"""One node, event by event: whom it dials, admits, suspects and buries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daisychain.core.effects import (
    CloseLink,
    Dial,
    Note,
    PersistTerm,
    Send,
)
from daisychain.core.events import (
    CandidateSeen,
    DialFailed,
    InboundLost,
    LinkDown,
    LinkUp,
)
from daisychain.core.ids import Address, ClusterId, Generation, Term
from daisychain.core.messages import Goodbye, Heartbeat, HeartbeatAck, PlanWorld
from daisychain.core.reports import (
    LocalBlob,
    Phase,
    Pong,
    Progress,
    RunFailed,
    WorldFormed,
)
from daisychain.wire.codec import PEER_CODEC
from unit.core.chains import (
    CLUSTER,
    LEADER,
    RUN,
    SETTINGS,
    Bench,
    follower,
    generation,
    info,
    node_id,
    of,
    plan,
    status,
    told,
)


def test_a_candidate_is_dialled_and_admitted_and_told_our_status() -> None:
    bench = Bench()
    assert bench.do(CandidateSeen("mdns", info(2).address))[-1] == Dial(info(2).address)
    effects = bench.link(2)
    assert len(told(effects)) == 1
    effects = bench.beat(2, status(reachable=(1, 2)))
    assert Send(node_id(2), HeartbeatAck(1)) in effects
    assert told(effects)[0].reachable == (node_id(1), node_id(2))


def test_a_neighbour_of_another_cluster_is_named_and_never_dialled() -> None:
    bench = Bench()
    address = Address("10.0.0.77", 7000)
    effects = bench.do(CandidateSeen("mdns", address, cluster_id=ClusterId("f" * 16)))
    assert of(Dial, effects) == []
    (stranger,) = bench.machine.view(0.0).strangers
    assert stranger.address == address
    assert "daisychain key" in stranger.reason


def test_a_neighbour_whose_key_is_another_is_named_once_with_the_line_that_joins_it() -> None:
    bench = Bench()
    address, reason = Address("10.0.0.9", 7000), "it belongs to cluster feed; run `daisychain key join`"
    bench.do(CandidateSeen("seed", address))
    effects = bench.do(DialFailed(address, False, reason))
    assert [note.text for note in effects if isinstance(note, Note)] == [f"no peer at {address}: {reason}"]
    assert [stranger.reason for stranger in bench.machine.view(bench.now).strangers] == [reason]
    bench.wait(20.0)
    assert of(Note, bench.do(DialFailed(address, False, reason))) == []


def test_a_user_error_of_any_length_does_not_silence_the_heartbeats() -> None:
    bench = follower()
    bench.ready()
    effects = bench.report(RunFailed(RUN, "net.py:3", "x" * 900_000, "Shorten it"))
    heartbeat = next(e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Heartbeat))
    assert len(PEER_CODEC.encode(heartbeat)) < 10_000


def test_a_clone_of_this_node_is_refused() -> None:
    bench = Bench()
    clone = replace(info(1), machine_id="another", address=Address("10.0.0.66", 7000))
    effects = bench.do(LinkUp(clone, clone.address, "10.0.0.1"))
    assert [e for e in of(CloseLink, effects) if isinstance(e, CloseLink) and "cloned" in e.reason]
    assert [e for e in of(Note, effects) if isinstance(e, Note) and "cloned" in e.text]
    assert bench.machine.view(0.0).peers == ()


def test_a_reset_and_a_refusal_mean_death_at_once() -> None:
    bench = follower()
    effects = bench.do(LinkDown(node_id(2), True, "reset"))
    assert of(Dial, effects) == [Dial(info(2).address)]
    assert bench.machine.view(bench.now).peers[0].health == "suspect"
    effects = bench.do(DialFailed(info(2).address, refused=True, reason="refused"))
    assert bench.machine.view(bench.now).peers[0].health == "dead"
    assert of(PersistTerm, effects) == [PersistTerm(Term(5, node_id(1)))]
    assert bench.machine.view(bench.now).coordinator == node_id(1)


def test_a_reset_alone_is_mended_by_the_next_dial() -> None:
    bench = follower()
    bench.do(LinkDown(node_id(2), True, "reset"))
    bench.link(2)
    view = bench.machine.view(bench.now)
    assert (view.peers[0].health, view.coordinator) == ("alive", node_id(2))


def test_a_lost_inbound_link_is_probed_at_once() -> None:
    bench = follower()
    effects = bench.do(InboundLost(node_id(2), True))
    assert len(told(effects)) == 1
    bench.hear(2, HeartbeatAck(1))
    assert bench.machine.view(bench.now).peers[0].health == "alive"


def test_a_goodbye_counts_at_once_but_not_from_an_earlier_life() -> None:
    bench = follower()
    bench.link(2, incarnation=2)
    bench.hear(2, Goodbye(1, "late"))
    assert bench.machine.view(bench.now).peers[0].health == "alive"
    effects = bench.hear(2, Goodbye(2, "asked to"))
    assert bench.machine.view(bench.now).peers[0].health == "left"
    assert of(CloseLink, effects) != []


@pytest.mark.parametrize("source", ["mdns", "inbound"])
@pytest.mark.parametrize("port_again", [True, False])
def test_who_left_and_is_seen_again_is_dialled_and_comes_back(source: str, port_again: bool) -> None:
    bench = follower()
    bench.hear(2, Goodbye(1, "asked to"))
    old = info(2).address
    address = old if port_again else Address(old.host, old.port + 1)
    effects = bench.do(CandidateSeen(source, address, node_id(2), CLUSTER)) + bench.wait(SETTINGS.redial_s)
    assert Dial(address) in effects
    bench.do(LinkUp(replace(info(2, incarnation=2), address=address), address, "10.0.0.1"))
    bench.hear(2, Heartbeat(1, replace(status(LEADER, (1, 2)), incarnation=2)))
    assert bench.machine.view(bench.now).peers[0].health == "alive"


def member() -> tuple[Bench, Generation]:
    """A node in a world with node 2, and that world's generation."""
    bench = follower()
    bench.ready()
    bench.hear(2, PlanWorld(plan(1, (2, 1), LEADER)))
    current = generation(1, LEADER)
    bench.report(LocalBlob(current, 1, b"me"))
    bench.report(WorldFormed(current, 0, 0, False, 0.1))
    return bench, current


@pytest.mark.parametrize(
    ("counter", "quiet_s", "health"),
    [
        pytest.param(1, 0.3, "alive", id="data comes"),
        pytest.param(1, 1.0, "suspect", id="none came for a second"),
        pytest.param(1, 5.0, "dead", id="none came for five"),
        pytest.param(2, 0.0, "dead", id="it came in another world"),
        pytest.param(None, 0.0, "dead", id="there is no world"),
    ],
)
def test_data_of_a_step_that_takes_long_is_a_sign_of_life(
    counter: int | None, quiet_s: float, health: str
) -> None:
    bench, _ = member()
    told_of = None if counter is None else generation(counter, LEADER)
    for _ in range(40):
        bench.wait(0.2)
        bench.report(Pong(1, Phase.EXCHANGING, 0.2, 0.0, told_of, quiet_s))
    assert bench.machine.view(bench.now).peers[0].health == health


def test_a_slow_peer_that_commits_steps_with_us_is_not_declared_dead() -> None:
    bench, current = member()
    for step in range(1, 40):
        bench.wait(0.2)
        bench.pong()
        bench.report(Progress(current, step, step, 100, 0, 0.5, 32, 0.2, (16, 16), 160.0))
    assert bench.machine.view(bench.now).peers[0].health == "alive"


def test_our_own_id_at_another_address_is_dialled_for_it_may_be_a_cloned_disk() -> None:
    bench = Bench()
    elsewhere = Address("10.0.0.99", 7000)
    assert Dial(elsewhere) in bench.do(CandidateSeen("mdns", elsewhere, node_id(1), CLUSTER))
    own = info(1).address
    assert of(Dial, bench.do(CandidateSeen("mdns", own, node_id(1), CLUSTER))) == []
