"""How many threads one operation of a job is computed with."""

from __future__ import annotations

from daisychain.core.job_spec import JobSpec


def intra_op_threads(spec: JobSpec, given: int) -> int:
    """Return torch's intra-op threads for a job: its own, 1 in reproducible mode, else those ``given``.

    ``given``: what torch was started with: the agent's choice, by its setting, cores and quota.
    """
    if spec.threads is not None:
        return spec.threads
    return 1 if spec.reproducible else given
