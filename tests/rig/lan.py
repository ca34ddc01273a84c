"""A LAN: a switch, and machines with a network and hostname of their own, on cables to be shaped and cut.

The switch is a bridge in a namespace of its own. Each machine is a network namespace with `eth0`; what is
started in it also has a UTS namespace. A cut never makes anybody see a reset: frames just do not arrive.
Everything is gone when the `lan` block ends; what a killed run left behind goes at the next start.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rig.relay import Relay
from rig.requirements import RigUnavailable, check_network
from rig.shape import Shape
from support import cgroups
from support.ethernet import checksums_in_software
from support.namespaces import (
    NoNamespacesError,
    await_carrier,
    inside,
    ip,
    make_namespace,
    plug,
    remove_namespace,
    remove_orphans,
    sysctl,
)

SUBNET = "10.77.0"
BRIDGE, HOLE = "br0", "hole"
ENTER = 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"'
"""What a shell runs in a fresh UTS namespace to name the machine $0 and become the command."""

CONGESTION_CONTROL = "cubic"
"""What home machines use. The machine that runs the tests may use another, which fills queues less."""


@dataclass(frozen=True)
class Place:
    """Where one machine is."""

    name: str
    number: int
    namespace: str

    @property
    def address(self) -> str:
        return f"{SUBNET}.{self.number}"

    @property
    def mac(self) -> str:
        return f"02:77:00:00:00:{self.number:02x}"

    @property
    def port(self) -> str:
        """The switch's end of its cable."""
        return f"port{self.number}"

    def starting(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs ``command`` on this machine, under the same process id."""
        enter = ["nsenter", f"--net=/run/netns/{self.namespace}", "unshare", "--uts"]
        return [*enter, "/bin/sh", "-c", ENTER, self.name, *command]


class Lan:
    """The machines and their switch; made by `lan`.

    Attributes:
        places: the machines, in the order of their names' list.
    """

    def __init__(self, switch: str, places: Sequence[Place], seed: int) -> None:
        self.places = tuple(places)
        self._switch = switch
        self._seed = seed
        self._by_name = {place.name: place for place in places}
        self._shapes = {place.name: Shape() for place in places}
        self._relays: dict[str, Relay] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._unplugged: set[str] = set()

    def place(self, name: str) -> Place:
        return self._by_name[name]

    # -- shapes --------------------------------------------------------------------------------------

    def shape(self, name: str, shape: Shape) -> None:
        """Give a machine's cable another shape, at any time."""
        place = self.place(name)
        self._set_rate(place, shape)
        self._set_relay(place, shape)
        self._shapes[name] = shape

    def _set_rate(self, place: Place, shape: Shape) -> None:
        for namespace, interface in ((place.namespace, "eth0"), (self._switch, place.port)):
            line = shape.queueing(interface)
            if line:
                _tc(namespace, [line])
            elif self._shapes[place.name].rate_mbit is not None:
                _tc(namespace, [f"qdisc del dev {interface} root"])

    def _set_relay(self, place: Place, shape: Shape) -> None:
        relay = self._relays.get(place.name)
        if not shape.relayed:
            if relay is not None:
                del self._relays[place.name]
                relay.stop()
                ip(f"-n {self._switch} link set {place.port} master {BRIDGE}")
            return
        if relay is not None:
            relay.set(shape)
            return
        inside(place.namespace, lambda: checksums_in_software("eth0"))
        tap = f"tap{place.number}"
        relay = Relay(self._switch, place.port, tap, shape, self._seed + 2 * place.number)
        self._relays[place.name] = relay
        ip(f"-n {self._switch} link set {place.port} nomaster")
        ip(f"-n {self._switch} link set {tap} master {BRIDGE} up")

    # -- cuts ----------------------------------------------------------------------------------------

    def cut(self, name: str) -> None:
        """Pull a machine's cable out of the switch: it loses its carrier, and nobody sees a reset."""
        ip(f"-n {self._switch} link set {self.place(name).port} down")
        self._unplugged.add(name)

    def heal(self, name: str) -> None:
        """Plug the cable in again; what else was cut for this machine stays so."""
        ip(f"-n {self._switch} link set {self.place(name).port} up")
        self._unplugged.discard(name)

    def cut_pair(self, first: str, second: str) -> None:
        """Drop every frame between two machines; each still reaches all others."""
        self._block({(first, second), (second, first)})

    def cut_one_way(self, source: str, target: str) -> None:
        """Drop every frame from ``source`` to ``target``; the other direction stays."""
        self._block({(source, target)})

    def heal_pair(self, first: str, second: str) -> None:
        """Let frames pass again between two machines, both ways."""
        self._unblock({(first, second), (second, first)})

    def silence(self, name: str) -> None:
        """Drop every frame from and to a machine, which keeps its carrier: a dead radio, a hung switch."""
        self.partition([name])

    def partition(self, side: Sequence[str]) -> None:
        """Drop every frame between ``side`` and all other machines, at once."""
        inner = {self.place(name).name for name in side}
        outer = self._by_name.keys() - inner
        self._block({pair for a in inner for b in outer for pair in ((a, b), (b, a))})

    def mend(self) -> None:
        """Undo every cut."""
        self._unblock(set(self._blocked))
        for name in sorted(self._unplugged):
            self.heal(name)

    def _block(self, pairs: set[tuple[str, str]]) -> None:
        # Each rule is on the way out of the switch to the target, so that it also stops multicast.
        new = sorted(pairs - self._blocked)
        _tc(self._switch, [f"filter add {self._rule(*pair)} {self._match(pair[0])}" for pair in new])
        self._blocked.update(new)

    def _unblock(self, pairs: set[tuple[str, str]]) -> None:
        old = sorted(pairs & self._blocked)
        _tc(self._switch, [f"filter del {self._rule(*pair)}" for pair in old])
        self._blocked.difference_update(old)

    def _rule(self, source: str, target: str) -> str:
        return f"dev {self.place(target).port} egress protocol all pref {self.place(source).number}"

    def _match(self, source: str) -> str:
        return f"u32 match ether src {self.place(source).mac} action mirred egress redirect dev {HOLE}"

    # -- its end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the relays; the namespaces are `lan`'s."""
        for relay in self._relays.values():
            relay.stop()
        self._relays.clear()


@contextlib.contextmanager
def lan(names: Sequence[str], shape: Shape | None = None, seed: int = 1) -> Iterator[Lan]:
    """A LAN of machines with these names, every cable of the same shape; taken down whatever happens.

    ``seed`` decides what the relays lose. Raises `RigUnavailable` with the reason.
    """
    check_network()
    remove_orphans()
    cgroups.remove_orphans()
    made: list[str] = []
    whole: Lan | None = None
    try:
        try:
            made.append(make_namespace("switch"))
            _make_switch(made[0])
            places = []
            for number, name in enumerate(names, start=1):
                made.append(make_namespace(name))
                places.append(Place(name, number, made[-1]))
                _connect(made[0], places[-1])
            for place in places:
                await_carrier(place.namespace, "eth0")
            whole = Lan(made[0], places, seed)
            for place in places:
                whole.shape(place.name, shape or Shape())
        except NoNamespacesError as error:
            raise RigUnavailable(str(error)) from None
        except subprocess.CalledProcessError as error:
            complaint = f"{' '.join(error.cmd)}: {error.stderr.strip()}"
            raise RigUnavailable(f"this kernel cannot make the rig's network ({complaint})") from None
        yield whole
    finally:
        if whole is not None:
            whole.close()
        for namespace in made:
            remove_namespace(namespace)


def _make_switch(namespace: str) -> None:
    """Make the bridge, and the hole into which blocked frames go (not every kernel can just drop them)."""
    sysctl(namespace, "ipv6/conf/all/disable_ipv6", 1)
    sysctl(namespace, "ipv6/conf/default/disable_ipv6", 1)
    for bridge in (BRIDGE, HOLE):
        ip(f"-n {namespace} link add {bridge} type bridge mcast_snooping 0 stp_state 0 forward_delay 0")
        ip(f"-n {namespace} link set {bridge} up")


def _connect(switch: str, place: Place) -> None:
    plug((place.namespace, "eth0", f"{place.address}/24"), (switch, place.port, ""))
    ip(f"-n {place.namespace} link set eth0 address {place.mac}")
    route = f"{SUBNET}.0/24 dev eth0 scope link src {place.address}"
    with contextlib.suppress(subprocess.CalledProcessError):  # a kernel without it uses its own
        ip(f"-n {place.namespace} route replace {route} congctl {CONGESTION_CONTROL}")
    ip(f"-n {switch} link set {place.port} master {BRIDGE}")
    _tc(switch, [f"qdisc add dev {place.port} clsact"])


def _tc(namespace: str, lines: Sequence[str]) -> None:
    """Run lines of ``tc`` in one go: a partition of many rules is there at once."""
    if lines:
        subprocess.run(
            ["tc", "-n", namespace, "-batch", "-"],
            input="\n".join(lines) + "\n",
            check=True,
            capture_output=True,
            text=True,
            timeout=20,
        )
