"""Errors of users' functions, sent from a worker's process through Spark to the user.

Spark reports an error in a worker to the driver as text. The exception is in that text, pickled if possible. So the
user gets the exception that was raised, with operator and subtask as notes.
"""

from __future__ import annotations

import base64
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from dataflow.errors import SparkFailed
from dataflow.runners.spark.expressions.run_time_errors import translated
from dataflow.runners.spark.job_directory import JobDirectory
from dataflow.runners.spark.quiet_logs import MicroBatchRejected
from dataflow.runners.spark.session import pyspark
from dataflow.runners.spark.worker_notes import unfinished_work

__all__ = [
    "Place",
    "SerializedError",
    "deserialized",
    "is_from_spark",
    "original_error",
    "place_of",
    "serialized_errors",
    "spark_errors",
    "spark_failure",
    "with_notes",
]

_LONGEST: Final = 1_000
_SHOWN: Final = 3
_FRAME: Final = re.compile(r"\s+(at [\w.$/]+\(?|\.\.\. \d+ more)|Driver stacktrace:")
_STOPPED: Final = (
    "stopped SparkContext",
    "SparkContext was shut down",
    "SparkContext has been shutdown",
    'dagScheduler()" is null',
)
"""What Spark says of a session that was stopped; the last one, where it notices too late."""
_MARK: Final = re.compile(r"barrierflow-error\[([A-Za-z0-9+/=]+)\]")


class Place(NamedTuple):
    """Where an error was raised: in a task, or "the driver"; ``operator`` is None if none was at work."""

    task: str
    operator: str | None


class SerializedError(Exception):
    """An exception whose message holds another exception, pickled, because Spark passes on only the message."""


@contextmanager
def serialized_errors(task: str, working: Callable[[], Any] = lambda: None) -> Iterator[None]:
    """Raise errors as ``SerializedError``, with a note of ``task`` and of the operator that was ``working``.

    The block must not yield: a generator that is closed there would raise GeneratorExit, as a user's function may.
    """
    try:
        yield
    except (SerializedError, MicroBatchRejected):
        raise
    except BaseException as error:  # including SystemExit of a user's function, which would end the worker
        node = working()
        if node is None:
            error.add_note(f"in {task}")
        else:
            batch = "" if node.current is None else f", in a batch of {len(node.current.rows)} rows"
            error.add_note(f"in operator {node.name!r} of {task}{batch}")
        place = Place(task, None if node is None else node.name)
        raise SerializedError(_mark(error, place)) from error


def _mark(error: BaseException, place: Place | None) -> str:
    notes = list(getattr(error, "__notes__", ()))
    where = "".join(traceback.format_exception(error))
    pickle: Any = pyspark("pyspark.cloudpickle")  # the exception's class may be defined in the user's script
    try:
        pickled = pickle.dumps((error, notes, where, place))
        pickle.loads(pickled)
    except Exception:
        pickled = pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), notes, where, place))
    return f"barrierflow-error[{base64.b64encode(pickled).decode()}]"


def with_notes(carrier: SerializedError, notes: Sequence[str]) -> SerializedError:
    """Return an error with the same exception, to which ``notes`` are added. Raise it from the same cause."""
    cause = carrier.__cause__
    if cause is None:
        return carrier
    for note in notes:
        cause.add_note(note)
    return SerializedError(_mark(cause, place_of(carrier)))


def original_error(error: BaseException, directory: JobDirectory | None = None) -> BaseException:
    """Return the exception to show to the user for ``error``, which the job in ``directory`` raised."""
    if isinstance(error, SerializedError) and error.__cause__ is not None:
        return error.__cause__
    if isinstance(error, SerializedError) or is_from_spark(error):
        return deserialized(str(error)) or translated(error) or spark_failure(error, directory)
    return error


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the errors of Spark's own methods: a query failed, or the JVM is gone."""
    return (pyspark("pyspark.errors").PySparkException, pyspark("py4j.protocol").Py4JError, OSError)


