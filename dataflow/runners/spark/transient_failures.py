"""Transient failures of Spark: after them a batch is computed again, and a stream continues after its last micro-batch.

A failure of a user's function, plan or ``raise_error`` is none of these, whatever its text says.
"""

from __future__ import annotations

from typing import Final

from dataflow.runners.spark.session import pyspark
from dataflow.runners.spark.user_errors import SerializedError, deserialized, is_from_spark

__all__ = ["LOST", "TRIES", "reason_to_repeat"]

TRIES: Final = 3
"""How often a batch is computed, and how often in a row a micro-batch of a stream is tried."""
LOST: Final = "Spark lost an executor and ran tasks again"
_INDETERMINATE: Final = ("output", "results", "rollback", "stage")
_TRANSIENT: Final = {
    **{f"indeterminate {what}": f"{LOST}, whose rows may differ from those sent before" for what in _INDETERMINATE},
    "checkpoint block": "Spark lost an executor with rows that tasks had computed",
    "failed to connect back": "a Python worker of Spark's did not start in time, as on a busy machine",
    "executorlostfailure": "Spark lost an executor more often than it runs a task again",
    "fetchfailed": "Spark lost an executor with rows of a shuffle",
}
"""By words of Spark's errors, the transient failures."""
_DEATH: Final = {"python worker exited unexpectedly": "a Python worker of Spark's died"}
"""Transient in a stream only: it repeats one micro-batch, a batch would begin from nothing."""

_RAISED: Final = "[USER_RAISED_EXCEPTION]"
"""What Spark calls errors of its function ``raise_error``."""


def reason_to_repeat(error: BaseException, *, in_stream: bool = False) -> str | None:
    """Return why the work that failed is done again; None: the failure is not Spark's, or would come again."""
    cause = error.__cause__ if isinstance(error, SerializedError) and error.__cause__ is not None else error
    text = str(cause)
    if not is_from_spark(cause) or deserialized(text) is not None:
        return None
    if isinstance(cause, pyspark("pyspark.errors").AnalysisException) or _RAISED in text:
        return None
    transient = _TRANSIENT | _DEATH if in_stream else _TRANSIENT
    return next((why for words, why in transient.items() if words in text.lower()), None)
