from __future__ import annotations

from daisychain.core.election import Election, Voice
from daisychain.core.ids import Term
from unit.core.chains import NOBODY, SETTINGS, node_id


def election(number: int, term: Term = NOBODY) -> Election:
    return Election(node_id(number), term, SETTINGS, 0.0)


def voice(number: int, term: Term = NOBODY, leading: bool = False, reaches: tuple[int, ...] = ()) -> Voice:
    return Voice(node_id(number), term, leading, tuple(node_id(n) for n in reaches), candidate=True)


def test_a_lone_node_leads_after_two_quiet_seconds() -> None:
    mine = election(1)
    assert not mine.review([], 1.99)
    assert mine.review([], 2.0)
    assert mine.term == Term(1, node_id(1))


def test_discovery_that_is_not_quiet_postpones_that_within_a_bound() -> None:
    mine = election(1)
    for second in range(1, 10):
        mine.discovered(float(second))
        assert not mine.review([], second + 0.9)
    assert mine.review([], SETTINGS.settle_max_s)


def test_a_leader_that_is_heard_stays_whatever_its_id() -> None:
    mine, term = election(1), Term(3, node_id(9))
    assert mine.adopt(term)
    assert not mine.review([voice(9, term, leading=True)], 50.0)
    assert mine.leader([voice(9, term, leading=True)]) == node_id(9)


def test_when_the_leader_is_gone_the_lowest_id_claims_at_once_and_the_others_by_turns() -> None:
    term = Term(3, node_id(9))
    first, second = election(1), election(2)
    for mine in (first, second):
        mine.adopt(term)
        mine.review([voice(9, term, leading=True)], 10.0)
    assert first.review([voice(2, term)], 20.0)
    assert first.term == Term(4, node_id(1))
    assert not second.review([voice(1, term)], 20.0)
    assert not second.review([voice(1, term)], 20.0 + SETTINGS.turn_s - 0.01)
    assert second.review([voice(1, term)], 20.0 + SETTINGS.turn_s)


def test_a_claim_is_above_every_number_that_is_known() -> None:
    mine = election(1, Term(2, node_id(1)))
    assert mine.review([voice(2, Term(2, node_id(2))), voice(3, Term(1, node_id(3)))], 5.0)
    assert mine.term == Term(3, node_id(1))


def test_a_restarted_leader_does_not_lead_its_old_term() -> None:
    mine = election(1, Term(7, node_id(1)))
    assert mine.leader([]) is None
    mine.review([], 2.0)
    assert mine.term == Term(8, node_id(1))


def test_a_higher_term_ends_our_leading() -> None:
    mine = election(1)
    mine.review([], 2.0)
    assert mine.adopt(Term(1, node_id(2)))
    assert not mine.leading
    assert not mine.adopt(Term(1, node_id(1)))


def test_of_two_leaders_with_one_number_the_higher_claims_the_next_once() -> None:
    mine = election(2)
    mine.review([], 2.0)
    assert mine.rival(Term(1, node_id(1)), leading=True)
    assert mine.term == Term(2, node_id(2))
    assert mine.leading
    assert not mine.rival(Term(1, node_id(1)), leading=True)


def test_a_leader_that_only_others_reach_is_waited_for() -> None:
    mine, term = election(1), Term(3, node_id(9))
    mine.adopt(term)
    follower = voice(2, term, reaches=(1, 2, 9))
    assert not mine.review([follower], 100.0)
    assert mine.leader([follower]) is None
    assert mine.review([voice(2, term, reaches=(1, 2))], 100.0)


def test_a_woken_node_settles_before_it_claims() -> None:
    mine = election(1)
    mine.review([], 2.0)
    mine.wake(50.0)
    assert not mine.leading
    assert not mine.review([], 51.9)
    assert mine.review([], 52.0)


def test_a_node_that_does_not_hear_us_has_no_turn_before_ours() -> None:
    mine, term = election(2), Term(3, node_id(9))
    mine.adopt(term)
    mine.review([voice(9, term, leading=True)], 10.0)
    deaf = Voice(node_id(1), term, False, (), candidate=False)
    assert mine.review([deaf], 20.0)
