"""Exceptions and warnings of the library, for errors of users, disks and other systems.

Each message says what failed, what was expected and found, where, and what to do next. Violated invariants of the
library itself are ``assert`` statements, not exceptions of this module.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Container, Iterable
from difflib import get_close_matches
from numbers import Integral
from types import TracebackType
from typing import Any

__all__ = [
    "AmbiguousKey",
    "AwaitedSplitsWarning",
    "BarrierflowWarning",
    "BatchRepeatedWarning",
    "CheckpointDamaged",
    "CheckpointDeleted",
    "CheckpointError",
    "CheckpointIncomplete",
    "CheckpointMismatch",
    "CheckpointPinned",
    "CheckpointSkippedWarning",
    "CheckpointsExist",
    "CheckpointsFailedWarning",
    "CleanupFailedWarning",
    "ClockStepWarning",
    "CommitsDelayedWarning",
    "CopiesDifferWarning",
    "PipelineChangedWarning",
    "CommitsRetriedWarning",
    "ConfigurationError",
    "ContractViolation",
    "DataflowError",
    "DirectoryInUse",
    "DirectoryNameWarning",
    "EndlessInputWarning",
    "EventsDamaged",
    "EventsError",
    "FilesLeftOutWarning",
    "GraphError",
    "GrowingStateWarning",
    "IgnoredSettingWarning",
    "InconsistentSnapshot",
    "InputChanged",
    "InputMissingWarning",
    "JobCancelled",
    "JobFailedWarning",
    "JobRestartedWarning",
    "JobTimeout",
    "JobUnreachable",
    "LateRowsWarning",
    "ManyPartitionsWarning",
    "MissingColumnWarning",
    "NegativeNet",
    "NewInputWarning",
    "NewSparkAppWarning",
    "NoCheckpoint",
    "NotInCheckpoint",
    "NothingToReadWarning",
    "OTHER_PIPELINE",
    "OutputExists",
    "PartitionKeyWarning",
    "PredicateSkippedWarning",
    "ProcessFailed",
    "RecordingEndedWarning",
    "RowsTakenBackWarning",
    "SchemaMismatch",
    "SinkBroken",
    "SnapshotStuck",
    "SourceError",
    "StillRunningWarning",
    "StoreError",
    "StreamRestartedWarning",
    "TableReloadedWarning",
    "UnknownColumn",
    "UnknownSplitsWarning",
    "UnnamedStateWarning",
    "UnsafeCacheWarning",
    "UnstablePredicateWarning",
    "UnsupportedOnRunner",
    "check_count",
    "check_flag",
    "did_you_mean",
    "is_raised_by_user",
    "repeated_names",
    "user_frame",
    "user_traceback",
]

_OURS = ("dataflow", "operators")


OTHER_PIPELINE = "restore it with the pipeline that took it, or start over in a new checkpoint directory"
"""The advice for a checkpoint of another pipeline."""


class DataflowError(Exception):
    """The root of every error this library raises on purpose."""


class GraphError(DataflowError):
    """The pipeline or the process graph is invalid; raised when it is built or planned, before it runs."""


class UnknownColumn(GraphError):
    """A pipeline uses a column that the stream does not have.

    Args:
        column: the unknown name.
        valid: the names of the stream's columns.
        where: the operator, for the message.

    >>> raise UnknownColumn("prize", ["price"], "filter")
    Traceback (most recent call last):
    dataflow.errors.UnknownColumn: filter: there is no column 'prize' (did you mean 'price'?); valid columns: ['price']
    """

    def __init__(self, column: str, valid: Iterable[str], where: str) -> None:
        names = list(valid)
        self.column = column
        super().__init__(f"{where}: there is no column {column!r}{did_you_mean(column, names)}; valid columns: {names}")


class SchemaMismatch(GraphError):
    """Columns or types differ from those that an operator, a file or a sink requires."""


class ConfigurationError(DataflowError):
    """Settings exclude each other, or a value is outside its range."""


class UnsupportedOnRunner(GraphError):
    """A runner cannot execute an operator exactly as defined, and refuses it before anything runs.

    Args:
        what: the operator and the expression.
        runner: the name of the runner.
        reason: why the runner cannot execute it.
        instead: an alternative.

    >>> raise UnsupportedOnRunner("select: col('x')", "spark", "Spark has no uint64", "cast to int64")
    Traceback (most recent call last):
    dataflow.errors.UnsupportedOnRunner: select: col('x'): not on the spark runner: Spark has no uint64; cast to int64
    """

    def __init__(self, what: str, runner: str, reason: str, instead: str) -> None:
        super().__init__(f"{what}: not on the {runner} runner: {reason}; {instead}")
        self.reason = reason


class ContractViolation(DataflowError, TypeError):
    """A user's operator, sink or source returned or emitted a value that its contract does not allow."""


