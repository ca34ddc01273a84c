"""Errors of the user's code and numbers, told with the file, the line and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from daisychain.core.job_spec import PythonModel
from daisychain.errors import DaisyChainError, JobError
from daisychain.trainer.jobs.loaded import LoadedJob

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
    remedy = "Correct the line and submit the job again" if line else ""
    if isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text:
        remedy = "Make the model, the granule or the global batch smaller"
    return JobError(line or job_file(job), f"{type(error).__name__} {doing}: {text}", remedy)
