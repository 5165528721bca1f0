"""What users and disks do wrong. Each message says what was expected, what was found, where, and what to do next.

Broken invariants of ours are ``assert`` statements, not exceptions of this module.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

__all__ = [
    "OTHER_PIPELINE",
    "BarrierflowWarning",
    "CheckpointDamaged",
    "CheckpointError",
    "CheckpointMismatch",
    "CheckpointSkippedWarning",
    "CheckpointsExist",
    "CheckpointsFailedWarning",
    "CleanupFailedWarning",
    "CommitsRetriedWarning",
    "ConfigurationError",
    "ContractViolation",
    "DataflowError",
    "DirectoryInUse",
    "GraphError",
    "IgnoredSettingWarning",
    "InconsistentSnapshot",
    "InputChanged",
    "InputMissingWarning",
    "JobCancelled",
    "JobFailedWarning",
    "JobTimeout",
    "LateRowsWarning",
    "NewInputWarning",
    "NoCheckpoint",
    "OutputExists",
    "PartitionKeyWarning",
    "PredicateSkippedWarning",
    "ProcessFailed",
    "RowsTakenBackWarning",
    "SchemaMismatch",
    "SinkBroken",
    "SnapshotStuck",
    "SourceError",
    "StillRunningWarning",
    "StoreError",
    "UnknownColumn",
    "UnnamedStateWarning",
    "UnsafeCacheWarning",
    "UnstablePredicateWarning",
    "UnsupportedOnRunner",
    "did_you_mean",
    "user_frame",
]

_OURS = ("dataflow", "operators")


OTHER_PIPELINE = "restore it with the pipeline that took it, or start over in a new checkpoint directory"
"""The advice for a checkpoint of another pipeline."""


class DataflowError(Exception):
    """The root of every error this library raises on purpose."""


class GraphError(DataflowError):
    """The pipeline as written makes no sense; found before anything runs."""


class UnknownColumn(GraphError):
    """A column that the stream does not have."""

    def __init__(self, column: str, valid: Iterable[str], where: str) -> None:
        names = list(valid)
        self.column = column
        super().__init__(f"{where}: there is no column {column!r}{did_you_mean(column, names)}; valid columns: {names}")


class SchemaMismatch(GraphError):
    """Columns or types differ from what an operator, a file or a sink needs."""


class ConfigurationError(DataflowError):
    """Settings that exclude each other, or a value outside its range."""


class UnsupportedOnRunner(GraphError):
    """What a runner cannot do exactly as it is defined, and so does not do at all; found before anything runs.

    >>> raise UnsupportedOnRunner("select: col('x')", "spark", "Spark has no uint64", "cast to int64")
    Traceback (most recent call last):
    dataflow.errors.UnsupportedOnRunner: select: col('x'): not on the spark runner: Spark has no uint64; cast to int64
    """

    def __init__(self, what: str, runner: str, reason: str, instead: str) -> None:
        super().__init__(f"{what}: not on the {runner} runner: {reason}; {instead}")


class ContractViolation(DataflowError, TypeError):
    """A user's operator, sink or source returned or emitted something that its contract does not allow."""


class SourceError(DataflowError):
    """An input is missing or cannot be read."""


class InputChanged(SourceError):
    """An input is not the one the checkpoint was taken over, so its offsets mean nothing."""


class SinkBroken(DataflowError):
    """Rows that a sink had staged are lost: the job must stop and restart from its last checkpoint, which is intact."""


class OutputExists(DataflowError):
    """A sink's target already holds the output of another run."""


class CheckpointError(DataflowError):
    """The root of what can go wrong with checkpoints."""


class StoreError(CheckpointError):
    """The checkpoint store could not write or read."""


class NoCheckpoint(CheckpointError):
    """A restore was asked for and there is nothing to restore."""


class CheckpointDamaged(CheckpointError):
    """A part of a checkpoint is missing or fails its checksum."""


class CheckpointMismatch(CheckpointError):
    """The checkpoint belongs to another pipeline; the message lists what differs."""


class CheckpointsExist(CheckpointError):
    """``restore="never"`` into a directory that already holds checkpoints."""


class DirectoryInUse(CheckpointError):
    """Another job holds the checkpoint directory, or the directory a sink writes to."""


class PipelineFailed(DataflowError):
    """A user's own code raised in a run that this library made on its own account, such as one of a comparison."""


class InconsistentSnapshot(DataflowError):
    """A snapshot of processes that no run could have passed through: a fault of ours, or a channel that is not FIFO."""


class SnapshotStuck(DataflowError):
    """A snapshot of processes that will not be complete: its observer waits for a message that nobody accepts."""


class ProcessFailed(DataflowError):
    """A process of a ``ProcessGraph`` raised earlier in this run, and was asked to go on."""


