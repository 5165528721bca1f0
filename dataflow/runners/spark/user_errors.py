"""Errors of users' functions on their way from a worker's process, through Spark, back to the user.

Spark tells the driver of an error in a worker as text. The exception travels in that text, pickled where it can be, so
that what is raised in the end is what was raised, with operator and subtask as notes.
"""

from __future__ import annotations

import base64
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from dataflow.errors import SparkFailed
from dataflow.runners.spark.job_directory import Home
from dataflow.runners.spark.quiet_logs import Told
from dataflow.runners.spark.session import pyspark
from dataflow.runners.spark.worker_notes import left_at_work

__all__ = ["Carrier", "carried", "delivered", "failed", "noted", "original"]

_LONGEST: Final = 1_000
_SHOWN: Final = 3
_FRAME: Final = re.compile(r"\s+(at [\w.$/]+\(?|\.\.\. \d+ more)|Driver stacktrace:")
_MARK: Final = re.compile(r"barrierflow-error\[([A-Za-z0-9+/=]+)\]")


class Carrier(Exception):
    """An exception in a form that Spark passes on."""


@contextmanager
def carried(task: str, working: Callable[[], Any] = lambda: None) -> Iterator[None]:
    """Put what is raised inside into a ``Carrier``, with ``task`` and the operator that was ``working`` as a note."""
    try:
        yield
    except (Carrier, Told, GeneratorExit):
        raise
    except BaseException as error:  # an exit of a user's function as well: unheard, it would be a dead worker
        node = working()
        if node is None:
            error.add_note(f"in {task}")
        else:
            batch = "" if node.current is None else f", in a batch of {len(node.current.rows)} rows"
            error.add_note(f"in operator {node.name!r} of {task}{batch}")
        raise Carrier(_mark(error)) from error


def _mark(error: BaseException) -> str:
    notes = list(getattr(error, "__notes__", ()))
    where = "".join(traceback.format_exception(error))
    pickle: Any = pyspark("pyspark.cloudpickle")  # an exception class may be of the user's script
    try:
        pickled = pickle.dumps((error, notes, where))
        pickle.loads(pickled)
    except Exception:
        pickled = pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), notes, where))
    return f"barrierflow-error[{base64.b64encode(pickled).decode()}]"


def noted(carrier: Carrier, notes: Sequence[str]) -> Carrier:
    """Return a carrier of the same exception with ``notes`` added. Raise it from the same cause."""
    cause = carrier.__cause__
    if cause is None:
        return carrier
    for note in notes:
        cause.add_note(note)
    return Carrier(_mark(cause))


def original(error: BaseException, home: Home | None = None) -> BaseException:
    """What the user should see in the place of ``error``, raised in this process by the job that lives in ``home``."""
    if isinstance(error, Carrier) and error.__cause__ is not None:
        return error.__cause__
    if isinstance(error, Carrier) or _is_sparks(error):
        return delivered(str(error)) or failed(error, home)
    return error


def _is_sparks(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def failed(error: BaseException, home: Home | None = None) -> SparkFailed:
    """What to raise for an error of Spark's own: what it says below all frames, and what to do where that is known."""
    text = str(error)
    if "Python worker exited unexpectedly" in text:
        return SparkFailed(_death(left_at_work(home) if home is not None else []), error)
    if type(error).__name__ in ("Py4JNetworkError", "ConnectionRefusedError"):
        return SparkFailed(
            "its JVM is gone: it was killed, or crashed; start this program again, and restore='auto' resumes "
            "after the last micro-batch",
            error,
        )
    return SparkFailed(reason(text)[:_LONGEST], error)


def _death(left: Sequence[tuple[str, Sequence[str]]]) -> str:
    where = "; ".join(f"{task} (operators {', '.join(map(repr, operators))})" for task, operators in left[:_SHOWN])
    return (
        f"a Python worker died without a word{' at ' + where if where else ''}: by a signal, for want of memory, or "
        "because a function left the process. Run again with restore='auto' to resume after the last micro-batch. "
        "A lower SparkRunner(rows_per_trigger=) takes less memory. On one machine Spark does not try again of itself, "
        "unless its master is local[N, TRIES]"
    )


def reason(text: str) -> str:
    """The last cause that a text of Spark's names, without frames.

    >>> reason("It failed\\n\\tat a.B.c(D)\\nCaused by: java.io.IOException: no space\\n\\tat a.B.d(E)\\n\\t... 3 more")
    'java.io.IOException: no space'
    """
    text = text.partition("=== Streaming Query ===")[0].partition("JVM stacktrace")[0]
    text = text.rpartition("\nCaused by: ")[2]
    lines = [line for line in text.splitlines() if not _FRAME.match(line)]
    return "\n".join(lines).strip()


def delivered(text: str) -> BaseException | None:
    """The exception that ``text``, what Spark says of a failure, carries; None: the failure is none of ours.

    The worker's traceback is its attribute ``worker_traceback``.
    """
    found = _MARK.search(text)
    if found is None:
        return None
    error, notes, where = pyspark("pyspark.cloudpickle").loads(base64.b64decode(found[1]))
    for note in notes:
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
    error.worker_traceback = where
    return error
