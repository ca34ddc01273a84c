"""How fast each machine of the rig is: a CPU quota for each, changed while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rig.node import Place
from rig.requirements import RigUnavailable
from support.cgroups import PERIOD_US, CpuGroup, make_group, remove_group


@dataclass(frozen=True)
class Machine:
    """A place on the LAN whose processes have a quota, those that are started again, too."""

    place: Place
    group: CpuGroup

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def namespace(self) -> str:
        return self.place.namespace

    @property
    def address(self) -> str:
        return self.place.address

    def starting(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs ``command`` there, under the same process id."""
        return self.group.starting(self.place.starting(command))


@contextlib.contextmanager
def unbound_at_the_end(groups: Mapping[str, CpuGroup]) -> Iterator[None]:
    """Give every group a whole CPU at the end, so that who leaves does so as fast as the machine can."""
    try:
        yield
    finally:
        for group in groups.values():
            group.allow(1.0)


@contextlib.contextmanager
def cpu_groups(cpus: Mapping[str, float], period_us: int = PERIOD_US) -> Iterator[dict[str, CpuGroup]]:
    """One control group a machine, each of so many CPUs (`CpuGroup.allow` changes that at any time).

    ``period_us``: a quota of less than 1 ms of it is refused by the kernel.
    Whoever is inside at the end is killed. Raises `RigUnavailable` where no group can be made.
    """
    groups: dict[str, CpuGroup] = {}
    try:
        try:
            for name, count in cpus.items():
                groups[name] = make_group(count, period_us)
        except OSError as error:
            raise RigUnavailable(f"CPU quotas need root and a writable cpu control group: {error}") from None
        yield groups
    finally:
        for group in groups.values():
            remove_group(group)
