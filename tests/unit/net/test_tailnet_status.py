"""What of a tailnet is understood, and whom of it we dial."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.errors import NetworkError
from daisychain.net.discovery.tailnet_status import TAG, TailnetStatus, parse_status, slow_path, whom_to_dial
from support.tailscale_json import peer, status


def parsed(*peers: dict[str, Any], **changes: Any) -> TailnetStatus:
    return parse_status(json.dumps(status(*peers, **changes)))


def dialled(*peers: dict[str, Any], **changes: Any) -> list[str]:
    return [p.address for p in whom_to_dial(parsed(*peers, **changes)).peers]


def test_a_running_tailnet_is_read() -> None:
    found = parsed(peer(2), peer(3, OS="windows"))
    assert found.name == "me@example.org"
    assert found.suffix == "tail1234.ts.net"
    assert found.addresses == ("100.64.0.1",)
    assert not found.userspace
    assert [p.name for p in found.peers] == ["box2", "box3"]


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("NeedsLogin", "logged out"),
        ("NeedsMachineAuth", "approved"),
        ("Stopped", "stopped"),
        ("Starting", "starting"),
        ("NoState", "starting"),
        ("SomethingNew", "SomethingNew"),
    ],
)
def test_every_other_state_is_named_with_its_remedy(state: str, told: str) -> None:
    with pytest.raises(NetworkError, match=told):
        parsed(BackendState=state, Self=None, CurrentTailnet=None, Peer=None, TailscaleIPs=None)


def test_what_tailscale_complains_about_is_passed_on() -> None:
    with pytest.raises(NetworkError, match="You are logged out"):
        parsed(BackendState="NeedsLogin", Health=["You are logged out."])


@pytest.mark.parametrize(
    ("page", "remedy"),
    [
        ("https://login.tailscale.com/a/12ab", "Open https://login.tailscale.com/a/12ab"),
        ("", "Run `tailscale up`"),
        (None, "Run `tailscale up`"),
        ("http://elsewhere", "Run `tailscale up`"),
        ("https://a b", "Run `tailscale up`"),
        ("https://x\x1b[2J", "Run `tailscale up`"),
        ("https://" + "a" * 200, "Run `tailscale up`"),
    ],
)
def test_who_is_logged_out_is_told_the_page_to_open(page: str | None, remedy: str) -> None:
    with pytest.raises(NetworkError, match="needs a login") as refused:
        parsed(BackendState="NeedsLogin", AuthURL=page, Self=None)
    assert refused.value.remedy == remedy


@pytest.mark.parametrize(
    ("me", "told"),
    [
        (peer(1), "box1.tail1234.ts.net"),
        (peer(1, DNSName=""), "box1"),
        (peer(1, DNSName=None, HostName=7), "this machine"),
    ],
)
def test_who_this_machine_is_in_its_tailnet_is_read(me: dict[str, Any], told: str) -> None:
    assert parsed(Self=me).own_name == told


def test_both_ends_of_a_relayed_path_are_named() -> None:
    found = parsed(peer(2, Active=True, CurAddr="", Relay="fra"))
    path = slow_path(found.own_name, found.peers[0])
    assert path is not None
    assert path.startswith("box1.tail1234.ts.net reaches box2 over the DERP relay 'fra'")


def test_nulls_and_unknown_keys_do_not_matter() -> None:
    found = parsed(CurrentTailnet=None, Peer=None, Health=None, User=None, Novelty={"a": [1]})
    assert found.peers == ()
    assert found.suffix == "tail1234.ts.net"


def test_entries_of_another_shape_are_left_out() -> None:
    odd = peer(4, TailscaleIPs=None, Tags="tag:x", HostName=7, Online="yes")
    root = status(odd, peer(2))
    root["Peer"]["nodekey:x"] = ["no", "table"]
    found = parse_status(json.dumps(root))
    assert [p.address for p in whom_to_dial(found).peers] == ["100.64.0.2"]


@pytest.mark.parametrize("text", ["", "not json", "[]", "null", "{}", '{"BackendState": 3}', "[" * 100_000])
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(NetworkError):
        parse_status(text)


def test_userspace_mode_is_recognised() -> None:
    assert parsed(TUN=False).userspace
    without = status()
    del without["TUN"]  # versions that do not tell have an interface
    assert not parse_status(json.dumps(without)).userspace


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"Online": False}, "offline"),
        ({"Expired": True}, "expired"),
        ({"OS": "iOS"}, "iOS"),
        ({"OS": "android"}, "android"),
        ({"OS": ""}, "unknown system"),
        ({"TailscaleIPs": ["fd7a:115c:a1e0::9"]}, "no IPv4"),
        ({"TailscaleIPs": ["192.168.1.9"]}, "no IPv4"),
        ({"DNSName": "box9.other-tailnet.ts.net."}, "another tailnet"),
        ({"ShareeNode": True}, "shared in"),
        ({"Tags": ["tag:mullvad-exit-node"], "OS": "linux"}, "Mullvad"),
        ({"UserID": 78}, "another user"),
    ],
)
def test_machines_that_are_no_nodes_are_passed_over_with_the_reason(
    changes: dict[str, Any], why: str
) -> None:
    plan = whom_to_dial(parsed(peer(2), peer(9, **changes)))
    assert [p.address for p in plan.peers] == ["100.64.0.2"]
    assert [name for name, told in plan.passed_over if why in told] == ["box9"]


def test_every_desktop_system_is_dialled() -> None:
    hosts = dialled(peer(2, OS="linux"), peer(3, OS="windows"), peer(4, OS="macOS"))
    assert hosts == ["100.64.0.2", "100.64.0.3", "100.64.0.4"]


def test_the_chains_tag_wins_over_the_user_when_anybody_has_it() -> None:
    tagged, mine = peer(2, Tags=[TAG], UserID=99), peer(3)
    assert dialled(tagged, mine) == ["100.64.0.2"]
    assert dialled(mine) == ["100.64.0.3"]
    assert dialled(mine, Self=peer(1, Tags=[TAG])) == []


def test_hundreds_of_machines_are_bounded() -> None:
    many = [peer(n, TailscaleIPs=[f"100.64.{n // 250}.{n % 250}"]) for n in range(2, 900)]
    plan = whom_to_dial(parsed(*many), limit=64)
    assert len(plan.peers) == 64
    assert TAG in plan.reason


def test_relayed_paths_are_told_and_idle_ones_are_not() -> None:
    def told(**changes: Any) -> str | None:
        return slow_path("box1", parsed(peer(2, **changes)).peers[0])

    assert told(Active=True, CurAddr="1.2.3.4:41641", Relay="fra") is None
    assert told(Active=False, CurAddr="", Relay="fra") is None
    derp = told(Active=True, CurAddr="", Relay="fra")
    assert derp is not None and "DERP relay 'fra'" in derp and "41641" in derp
    relayed = told(Active=True, CurAddr="", Relay="fra", PeerRelay="5.6.7.8:40000")
    assert relayed is not None and "peer relay 5.6.7.8:40000" in relayed


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(key=st.sampled_from(sorted(status())), value=ANYTHING, inner=st.sampled_from(sorted(peer(2))))
def test_no_shape_of_the_json_breaks_the_parser(key: str, value: object, inner: str) -> None:
    for root in (status(peer(2), **{key: value}), status(peer(2, **{inner: value}))):
        try:
            whom_to_dial(parse_status(json.dumps(root)))
        except NetworkError:
            continue