class SourceError(DataflowError):
    """An input is missing or cannot be read."""


class InputChanged(SourceError):
    """An input differs from the one that the checkpoint refers to, so the stored offsets are invalid."""


class SinkBroken(DataflowError):
    """Rows that a sink had staged are lost: the job must stop and restart from its last checkpoint, which is intact."""


class NegativeNet(DataflowError, ValueError):
    """A row of signed changes was taken back more often than it was added."""


class AmbiguousKey(DataflowError, ValueError):
    """At the end of signed changes, a key has several rows where a sink keeps one."""


class OutputExists(DataflowError):
    """A sink's target already holds the output of another run."""


class CheckpointError(DataflowError):
    """The root of errors about checkpoints."""


class StoreError(CheckpointError):
    """The checkpoint store failed to write or read."""


class NoCheckpoint(CheckpointError):
    """A restore was requested, but there is no checkpoint to restore."""


class CheckpointDamaged(CheckpointError):
    """A part of a checkpoint is missing or fails its checksum."""


class CheckpointIncomplete(CheckpointDamaged):
    """Objects of a checkpoint are missing, for example because its folder was copied without older ones it needs."""


class EventsError(DataflowError):
    """Events of a run cannot be recorded, read or shown; the message says why, and what to do."""


class EventsDamaged(EventsError):
    """A recording of events is damaged, forged, or no recording at all."""


class CheckpointPinned(CheckpointError):
    """A checkpoint cannot be deleted now, because a restore or a command reads it."""


class CheckpointDeleted(CheckpointError):
    """A checkpoint was deleted while it was read."""


class NotInCheckpoint(CheckpointError):
    """A checkpoint holds no such operator, table or channel; the message lists those that it holds."""


class CheckpointMismatch(CheckpointError):
    """The checkpoint belongs to another pipeline; the message lists what differs."""


class CheckpointsExist(CheckpointError):
    """A run with ``restore="never"`` uses a directory that already contains checkpoints."""


class DirectoryInUse(CheckpointError):
    """Another job holds the checkpoint directory, or the directory a sink writes to."""


class PipelineFailed(DataflowError):
    """A user's code raised in a run that the library started itself, such as a run of a comparison."""


class InconsistentSnapshot(DataflowError):
    """A snapshot of processes is not a possible state of the run: a bug of the library, or a channel is not FIFO."""


class SnapshotStuck(DataflowError):
    """A snapshot of processes will not be complete, because its observer waits for a message that is never accepted."""


class ProcessFailed(DataflowError):
    """A process of a ``ProcessGraph`` raised earlier in this run, and cannot take another step."""


class SparkFailed(DataflowError):
    """Spark itself failed.

    Attributes:
        spark_error: the exception of Spark, with the stack frames of its JVM.
    """

    def __init__(self, reason: str, spark_error: BaseException) -> None:
        super().__init__(f"Spark failed: {reason}")
        self.spark_error = spark_error


