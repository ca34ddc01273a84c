"""How fast each machine of the rig is: a CPU quota for each, changed while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from rig.requirements import RigUnavailable
from support.cgroups import CpuGroup, make_group, remove_group


@contextlib.contextmanager
def cpu_groups(cpus: Mapping[str, float]) -> Iterator[dict[str, CpuGroup]]:
    """One control group a machine, each of so many CPUs (`CpuGroup.allow` changes that at any time).

    Whoever is inside at the end is killed. Raises `RigUnavailable` where no group can be made.
    """
    groups: dict[str, CpuGroup] = {}
    try:
        try:
            for name, count in cpus.items():
                groups[name] = make_group(count)
        except OSError as error:
            raise RigUnavailable(f"CPU quotas need root and a writable cpu control group: {error}") from None
        yield groups
    finally:
        for group in groups.values():
            remove_group(group)
