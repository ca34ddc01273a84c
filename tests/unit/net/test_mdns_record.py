"""What of an announcement is believed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from daisychain.core.ids import Address, ClusterId, NodeId
from daisychain.net.discovery.mdns_record import Neighbour, node_of, read_neighbour, service_name, text_of
from daisychain.net.discovery.sources import Announcement

NODE, CLUSTER = NodeId("0123456789abcdef" * 2), ClusterId("fedcba9876543210")
ANNOUNCEMENT = Announcement(NODE, CLUSTER, Address("10.0.0.1", 7447), "0.1.0")


def text(**changes: bytes) -> dict[bytes, bytes | None]:
    told: dict[bytes, bytes | None] = {k.encode(): v.encode() for k, v in text_of(ANNOUNCEMENT).items()}
    return told | {key.encode(): value for key, value in changes.items()}


def on_link(host: str) -> bool:
    return host.startswith("10.0.0.")


def read(
    changed: dict[bytes, bytes | None], hosts: tuple[str, ...] = ("10.0.0.1",), port: int | None = 7447
) -> Neighbour | str:
    return read_neighbour(service_name(NODE), hosts, port, changed, on_link)


def test_a_nodes_own_announcement_is_read_back() -> None:
    neighbour = read(text())
    assert neighbour == Neighbour(NODE, CLUSTER, "0.1.0", (Address("10.0.0.1", 7447),))
    assert isinstance(neighbour, Neighbour)
    (candidate,) = neighbour.candidates()
    assert (candidate.source, candidate.node_id, candidate.cluster_id) == ("mdns", NODE, CLUSTER)


def test_keys_of_later_versions_are_ignored() -> None:
    assert isinstance(read(text(future=b"1")), Neighbour)


def test_what_does_not_look_like_a_node_is_not_believed() -> None:
    assert read(text(node=b"f" * 32)) == "its text claims another node id than its name"
    assert read(text(cluster=b"../../etc")) == "it tells no cluster id"
    assert read(text(version=b"")) == "it tells no version"
    assert read(text(version=b"1\x1b[2J")) == "it tells no version"
    assert read(text(junk=b"x" * 500)) == "its text is longer than 400 bytes"
    assert read(text(), port=0) == "it tells no port"
    assert read(text(), port=None) == "it tells no port"
    assert node_of("Office Printer._daisychain._tcp.local.") is None


def test_addresses_of_other_networks_are_not_dialled_and_the_rest_is_bounded() -> None:
    told = read(text(), hosts=("172.17.0.2",))
    assert isinstance(told, str) and "172.17.0.2 is not on this interface's network" in told
    many = read(text(), hosts=("8.8.8.8", *(f"10.0.0.{i}" for i in range(2, 60))))
    assert isinstance(many, Neighbour) and len(many.addresses) == 4
    assert all(on_link(address.host) for address in many.addresses)


@given(
    name=st.text(max_size=80),
    hosts=st.lists(st.text(max_size=20), max_size=8),
    port=st.none() | st.integers(-10, 1 << 20),
    values=st.dictionaries(
        st.sampled_from([b"cluster", b"node", b"version", b"x"]), st.none() | st.binary(max_size=300)
    ),
)
def test_anything_at_all_is_read_or_refused(
    name: str, hosts: list[str], port: int | None, values: dict[bytes, bytes | None]
) -> None:
    assert isinstance(read_neighbour(name, hosts, port, values, lambda host: True), Neighbour | str)
