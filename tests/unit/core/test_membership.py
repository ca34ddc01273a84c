from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.core.membership import Health, Membership
from daisychain.core.settings import CoreSettings
from unit.core.chains import SETTINGS, info, node_id, status

OTHER = node_id(2)


def chain(now: float = 0.0) -> Membership:
    members = Membership(info(1), SETTINGS)
    members.link_up(info(2), info(2).address, now)
    return members


def health(members: Membership) -> Health:
    peer = members.get(OTHER)
    assert peer is not None
    return peer.health


def beats(members: Membership, start: float, count: int, every_s: float) -> float:
    now = start
    for _ in range(count):
        now += every_s
        assert members.silent(now) == []
        members.heard(OTHER, now)
    return now


def test_a_quiet_link_that_falls_silent_means_death_after_the_floor() -> None:
    members = chain()
    now = beats(members, 0.0, 50, 0.3)
    assert members.silent(now + 0.5) == []
    assert health(members) is Health.ALIVE
    assert members.silent(now + 1.0) == []
    assert health(members) is Health.SUSPECT
    assert [peer.info.node_id for peer in members.silent(now + SETTINGS.silence_floor_s)] == [OTHER]


def test_a_jittery_link_is_given_more_time_but_never_more_than_the_ceiling() -> None:
    members = chain()
    now = 0.0
    for round_ in range(60):
        now += 0.1 if round_ % 2 else 1.4
        members.heard(OTHER, now)
    assert members.silent(now + 2.5) == []
    assert members.silent(now + SETTINGS.silence_ceiling_s) != []


@pytest.mark.parametrize("queue_s", [1.2, 2.0, 3.0, 4.5])
def test_a_silence_is_remembered_through_the_burst_that_ends_it(queue_s: float) -> None:
    """A queue that fills holds one message up and then lets all that waited behind it go at once."""
    members = chain()
    now = beats(members, 0.0, 10, 0.3) + queue_s
    for _ in range(20):
        members.heard(OTHER, now)
        now += 0.001
    now = beats(members, now, 15, 0.3)
    assert members.silent(now + queue_s + 0.1) == []
    assert members.silent(now + 2.1 * queue_s) != []


def test_a_silence_of_long_ago_is_forgotten() -> None:
    members = chain()
    members.heard(OTHER, 4.0)
    now = beats(members, 4.0, 400, 0.3)
    assert members.silent(now + SETTINGS.silence_floor_s) != []


@given(
    queue_s=st.floats(0.0, 8.0),
    step_s=st.floats(2.0, 30.0),
    told_every_s=st.floats(0.1, 0.6),
    data_age_s=st.floats(0.0, 0.5),
)
def test_no_queue_that_gradients_fill_makes_a_death_while_their_data_comes(
    queue_s: float, step_s: float, told_every_s: float, data_age_s: float
) -> None:
    """Messages are late by a queue that grows all through a step; now and then our trainer tells of data."""
    members = chain()
    arrivals: list[float] = []
    for number in range(int(3 * step_s / 0.3)):
        sent_at = 0.3 * number
        late_s = queue_s * (sent_at % step_s) / step_s
        arrivals.append(max(sent_at + late_s, arrivals[-1] if arrivals else 0.0))
    tellings = [told_every_s * number for number in range(1, int(3 * step_s / told_every_s))]
    for at, data in sorted([(at, False) for at in arrivals] + [(at, True) for at in tellings]):
        assert members.silent(at) == []
        if data:
            members.prove([OTHER], at - data_age_s)
        else:
            members.heard(OTHER, at)


def test_a_suspect_that_is_heard_is_alive_again() -> None:
    members = chain()
    members.silent(1.0)
    assert health(members) is Health.SUSPECT
    members.heard(OTHER, 1.1)
    assert health(members) is Health.ALIVE


def test_a_fallen_link_makes_a_suspect_until_it_is_linked_again() -> None:
    members = chain()
    members.link_down(OTHER, 1.0)
    members.heard(OTHER, 1.1)
    assert health(members) is Health.SUSPECT
    members.link_up(info(2), info(2).address, 1.2)
    assert health(members) is Health.ALIVE


def test_a_peer_that_is_heard_but_cannot_be_reached_is_dead_in_the_end() -> None:
    members = chain()
    members.link_down(OTHER, 0.0)
    now = beats(members, 0.0, 4, 0.3)
    assert members.silent(now + 0.4) != []


def test_a_committed_step_is_proof_of_life() -> None:
    members = chain()
    beats(members, 0.0, 10, 0.3)
    for tenth in range(30, 100):
        members.prove([OTHER, node_id(7)], tenth / 10)
        assert members.silent(tenth / 10 + 0.05) == []
    assert members.unanswered(9.95) == []