def is_from_spark(error: BaseException) -> bool:
    """Return whether Spark or its bridge to Python raised an error, which may be a plain ``ConnectionRefusedError``."""
    return _is_of_spark(type(error).__module__) or (isinstance(error, OSError) and _is_of_spark(_raiser(error)))


def _is_of_spark(module: str) -> bool:
    return module.partition(".")[0] in ("pyspark", "py4j")


def _raiser(error: BaseException) -> str:
    """Return the name of the module that raised an error; "": it is not known."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return str(frames[-1].f_globals.get("__name__", "")) if frames else ""


def spark_failure(error: BaseException, directory: JobDirectory | None = None) -> SparkFailed:
    """Return the error to raise for an error of Spark's own: its last cause, and what to do next if that is known."""
    text = str(error)
    if "Python worker exited unexpectedly" in text:
        return SparkFailed(_describe_death(unfinished_work(directory) if directory is not None else []), error)
    if type(error).__name__ == "Py4JNetworkError" or isinstance(error, OSError):
        return SparkFailed(
            "the JVM was killed or has crashed; start this program again: with restore='auto' a stream resumes after "
            "the last micro-batch, and a batch begins anew",
            error,
        )
    if any(words in text for words in _STOPPED):
        return SparkFailed(
            "the SparkSession was stopped while the job ran: build a new one and run again; with restore='auto' a "
            "stream resumes after the last micro-batch, and a batch begins anew",
            error,
        )
    return SparkFailed(reason(text)[:_LONGEST], error)


def _describe_death(unfinished: Sequence[tuple[str, Sequence[str]]]) -> str:
    shown = unfinished[:_SHOWN]
    where = "; ".join(f"{task} (operators {', '.join(map(repr, operators))})" for task, operators in shown)
    return (
        f"a Python worker died without an error{' at ' + where if where else ''}: it got a signal, ran out of memory, "
        "or a function exited the process. Run again: a stream with checkpoint= resumes after the last micro-batch, a "
        "batch begins anew. A stream needs less memory with a lower SparkRunner(rows_per_trigger=), a batch with more "
        "partitions (max_key_groups=). On one machine Spark repeats a task only if its master is local[N, TRIES]"
    )


def reason(text: str) -> str:
    """Return the last cause in a message of Spark's, without stack frames.

    >>> reason("It failed\\n\\tat a.B.c(D)\\nCaused by: java.io.IOException: no space\\n\\tat a.B.d(E)\\n\\t... 3 more")
    'java.io.IOException: no space'
    """
    text = text.partition("=== Streaming Query ===")[0].partition("JVM stacktrace")[0]
    text = text.rpartition("\nCaused by: ")[2]
    lines = [line for line in text.splitlines() if not _FRAME.match(line)]
    return "\n".join(lines).strip()


def deserialized(text: str) -> BaseException | None:
    """Return the exception in ``text``, Spark's message of a failure; None: there is none.

    Its attribute ``worker_traceback`` is the traceback in the worker.
    """
    if (unpacked := _unpacked(text)) is None:
        return None
    error, notes, where, _ = unpacked
    for note in notes:
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
    error.worker_traceback = where  # type: ignore[attr-defined]
    return error


def place_of(error: BaseException) -> Place | None:
    """Return where the exception was raised that ``error``, or Spark's message in it, holds; None: it holds none."""
    unpacked = _unpacked(str(error))
    return None if unpacked is None else unpacked[3]


def _unpacked(text: str) -> tuple[BaseException, Sequence[str], str, Place | None] | None:
    """Return the exception in ``text``, its notes, its traceback and its place; None: there is no exception."""
    mark = _MARK.search(text)
    if mark is None:
        return None
    unpacked: tuple[BaseException, Sequence[str], str, Place | None]
    unpacked = pyspark("pyspark.cloudpickle").loads(base64.b64decode(mark[1]))
    return unpacked
