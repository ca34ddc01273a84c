"""What a run leaves behind: the summary, and the result folder that is replaced as a whole."""

from __future__ import annotations

import secrets
import shutil
import time
from pathlib import Path

import msgspec

from daisychain.errors import StorageError
from daisychain.trainer.record.audit import Audit
from daisychain.trainer.record.durable import is_full, sync
from daisychain.trainer.record.journal import Evaluation

MODEL_FILE = "model.safetensors"
METRICS_FILE = "metrics.jsonl"
SUMMARY_FILE = "summary.json"
LOG_FILE = "train.log"

_NEEDED = (MODEL_FILE, METRICS_FILE, SUMMARY_FILE)
_OPTIONAL = (LOG_FILE,)
_NEW, _OLD = ".result-new-", ".result-old-"
_SWAP_TRIES = 20
_ABANDONED_AFTER_S = 3600.0
"""A temporary folder this old belongs to nobody: its node died while it published."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """summary.json: the run in numbers.

    Attributes:
        job, run_id, kind: which.
        started_at, finished_at: Unix seconds, first and last commit by the writer's clock.
        steps, epochs, samples: committed.
        samples_per_s: over the time between the first and the last commit, pauses included.
        parameters: trained ones.
        train_loss: of the last step.
        evaluation: of the state in model.safetensors; None without a held-out split.
        model_step: the step whose state is in model.safetensors (``keep_best`` may choose an earlier one).
        stopped_early: by ``early_stopping``.
        reproducible: the job's own key.
        rounds_alike: whether all members of every world rounded alike (bit for bit is then promised
            in reproducible mode); None when nothing was compared.
        repairs: how often a member's state was found to have drifted from the others' and was repaired, in
            the worlds of the node that wrote this.
        audit: see `Audit`.
        notes: what loading the job noticed.
    """

    job: str
    run_id: str
    kind: str
    started_at: float
    finished_at: float
    steps: int
    epochs: float
    samples: int
    samples_per_s: float
    parameters: int
    train_loss: float | None
    evaluation: Evaluation | None
    model_step: int
    stopped_early: bool
    reproducible: bool
    rounds_alike: bool | None
    repairs: int
    audit: Audit
    notes: tuple[str, ...]
    torch: str
    daisychain: str
    version: int = 1


class _Stamp(msgspec.Struct):
    """As much of a summary as tells whose it is."""

    run_id: str


def write_summary(folder: Path, summary: Summary) -> None:
    """Write ``summary.json`` into ``folder`` atomically; raises `StorageError`."""
    data = msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"
    target = folder / SUMMARY_FILE
    temporary = folder / f".{SUMMARY_FILE}-{secrets.token_hex(4)}"
    try:
        temporary.write_bytes(data)
        sync(temporary)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StorageError(f"{target} cannot be written: {error.strerror}") from None


def read_summary(folder: Path) -> Summary:
    """Return the summary in ``folder``; raises `StorageError` when there is none that can be read."""
    path = folder / SUMMARY_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Summary)
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} is no summary: {error}") from None


def publish(run_folder: Path, result_folder: Path, run_id: str) -> bool:
    """Put the run's files into ``result_folder`` (``jobs/<name>/result``) as a whole.

    The files are copied into a folder beside it, made durable, and renamed into place; an older result is
    moved aside first and removed afterwards, so nobody ever sees a mixture. Several nodes may share
    the folder: a result of ``run_id`` that is already there is left, and False returned.
    Raises `StorageError` when a file is missing or cannot be written.
    """
    _remove_abandoned(result_folder.parent)
    if _published_run(result_folder) == run_id:
        return False
    new = result_folder.parent / f"{_NEW}{secrets.token_hex(8)}"
    try:
        new.mkdir()
        for name in (*_NEEDED, *_OPTIONAL):
            source = run_folder / name
            if name in _NEEDED or source.exists():
                shutil.copyfile(source, new / name)
                sync(new / name)
        sync(new)
        return _swap(new, result_folder, run_id)
    except OSError as error:
        raise StorageError(
            f"the result in {result_folder} cannot be written: {error.strerror} ({error.filename})",
            f"The trained model is in {run_folder}; {_remedy(error)}.",
        ) from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _remedy(error: OSError) -> str:
    """Return what makes room or way for the result."""
    return "make room on the disk of the job's folder" if is_full(error) else "make the job's folder writable"


def _swap(new: Path, result_folder: Path, run_id: str) -> bool:
    """Rename ``new`` to ``result_folder``; another node may be doing the same at this moment."""
    for _ in range(_SWAP_TRIES):
        if _published_run(result_folder) == run_id:
            return False
        old = _move_aside(result_folder)
        if old is not None and _published_run(old) == run_id:  # the other node's came in between
            _put_back(old, result_folder)
            continue
        try:
            new.rename(result_folder)
        except OSError:
            if not result_folder.exists():  # no other node: the disk or the permissions
                if old is not None:
                    _put_back(old, result_folder)
                raise
        else:
            sync(result_folder.parent)
            return True
        finally:
            if old is not None:
                shutil.rmtree(old, ignore_errors=True)
    raise StorageError(
        f"{result_folder} was replaced by others {_SWAP_TRIES} times in a row",
        "Let one chain at a time train this job.",
    )


def _move_aside(result_folder: Path) -> Path | None:
    """Rename what stands in the result's place; return its new name, or None when nothing stood there."""
    old = result_folder.parent / f"{_OLD}{secrets.token_hex(8)}"
    try:
        result_folder.rename(old)
    except FileNotFoundError:
        return None
    return old


def _put_back(old: Path, result_folder: Path) -> None:
    try:
        old.rename(result_folder)
    except OSError:  # a third node filled the place meanwhile, with a result of the same run or a later one
        shutil.rmtree(old, ignore_errors=True)


def _published_run(folder: Path) -> str | None:
    """Return the run whose result ``folder`` holds; None when that cannot be told."""
    try:
        return msgspec.json.decode((folder / SUMMARY_FILE).read_bytes(), type=_Stamp).run_id
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _remove_abandoned(folder: Path) -> None:
    """Remove temporary folders of nodes that died while they published."""
    for pattern in (_NEW, _OLD):
        for path in folder.glob(f"{pattern}*"):
            try:
                abandoned = time.time() - path.stat().st_mtime > _ABANDONED_AFTER_S
            except OSError:
                continue  # its owner removed it this moment
            if abandoned:
                shutil.rmtree(path, ignore_errors=True)