def test_a_link_that_answers_nothing_is_dialled_anew_though_data_of_the_world_comes() -> None:
    """It may be dead on the way, reset while nothing came through: nobody would hear of a cancelled run."""
    members = chain()
    ceiling_s = CoreSettings().silence_ceiling_s
    for tenth in range(1, round(10 * ceiling_s) + 1):
        members.prove([OTHER], tenth / 10)
    assert members.silent(ceiling_s) == []
    assert [peer.info.node_id for peer in members.unanswered(ceiling_s)] == [OTHER]


def test_older_proof_takes_nothing_back() -> None:
    members = chain()
    now = beats(members, 0.0, 10, 0.3)
    members.prove([OTHER], now - 1.0)
    assert members.silent(now + SETTINGS.silence_floor_s - 0.01) == []
    assert members.silent(now + SETTINGS.silence_floor_s + 0.01) != []


def test_a_member_whose_data_comes_is_no_dead_one_because_its_link_fell() -> None:
    """Linking anew takes four round trips, each as long as the queue."""
    members = chain()
    members.link_down(OTHER, 0.0)
    for tenth in range(80):
        members.prove([OTHER], tenth / 10)
        assert members.silent(tenth / 10 + 0.05) == []
    assert members.silent(8.0 + SETTINGS.silence_floor_s) != []


def test_the_dead_are_not_raised_by_hearsay_but_by_a_link() -> None:
    members = chain()
    members.bury(OTHER, Health.DEAD)
    members.prove([OTHER], 1.0)
    members.heard(OTHER, 1.0)
    assert health(members) is Health.DEAD
    assert members.link_up(info(2), info(2).address, 1.1)
    assert health(members) is Health.ALIVE


def test_who_has_left_comes_back_only_with_a_later_life() -> None:
    members = chain()
    members.bury(OTHER, Health.LEFT)
    assert members.heard(OTHER, 1.0) is None
    assert "earlier life" in members.objection(info(2))
    assert members.objection(info(2, incarnation=2)) == ""
    assert members.link_up(info(2, incarnation=2), info(2).address, 2.0)
    assert health(members) is Health.ALIVE


def test_earlier_lives_and_older_statuses_are_ignored() -> None:
    members = Membership(info(1), SETTINGS)
    members.link_up(info(2, incarnation=5), info(2).address, 0.0)
    assert "earlier life" in members.objection(info(2, incarnation=4))
    peer = members.get(OTHER)
    assert peer is not None
    assert not members.told(peer, 1, status())
    assert members.told(peer, 7, replace(status(), incarnation=5))
    assert not members.told(peer, 6, replace(status(), incarnation=5))


def test_only_who_is_heard_and_linked_is_reachable() -> None:
    members = chain()
    assert members.reachable() == (node_id(1),)
    peer = members.get(OTHER)
    assert peer is not None
    members.told(peer, 1, status())
    assert members.reachable() == (node_id(1), OTHER)
    members.bury(OTHER, Health.DEAD)
    assert members.reachable() == (node_id(1),)


@pytest.mark.parametrize("number", [1, 2])
def test_a_cloned_state_folder_is_refused_by_name(number: int) -> None:
    clone = replace(info(number), machine_id="another machine", incarnation=9)
    assert "cloned state folder" in chain().objection(clone)


def test_a_link_that_answers_nothing_is_named() -> None:
    members = chain()
    beats(members, 0.0, 10, 0.3)
    assert [peer.info.node_id for peer in members.unanswered(3.0)] == [OTHER]


def test_after_a_sleep_everybody_gets_the_full_time() -> None:
    members = chain()
    beats(members, 0.0, 10, 0.3)
    members.refresh(1000.0)
    assert members.silent(1001.0) == []


def test_no_more_nodes_than_the_cap_are_remembered_and_the_living_stay() -> None:
    members = Membership(info(1), replace(SETTINGS, peers_max=3))
    for number in range(2, 5):
        assert members.objection(info(number)) == ""
        members.link_up(info(number), info(number).address, float(number))
    assert "the most that it admits" in members.objection(info(9))
    members.bury(node_id(3), Health.DEAD)
    assert members.objection(info(9)) == ""
    assert members.get(node_id(3)) is None


def test_only_who_was_heard_both_ways_and_is_not_in_doubt_takes_part_in_something_new() -> None:
    members = chain()
    peer = members.get(OTHER)
    assert peer is not None
    assert not peer.alive, "linked, but never heard"
    members.told(peer, 1, status())
    assert peer.alive
    members.doubt(OTHER)
    assert not peer.alive
    members.heard(OTHER, 0.1)
    assert peer.alive
    members.link_down(OTHER, 0.2)
    assert not peer.alive
