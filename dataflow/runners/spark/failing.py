"""Errors of users' functions on their way from a worker's process, through Spark, back to the user.

Spark tells the driver of an error in a worker as text. The exception travels in that text, pickled where it can be, so
that what is raised in the end is what was raised, with operator and subtask as notes.
"""

from __future__ import annotations

import base64
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from dataflow.errors import SparkFailed
from dataflow.runners.spark.session import pyspark

__all__ = ["Carrier", "carried", "delivered", "failed", "original"]

_LONGEST: Final = 1_000
_FRAME: Final = re.compile(r"\n\s+(?:at [\w.$/@]+\(.*\)|\.\.\. \d+ more)(?=\n|$)")
_MARK: Final = re.compile(r"barrierflow-error\[([A-Za-z0-9+/=]+)\]")


class Carrier(Exception):
    """An exception in a form that Spark passes on."""


@contextmanager
def carried(task: str, working: Callable[[], Any] = lambda: None) -> Iterator[None]:
    """Put what is raised inside into a ``Carrier``, with ``task`` and the operator that was ``working`` as a note."""
    try:
        yield
    except Carrier:
        raise
    except Exception as error:
        node = working()
        if node is None:
            error.add_note(f"in {task}")
        else:
            batch = "" if node.current is None else f", in a batch of {len(node.current.rows)} rows"
            error.add_note(f"in operator {node.name!r} of {task}{batch}")
        raise Carrier(_mark(error)) from error


def _mark(error: Exception) -> str:
    notes = list(getattr(error, "__notes__", ()))
    where = "".join(traceback.format_exception(error))
    pickle: Any = pyspark("pyspark.cloudpickle")  # an exception class may be of the user's script
    try:
        pickled = pickle.dumps((error, notes, where))
        pickle.loads(pickled)
    except Exception:
        pickled = pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), notes, where))
    return f"barrierflow-error[{base64.b64encode(pickled).decode()}]"


def original(error: BaseException) -> BaseException:
    """What the user should see in the place of ``error``, which was raised in this process."""
    if isinstance(error, Carrier) and error.__cause__ is not None:
        return error.__cause__
    if isinstance(error, Carrier) or _is_sparks(error):
        return delivered(str(error)) or failed(error)
    return error


def _is_sparks(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def failed(error: BaseException) -> SparkFailed:
    """What to raise for an error of Spark's own: its first lines, without the frames of the JVM between causes."""
    text = _FRAME.sub("", str(error).partition("=== Streaming Query ===")[0].partition("JVM stacktrace")[0]).strip()
    return SparkFailed(text[:_LONGEST], error)


def delivered(text: str) -> Exception | None:
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
