"""What an idle node does: its regular beats, and nothing else. Every other wake is paid for all year."""

from __future__ import annotations

from daisychain.core.events import TimerFired
from unit.core.chains import LEADER, SETTINGS, Bench, status

LONG_S = 60.0


def test_a_node_whose_peer_is_sound_wakes_for_its_beats_alone() -> None:
    bench = Bench()
    bench.link(2)
    told = status(LEADER, (1, 2), leading=True)
    bench.keep(2, told, 5.0)
    fired = 0
    until, heard_at = bench.now + LONG_S, bench.now
    while bench.now < until:
        deadline = bench.machine.next_deadline()
        assert deadline is not None
        beat_at = heard_at + SETTINGS.heartbeat_s
        bench.now = max(bench.now, min(deadline, beat_at))
        if beat_at <= deadline:
            bench.beat(2, told)
            heard_at = bench.now
        else:
            bench.do(TimerFired())
            fired += 1
    assert fired <= LONG_S / SETTINGS.heartbeat_s + 2