class JobCancelled(DataflowError):
    """The job was cancelled before its input ended."""


class JobUnreachable(DataflowError):
    """No job runs in a directory, or one that this process cannot ask: on another host, of another user, on Spark."""


class JobTimeout(DataflowError, TimeoutError):
    """A timeout passed before the job, or a snapshot of processes, was complete."""


class BarrierflowWarning(UserWarning):
    """The root of every warning of this library.

    Warnings about a pipeline or its settings are given when it is built or started. Warnings about a run are given
    once, with figures, by the thread that called ``run()`` or ``wait()``, after the last commit;
    ``RunResult.warnings`` contains them, too.

    With ``warnings.filterwarnings("error", category=BarrierflowWarning)`` a run that has warnings raises the first one.
    Its output is complete and committed even then, and the ``result`` of the raised warning is the result that
    ``run()`` would have returned. A second ``wait()`` returns it, too.

    Attributes:
        given: whether it was given while the job ran; then it is not given again at the end.
        result: the `RunResult`; None for a warning that is not about a run, or about a run that failed.

    >>> import warnings
    >>> warnings.filterwarnings("ignore", category=LateRowsWarning)  # one category, or BarrierflowWarning for all
    """

    given: bool = False
    result: Any = None


class CheckpointSkippedWarning(BarrierflowWarning):
    """A damaged checkpoint was skipped and an older one restored, or an unreadable one stays in the store."""


class RowsTakenBackWarning(BarrierflowWarning):
    """Committed rows were deleted from a sink, because a checkpoint older than their commit was restored.

    The job produces these rows again. Readers may have seen them in the meantime.
    """


class CheckpointsFailedWarning(BarrierflowWarning):
    """Checkpoints failed, and the job continued: see ``Checkpointing(tolerable_failures=)``."""


class CommitsRetriedWarning(BarrierflowWarning):
    """A sink had to retry a commit, so rows became visible later than their checkpoint."""


class CommitsDelayedWarning(BarrierflowWarning):
    """A sink has not committed durable rows for a minute, and the job continues. It is given while the job runs."""


class ClockStepWarning(BarrierflowWarning):
    """The wall clock was more than a second off the time by the clock of the job, because one of them stepped."""


class LateRowsWarning(BarrierflowWarning):
    """Rows arrived too late for a window and are missing from its result. Not given if ``.side("late")`` is read."""


class NewSparkAppWarning(BarrierflowWarning):
    """Functions of ``op.foreach_batch`` get a new ``batch.app``: rows of an earlier job are written again."""


class UnknownSplitsWarning(BarrierflowWarning):
    """The splits of a streaming DataFrame were not named, so the rows of one that appears later may be late."""


class AwaitedSplitsWarning(BarrierflowWarning):
    """Splits of a streaming DataFrame that were named have had no rows, so time does not move and no window closes."""


class ManyPartitionsWarning(BarrierflowWarning):
    """A new stream on Spark has many more partitions than the session has cores: each micro-batch pays for all."""


class NothingToReadWarning(BarrierflowWarning):
    """A streaming DataFrame had no rows when a new job started, and the job does not wait for later ones."""


class CleanupFailedWarning(BarrierflowWarning):
    """Closing an operator or a reader of a source raised, or old files could not be deleted."""


class StillRunningWarning(BarrierflowWarning):
    """The job was cancelled, and a user's function had not returned after some seconds: its thread still runs."""


class JobFailedWarning(BarrierflowWarning):
    """A job failed, and the block of ``with p.start() as job`` was left without ``job.wait()``.

    ``job.wait()`` raises the error, and so does ``run()``.
    """


class JobRestartedWarning(BarrierflowWarning):
    """The job failed and restarted from its newest checkpoint, as ``run(restarts=)`` says: see `Restarts`.

    ``RunResult.restarts`` counts the restarts, and ``RunResult.attempts`` has the errors.
    """


