"""Every bound and interval of the core's decisions, with what it is for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """How patient, how eager and how bounded a node is; all times in seconds.

    Attributes:
        heartbeat_s: between two heartbeats to one peer; a changed status is told at once besides.
        silence_floor_s: a peer silent for so long is dead, however regular it was before; the
            detection time on a quiet link.
        silence_ceiling_s: no peer is waited for longer, however irregular it was before.
        silence_factor: a silence may last so many times the longest one of late.
        rhythm_half_life_s: after so long a past silence counts half.
        wake_s: a machine called so much later than it asked for was itself frozen or asleep.
        settle_s: quiet in discovery before anybody claims an unheard-of chain, and before the first world.
        settle_max_s: nobody waits longer for that quiet (an endless stream of new peers).
        turn_s: when no coordinator is left, the second-best candidate claims so much after the best.
        coalesce_s: a running world waits so long for further joiners before it takes in the first.
        grace_s: after a world broke with nobody known lost, the wait for evidence of who is gone.
        formation_s: for all address blobs of a forming world, and for gloo to connect; stops a
            member frozen while a world forms from holding up the others.
        reconcile_s: for all members to report the world formed once blobs are spread: state transfer
            over a slow link takes its time; frozen members are found by silence and pings long before.
        attempt_max_s: longest wait between attempts to form a world that keeps breaking.
        exclusion_s, exclusion_max_s: how long a member that held up a formation is left out; doubles each
            time up to the maximum.
        loading_wait_s: the first world waits so long for trainers that still load.
        ping_s: between two pings to our trainer.
        stall_s: a trainer that answers no ping for so long, or computes longer than it and
            `stall_factor` times what it predicted, has stalled.
        stall_factor: see stall_s.
        stall_kill_s: a stalled trainer is killed after so long: it may thaw, but not hold memory for ever.
        loading_max_s: a trainer that is not ready by then is killed.
        restart_s, restart_max_s: wait before a crashed trainer is started again; doubles each time.
        restarts_max: crashes of one run's trainer after which this node stands by.
        dials_max: dials in flight: bounds sockets, and what a flood of candidates costs.
        dial_bound_s: a dial that has not ended by then no longer counts as in flight.
        redial_s, redial_max_s: wait after the first failure of an address, and the longest wait for a
            known peer.
        candidate_max_s: the longest wait for an address that never was a peer.
        candidates_max: addresses remembered: bounds what discovery can make us hold.
        fetch_retry_s, fetch_retry_max_s: wait before a fetch that failed is tried again; doubles each time.
        fetched_s: a folder that arrived is asked for again after so long only: hashing it takes its time.
        link_bytes_per_s: the link that bundles are to be gentle to, 100 Mbit/s.
        bundle_slowdown: by so much a step may take longer for the bundles that move beside it, at most; the
            promise is 0.2, the rest is for what else they cost. See `pace_beside_training`.
        peers_max: nodes remembered; further ones are strangers.
        strangers_max: strangers remembered for the view.
    """

    heartbeat_s: float = 0.3
    silence_floor_s: float = 1.5
    silence_ceiling_s: float = 10.0
    silence_factor: float = 2.0
    rhythm_half_life_s: float = 20.0
    wake_s: float = 1.0
    settle_s: float = 2.0
    settle_max_s: float = 10.0
    turn_s: float = 0.4
    coalesce_s: float = 0.05
    grace_s: float = 0.25
    formation_s: float = 1.5
    reconcile_s: float = 300.0
    attempt_max_s: float = 4.0
    exclusion_s: float = 1.0
    exclusion_max_s: float = 30.0
    loading_wait_s: float = 20.0
    ping_s: float = 0.3
    stall_s: float = 1.5
    stall_factor: float = 4.0
    stall_kill_s: float = 60.0
    loading_max_s: float = 600.0
    restart_s: float = 0.5
    restart_max_s: float = 10.0
    restarts_max: int = 4
    dials_max: int = 16
    dial_bound_s: float = 15.0
    redial_s: float = 0.25
    redial_max_s: float = 2.0
    candidate_max_s: float = 15.0
    candidates_max: int = 512
    fetch_retry_s: float = 1.0
    fetch_retry_max_s: float = 60.0
    fetched_s: float = 300.0
    link_bytes_per_s: float = 12.5e6
    bundle_slowdown: float = 0.12
    peers_max: int = 64
    strangers_max: int = 64
