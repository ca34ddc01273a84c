"""Agents that must not train along, and machines that were copied: named, with what to do about it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from daisychain.core.ids import NodeId
from daisychain.core.view import ChainView
from daisychain.net.identity.cluster_key import ClusterKey
from support.agent_node import Node
from support.agents import chain
from support.waiting import until

JOIN_S = 60.0
SEEN_S = 30.0


def view(node: Node) -> ChainView | None:
    status = node.status()
    return None if status is None else status.view


def stands_by(node: Node, *words: str) -> bool:
    seen = view(node)
    return seen is not None and all(word in seen.standby for word in words)


def names(node: Node, peer: str, *words: str) -> bool:
    """Whether ``node`` knows, for people, why ``peer`` stands by."""
    seen = view(node)
    reasons = [] if seen is None else [other.standby for other in seen.peers if other.info.name == peer]
    return len(reasons) == 1 and all(word in reasons[0] for word in words)


def strangers(node: Node) -> str:
    seen = view(node)
    return "" if seen is None else "\n".join(stranger.reason for stranger in seen.strangers)


def test_neighbours_of_other_software_or_another_cluster_are_named_and_stand_by(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        for name in ("ada", "bob", "old", "lag", "eve"):
            agents.write_job(name, epochs=1000)
        nodes = [agents.start(name, "--min-nodes", "2", wait=False) for name in ("ada", "bob")]
        until(lambda: all(node.world_size() == 2 for node in nodes), JOIN_S, "no world of the two that fit")
        old = agents.start("old", facts={"version": "9.9.0"})
        lag = agents.start("lag", facts={"torch_version": "1.13.1+cpu"})
        other_key, _ = ClusterKey.load_or_create(tmp_path / "other.key")
        eve = agents.start("eve", "--key-file", str(tmp_path / "other.key"))

        until(lambda: stands_by(old, "DaisyChain 9.9.0", "same version"), SEEN_S, "the version is not named")
        until(lambda: stands_by(lag, "torch 1.13.1", "same major.minor"), SEEN_S, "the torch is not named")
        for node in nodes:
            until(lambda node=node: names(node, "old", "9.9.0"), SEEN_S, "it does not name old")  # type: ignore[misc]
            until(lambda node=node: names(node, "lag", "1.13.1"), SEEN_S, "it does not name lag")  # type: ignore[misc]
        for node, cluster in (
            (nodes[0], other_key.cluster_id),
            (eve, ClusterKey.load(agents.key).cluster_id),
        ):
            until(lambda node=node, cluster=cluster: cluster in strangers(node), SEEN_S, "no stranger")  # type: ignore[misc]
            assert "daisychain key join" in strangers(node)
        assert [node.world_size() for node in nodes] == [2, 2]
        assert (old.trainer_pid, lag.trainer_pid) == (None, None)
        seen = view(eve)
        assert seen is not None
        assert seen.peers == ()


def node_id(node: Node) -> NodeId | None:
    seen = view(node)
    return None if seen is None else seen.me.node_id


def one_chain(nodes: list[Node]) -> bool:
    """Whether all of them follow one coordinator and hold each other alive."""
    views = [seen for node in nodes if (seen := view(node)) is not None]
    return (
        len(views) == len(nodes)
        and len({seen.coordinator for seen in views} - {None}) == 1
        and all(sum(peer.health == "alive" for peer in seen.peers) == len(nodes) - 1 for seen in views)
    )


def test_a_cloned_disk_gets_a_node_id_of_its_own_and_trains_along(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        first = agents.start("ada")
        original = node_id(first)
        assert first.stop() == 0
        agents.prepare("bob")
        shutil.copytree(first.state, tmp_path / "bob" / "state")
        for name in ("ada", "bob"):
            agents.write_job(name, epochs=1000)

        ada = agents.start("ada", "--min-nodes", "2", facts={"machine_id": "a" * 32})
        bob = agents.start("bob", "--min-nodes", "2", facts={"machine_id": "b" * 32})
        until(lambda: one_chain([ada, bob]), JOIN_S, "original and copy do not become two nodes")
        assert node_id(ada) == original
        assert node_id(bob) not in (original, None)
        told = [line for line in bob.log.read_text().splitlines() if "this node took a new" in line]
        assert len(told) == 1
        assert "copied state folder" in told[0]
        assert "took a new" not in ada.log.read_text()
        until(lambda: ada.world_size() == bob.world_size() == 2, JOIN_S, "they do not train together")


def test_a_rotated_key_leaves_out_whoever_holds_the_old_one_until_it_joins(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        keys = {name: tmp_path / f"{name}.key" for name in ("ada", "bob")}
        for key in keys.values():
            shutil.copy(agents.key, key)
        ada, bob = (agents.start(name, "--key-file", str(key)) for name, key in keys.items())
        until(lambda: one_chain([ada, bob]), SEEN_S, "they find no chain")
        rotated = keyed("rotate", keys["ada"])
        assert one_chain([ada, bob])  # who runs keeps the key that it started with
        assert ada.stop() == 0
        ada = agents.start("ada", "--key-file", str(keys["ada"]))
        until(lambda: rotated["cluster_id"] in strangers(bob), SEEN_S, "the new cluster is not named")
        assert not one_chain([ada, bob])
        assert bob.stop() == 0
        keyed("join", keys["bob"], rotated["key"])
        bob = agents.start("bob", "--key-file", str(keys["bob"]))
        until(lambda: one_chain([ada, bob]), SEEN_S, "the new key joins nobody")


def keyed(command: str, key: Path, *arguments: str) -> dict[str, str]:
    """Run `daisychain key COMMAND` on a key file and return what it prints."""
    given = ["key", command, *arguments, "--key-file", str(key), "--state-folder", str(key.parent), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "daisychain.cli", *given],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    told: dict[str, str] = json.loads(done.stdout)
    return told
