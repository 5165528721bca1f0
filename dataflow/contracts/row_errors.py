"""Rows that a function or a parser cannot take: fail, leave them out, or set them aside. Counted and sampled always.

The policy is the operator's, the ``RowTally`` the engine's: one a subtask and operator, shown in every summary.

>>> tally = RowTally()
>>> errors = RowErrors(OnError.SIDE, tally)
>>> errors.reject("orders.csv:3", "1;x", ValueError("'x' is no number"))
>>> tally.skipped, tally.samples[0].error
(1, "ValueError: 'x' is no number")
>>> errors.take().to_pylist()
[{'where': 'orders.csv:3', 'row': '1;x', 'error': "ValueError: 'x' is no number"}]
>>> errors.take() is None
True
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from dataflow.contracts.lateness import Lateness
from dataflow.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ERRORS", "LATE", "SAMPLES", "OnError", "RowError", "RowErrors", "RowTally", "errors_schema"]

ERRORS: Final = "errors"
"""The side output of rows that were set aside; its schema is ``errors_schema()``."""
LATE: Final = "late"
"""The side output of rows that came too late for their window; they have the columns of the window's input."""
SAMPLES: Final = 5
"""Errors that a tally keeps."""
_TEXT: Final = 500


class OnError(Enum):
    """What becomes of a row that raises: the job fails; the row is left out; the row goes to side output ``errors``."""

    FAIL = "fail"
    SKIP = "skip"
    SIDE = "side"

    @staticmethod
    def of(value: str | OnError, where: str) -> OnError:
        """The policy a user named. Raises: ConfigurationError that lists the valid ones."""
        if isinstance(value, OnError):
            return value
        words = [policy.value for policy in OnError]
        if value not in words:
            raise ConfigurationError(f"{where}(on_error=) is one of {words}, got {value!r}")
        return OnError(value)


@dataclass(frozen=True, slots=True)
class RowError:
    """A row that was rejected: ``where`` it stood (file and line, or the operator), its text, and what was wrong."""

    where: str
    row: str
    error: str


@dataclass(slots=True)
class RowTally:
    """Counts of the rows that one subtask of an operator did not pass on in this run: late rows and rejected rows.

    They are not part of checkpoints: all counts of a run begin at zero, also after a restore.
    """

    late: int = 0
    skipped: int = 0
    samples: list[RowError] = field(default_factory=list)
    lateness: Lateness = field(default_factory=Lateness)

    def skip(self, error: RowError) -> None:
        """Count a rejected row; the first few are kept."""
        self.skipped += 1
        if len(self.samples) < SAMPLES:
            self.samples.append(error)


class RowErrors:
    """Carries a policy out. One owner: an operator, or a split reader."""

    def __init__(self, policy: OnError, tally: RowTally) -> None:
        self.policy = policy
        self._tally = tally
        self._aside: list[RowError] = []

    def reject(self, where: str, row: object, error: Exception) -> None:
        """``row`` raised ``error``. With policy FAIL it is raised, with ``where`` and the row as a note."""
        if self.policy is OnError.FAIL:
            error.add_note(f"at {where}: {_shorten(row)}; on_error='skip' leaves such rows out, 'side' sets them aside")
            raise error
        rejected = RowError(where, _shorten(row), f"{type(error).__name__}: {_error_text(error)}")
        self._tally.skip(rejected)
        if self.policy is OnError.SIDE:
            self._aside.append(rejected)

    def take(self) -> pa.RecordBatch | None:
        """The rows set aside since the last call, for side output ``errors``; None: there are none."""
        if not self._aside:
            return None
        import pyarrow as pa

        rows, self._aside = self._aside, []
        columns = [[r.where for r in rows], [r.row for r in rows], [r.error for r in rows]]
        return pa.record_batch([pa.array(c, pa.string()) for c in columns], schema=errors_schema())


def errors_schema() -> pa.Schema:
    """The columns of side output ``errors``: where a row stood, its text (cut at 500 characters), what was wrong."""
    import pyarrow as pa

    return pa.schema({"where": pa.string(), "row": pa.string(), "error": pa.string()})


def _error_text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # a user's own class; what it says of itself must not end the job
        return "(it cannot be shown)"


def _shorten(row: object) -> str:
    text = row if isinstance(row, str) else repr(row)
    return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."