class SparkFailed(DataflowError):
    """Spark itself failed. ``spark_error`` is what it raised, with the frames of its JVM."""

    def __init__(self, reason: str, spark_error: BaseException) -> None:
        super().__init__(f"Spark failed: {reason}")
        self.spark_error = spark_error


class JobCancelled(DataflowError):
    """The job was cancelled before its input ended."""


class JobTimeout(DataflowError, TimeoutError):
    """``run(timeout=)`` passed before the job was done."""


class BarrierflowWarning(UserWarning):
    """The root of every warning of this library.

    Warnings about a pipeline or its settings are given when it is built or started. Warnings about a run are given
    once, with figures, by the thread that called ``run()`` or ``wait()``, after the last commit; ``RunResult.warnings``
    has them, too.

    With ``warnings.filterwarnings("error", category=BarrierflowWarning)`` a run that has warnings raises the first one.
    Its output is complete and committed even then, and the ``result`` of the raised warning is the result that
    ``run()`` would have returned. A second ``wait()`` returns it as well.

    Attributes:
        result: the `RunResult`; None for a warning that is not about a run, or about a run that failed.

    >>> import warnings
    >>> warnings.filterwarnings("ignore", category=LateRowsWarning)  # one category, or BarrierflowWarning for all
    """

    result: Any = None


class CheckpointSkippedWarning(BarrierflowWarning):
    """A damaged checkpoint was not restored, and an older one was; or one that cannot be read stays in the store."""


class RowsTakenBackWarning(BarrierflowWarning):
    """Committed rows were deleted from a sink, because a checkpoint older than their commit was restored.

    The job produces these rows again. Readers may have seen them in the meantime.
    """


class CheckpointsFailedWarning(BarrierflowWarning):
    """Checkpoints failed, and the job survived it: see ``Checkpointing(tolerable_failures=)``."""


class CommitsRetriedWarning(BarrierflowWarning):
    """A sink could not commit at once, so rows became visible later than their checkpoint."""


class LateRowsWarning(BarrierflowWarning):
    """Rows came too late for a window and are missing from its result. Not given if ``.side("late")`` is read."""


class CleanupFailedWarning(BarrierflowWarning):
    """Closing an operator or a reader of a source raised, or old files could not be deleted."""


class StillRunningWarning(BarrierflowWarning):
    """The job was cancelled, and a user's function had not returned after some seconds: its thread still runs."""


class JobFailedWarning(BarrierflowWarning):
    """A job failed, and the block of ``with p.start() as job`` was left without ``job.wait()``.

    ``job.wait()`` raises the error, and so does ``run()``.
    """


class InputMissingWarning(BarrierflowWarning):
    """Input could not be read: splits not listed, a watched directory replaced, or a listed file gone."""


class PredicateSkippedWarning(BarrierflowWarning):
    """A predicate was not asked about a checkpoint that could not be read.

    Not given for checkpoints that were skipped because the predicate is slow: see ``Answers.skipped``.
    """


class UnstablePredicateWarning(BarrierflowWarning):
    """A predicate held in a snapshot and not in a later one, so it says nothing certain about a running system."""


class UnnamedStateWarning(BarrierflowWarning):
    """Operators without ``name=`` have state in durable checkpoints.

    Their automatic names count operators of their kind, so another source, aggregate or sink put in before them
    renames them, and the checkpoint no longer fits.
    """


class IgnoredSettingWarning(BarrierflowWarning):
    """A setting that the runner has no use for.

    To silence it: ``warnings.filterwarnings("ignore", category=IgnoredSettingWarning)``
    """


class NewInputWarning(BarrierflowWarning):
    """A source has splits that the restored job does not read: its input was settled when it first began.

    ``RestoreReport.not_read`` names them all.
    """


class PartitionKeyWarning(BarrierflowWarning):
    """Files lie in folders such as ``year=2013``, whose key is no column of the stream."""


class UnsafeCacheWarning(BarrierflowWarning):
    """A folder or file of compiled loops is ignored, because other users may have written it.

    The code in it would be run. To silence it: ``warnings.filterwarnings("ignore", category=UnsafeCacheWarning)``
    """


def closing_raised(where: str, error: BaseException) -> str:
    """Return the text of a CleanupFailedWarning about ``error``, which closing ``where`` raised.

    >>> closing_raised("sums[0]", OSError("still open"))
    "closing sums[0] raised OSError('still open')"
    """
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"closing {where} raised {error!r}{notes and f' ({notes})'}"


def user_frame() -> int:
    """The ``stacklevel`` at which the caller of this function warns of the first frame outside this library."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    return level


def did_you_mean(word: object, valid: Iterable[str]) -> str:
    """A hint for a misspelt word, or nothing.

    >>> did_you_mean("prize", ["price", "auction"])
    " (did you mean 'price'?)"
    >>> did_you_mean("zzz", ["price"])
    ''
    """
    close = get_close_matches(str(word), list(valid), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
