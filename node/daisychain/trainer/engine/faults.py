"""Errors of the user's code and numbers, told with the file, the line and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from daisychain.core.job_spec import PythonModel
from daisychain.errors import DaisyChainError, JobError, JobMemoryError, WorldError
from daisychain.trainer.jobs.loaded import LoadedJob
from daisychain.trainer.jobs.user_code import MEMORY_REMEDY, wants_memory

NOT_FINITE_REMEDY = (
    "Lower the learning rate, set clip_grad_norm, or look for NaN and extreme values in the data"
)


def job_file(job: LoadedJob) -> str:
    """Return the file that an error of this job is looked for in."""
    return job.spec.model.file if isinstance(job.spec.model, PythonModel) else "job.yaml"


@contextmanager
def user_code(job: LoadedJob, doing: str) -> Iterator[None]:
    """Turn an exception of the job's own code into `JobError` with the last line of its files on the way.

    For what the job's functions leave behind (backward, the optimizer) and for want of memory: what happens
    in the functions themselves `jobs.user_code` has told already. Errors that are ours (`JobError`,
    `WorldError`) pass. ``doing``: e.g. ``"in step 12"``.
    """
    try:
        yield
    except DaisyChainError:
        raise
    except Exception as error:
        raise _told(job, doing, error) from error


def _told(job: LoadedJob, doing: str, error: Exception) -> JobError:
    line = job.locate(error)
    text = " ".join(str(error).split()) or "no message"
    where, message = line or job_file(job), f"{type(error).__name__} {doing}: {text}"
    if wants_memory(error):
        return JobMemoryError(where, message, MEMORY_REMEDY)
    return JobError(where, message, "Correct the line and submit the job again" if line else "")


def blame(own: bool, error: JobError) -> DaisyChainError:
    """Return what this rank raises where some rank's part of a tick is at fault.

    ``own``: whether this rank's is. It fails with ``error``; the others go on without it, in another world,
    and find out whether its part is at fault with them, too.
    """
    if own:
        return error
    return WorldError(f"another member's part is at fault: {error.message}")