class BatchRepeatedWarning(BarrierflowWarning):
    """A batch on Spark was computed again from the beginning, because Spark lost an executor. No row is there twice."""


class StreamRestartedWarning(BarrierflowWarning):
    """A stream on Spark restarted after a transient failure, at its last micro-batch. No row is lost or repeated."""


class InputMissingWarning(BarrierflowWarning):
    """Input could not be read: splits not listed, a watched directory replaced, or a listed file gone."""


class RecordingEndedWarning(BarrierflowWarning):
    """The recording of events ended before the run, because its file could not be written; the run continued."""


class PredicateSkippedWarning(BarrierflowWarning):
    """A predicate was not evaluated on a checkpoint, because the checkpoint could not be read.

    Not given for checkpoints that were skipped because the predicate is slow: see ``Answers.skipped``.
    """


class UnstablePredicateWarning(BarrierflowWarning):
    """A predicate held in a snapshot and not in a later one, so its result proves nothing about a running system."""


class UnnamedStateWarning(BarrierflowWarning):
    """Operators without ``name=`` have state in durable checkpoints.

    Their automatic names count operators of their kind. A source, aggregate or sink inserted before them changes the
    names, and the checkpoint no longer matches the pipeline.
    """


class GrowingStateWarning(BarrierflowWarning):
    """An operator keeps its rows as long as the job runs, and its input has no end: its state only grows.

    Joins without ``window=``, ``within=`` and ``ttl=`` are an example, as are ``unique`` and ``top`` without ``ttl=``.
    The warning names what limits the state.
    """


class EndlessInputWarning(BarrierflowWarning):
    """An operator emits results only at the end of its input, and its input has no end: they never come.

    ``agg(emit="final")`` without windows is an example, as is ``op.global_window()`` without ``early=``. The warning
    says how to get them earlier. A stop is not an end: the state is stored, and nothing is emitted.
    """


class DirectoryNameWarning(BarrierflowWarning):
    """A sink writes a directory of files, and the directory is named like a file."""


class IgnoredSettingWarning(BarrierflowWarning):
    """A setting has no effect on this runner.

    To silence it: ``warnings.filterwarnings("ignore", category=IgnoredSettingWarning)``
    """


class NewInputWarning(BarrierflowWarning):
    """A source has splits that the restored job does not read, because its input was fixed when it first started.

    ``RestoreReport.not_read`` lists them.
    """


class TableReloadedWarning(BarrierflowWarning):
    """The table of a lookup has changed since the checkpoint was taken, and ``on_change="reload"`` accepts that."""


class PipelineChangedWarning(BarrierflowWarning):
    """The pipeline has changed since the checkpoint was taken, and the restore has carried out the change.

    There is one for each entry of ``RestoreReport.evolved``: an operator, an aggregate or a state that is new, renamed
    or dropped, or a column that has become wider.
    """


class CopiesDifferWarning(BarrierflowWarning):
    """Copies of a `shared_map` differ between the subtasks of a checkpoint that is restored at another parallelism.

    They are equal unless a restore in mode "unaligned" repeated rows to some subtasks. All new subtasks start with the
    copy of the first one.
    """


class FilesLeftOutWarning(BarrierflowWarning):
    """A directory has files that are not read, because their names do not end as those of the format do.

    The warning has the patterns that read them. Files whose names begin with ``_`` or ``.`` are never read from a
    directory, and not mentioned. To silence it, give a pattern instead of the directory.
    """


class PartitionKeyWarning(BarrierflowWarning):
    """Files are in folders such as ``year=2013``, whose key is not a column of the stream."""


class MissingColumnWarning(BarrierflowWarning):
    """A column that ``schema=`` declares is in none of the files, so it is null in all rows; it may be misspelt."""


class UnsafeCacheWarning(BarrierflowWarning):
    """A folder or file of compiled loops is ignored, because other users may have written it.

    Its code would be executed. To silence it: ``warnings.filterwarnings("ignore", category=UnsafeCacheWarning)``
    """


