"""JSON as `tailscale status --json` prints it, with all that a real one has around what we read."""

from __future__ import annotations

from typing import Any


def peer(number: int, **changes: Any) -> dict[str, Any]:
    """Return one machine of our own tailnet, online and idle, with the address 100.64.0.<number>."""
    entry: dict[str, Any] = {
        "ID": f"n{number}CNTRL",
        "PublicKey": f"nodekey:{number:064x}",
        "HostName": f"box{number}",
        "DNSName": f"box{number}.tail1234.ts.net.",
        "OS": "linux",
        "UserID": 77,
        "TailscaleIPs": [f"100.64.0.{number}", f"fd7a:115c:a1e0::{number:x}"],
        "AllowedIPs": [f"100.64.0.{number}/32"],
        "Addrs": [],
        "CurAddr": "",
        "Relay": "fra",
        "PeerRelay": "",
        "RxBytes": 0,
        "TxBytes": 0,
        "Created": "2026-01-01T00:00:00Z",
        "LastSeen": "2026-11-01T10:00:00Z",
        "Online": True,
        "ExitNode": False,
        "ExitNodeOption": False,
        "Active": False,
        "PeerAPIURL": [f"http://100.64.0.{number}:41112"],
        "InNetworkMap": True,
        "KeyExpiry": "2027-01-01T00:00:00Z",
    }
    return entry | changes


def status(*peers: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a running tailnet whose own machine is 100.64.0.1."""
    root: dict[str, Any] = {
        "Version": "1.90.1-t0000000-g0000000",
        "TUN": True,
        "BackendState": "Running",
        "HaveNodeKey": True,
        "AuthURL": "",
        "TailscaleIPs": ["100.64.0.1", "fd7a:115c:a1e0::1"],
        "Self": peer(1, Relay="fra", Active=False),
        "Health": [],
        "MagicDNSSuffix": "tail1234.ts.net",
        "CurrentTailnet": {
            "Name": "me@example.org",
            "MagicDNSSuffix": "tail1234.ts.net",
            "MagicDNSEnabled": True,
        },
        "CertDomains": None,
        "Peer": {f"nodekey:{index:064x}": entry for index, entry in enumerate(peers)} or None,
        "User": {"77": {"ID": 77, "LoginName": "me@example.org"}},
        "ClientVersion": None,
    }
    return root | changes