def is_cleanup_failure(error: BaseException) -> bool:
    """Return whether an error of ``close()`` is a warning and nothing else. Others also end what is being closed.

    A user's ``close()`` may raise SystemExit as any error, and a generator GeneratorExit. KeyboardInterrupt is Ctrl-C.

    >>> is_cleanup_failure(SystemExit(1)), is_cleanup_failure(KeyboardInterrupt())
    (True, False)
    """
    return isinstance(error, Exception | SystemExit | GeneratorExit)


def closing_raised(where: str, error: BaseException) -> str:
    """Return the text of a CleanupFailedWarning about ``error``, which closing ``where`` raised.

    >>> closing_raised("sums[0]", OSError("still open"))
    "closing sums[0] raised OSError('still open')"
    """
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"closing {where} raised {error!r}{notes and f' ({notes})'}"


def user_frame() -> int:
    """Return the ``stacklevel`` with which the caller's warning names the first frame outside this library."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    return level


def user_traceback(error: BaseException) -> str:
    """Return the traceback of ``error`` from the first frame outside this library on; all of it if there is none."""
    import traceback

    return "".join(traceback.format_tb(_outside(error, _OURS) or error.__traceback__)).rstrip()


def is_raised_by_user(error: BaseException) -> bool:
    """Return whether ``error`` was raised by code that is neither of this library nor of pyarrow."""
    return _outside(error, (*_OURS, "pyarrow")) is not None


def _outside(error: BaseException, packages: Container[str]) -> TracebackType | None:
    """Return the traceback of ``error`` from the first frame outside some packages on."""
    step = error.__traceback__
    while step is not None and str(step.tb_frame.f_globals.get("__name__")).partition(".")[0] in packages:
        step = step.tb_next
    return step


def check_count(what: str, value: object, *, least: int = 1, advice: str = "") -> None:
    """Raise ConfigurationError unless ``value`` is a whole number from ``least`` to 2**63 - 1.

    Args:
        what: the setting, for the message.
        value: what the user gave.
        least: the least value.
        advice: what else the user may do, for the end of the message.

    >>> check_count("batch_rows=", 1.5)
    Traceback (most recent call last):
    dataflow.errors.ConfigurationError: batch_rows= must be a whole number of at least 1, got 1.5
    """
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is not None and number >= 1 << 63:
        raise ConfigurationError(f"{what} must be below 2**63, got {value}{advice}")
    if number is None or number < least:
        raise ConfigurationError(f"{what} must be a whole number of at least {least}, got {value!r}{advice}")


def check_flag(what: str, value: object) -> None:
    """Raise ConfigurationError unless ``value`` is True or False; ``what`` is the setting.

    >>> check_flag("take_back=", "yes")
    Traceback (most recent call last):
    dataflow.errors.ConfigurationError: take_back= must be True or False, got 'yes'
    """
    if not isinstance(value, bool):
        raise ConfigurationError(f"{what} must be True or False, got {value!r}")


def repeated_names(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, sorted, in time that is linear in their number.

    >>> repeated_names(["b", "a", "c", "b", "a"])
    ['a', 'b']
    """
    return sorted(name for name, count in Counter(names).items() if count > 1)


def did_you_mean(word: object, valid: Iterable[str]) -> str:
    """Return a hint at the closest valid word, or an empty text if none is close. Words in other case are the closest.

    Args:
        word: the misspelt word, of any type.
        valid: the valid words.

    >>> did_you_mean("prize", ["price", "auction"])
    " (did you mean 'price'?)"
    >>> did_you_mean("ID", ["price", "id"]), did_you_mean("zzz", ["price"])
    (" (did you mean 'id'?)", '')
    """
    words = list(valid)
    close = [other for other in words if other.casefold() == str(word).casefold()]
    close = close or get_close_matches(str(word), words, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
