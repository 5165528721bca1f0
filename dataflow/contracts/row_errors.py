"""Policies for rows that a function or a parser cannot take: fail, skip, or set aside. All are counted and sampled.

The policy belongs to the operator, the ``RowTally`` to the engine: one per subtask and operator, shown in every
summary.

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

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Final

from dataflow.arrow_values import to_array
from dataflow.contracts.operator_metrics import SAMPLES, OperatorMetrics, RowError
from dataflow.contracts.tuning import Choice
from dataflow.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ERRORS", "LATE", "LATE_RIGHT", "OnError", "RowErrors", "RowTally", "errors_schema", "shorten"]

ERRORS: Final = "errors"
"""The side output of rows that were set aside; its schema is ``errors_schema()``."""
LATE: Final = "late"
"""The side output of rows that were too late for their window, with the columns of the window's input."""
LATE_RIGHT: Final = "late_right"
"""The side output of right rows that were too late for a join; those of the left side are in ``LATE``."""
_TEXT: Final = 500


class OnError(Enum):
    """The policy for a row that raises: fail the job, leave the row out, or emit it as side output ``errors``."""

    FAIL = "fail"
    SKIP = "skip"
    SIDE = "side"

    @staticmethod
    def of(value: str | OnError, where: str) -> OnError:
        """Return the policy that a user named. Raises: ConfigurationError that lists the valid ones."""
        if isinstance(value, OnError):
            return value
        names = [policy.value for policy in OnError]
        if value not in names:
            raise ConfigurationError(f"{where}(on_error=) must be one of {names}, got {value!r}")
        return OnError(value)


@dataclass(slots=True)
class RowTally(OperatorMetrics):
    """The metrics of one subtask of an operator, while it counts: the operator and the engine add to its fields.

    They are not part of checkpoints: all counts of a run begin at zero, also after a restore. A tally also carries the
    subtask's choices to ``RunResult.tuning``, and the row of a call that failed, as text.
    """

    failed_row: str = ""
    _reports: list[Callable[[], Choice | None]] = field(default_factory=list)

    def clear(self) -> None:
        """Begin to count at zero."""
        nothing = OperatorMetrics()
        for metric in fields(nothing):
            setattr(self, metric.name, getattr(nothing, metric.name))

    def report(self, choice: Callable[[], Choice | None]) -> None:
        """Add a choice to ``RunResult.tuning``: ``choice`` is called, on another thread, when a result is built.

        It returns None if there was nothing to choose.
        """
        self._reports.append(choice)

    def choices(self) -> list[Choice]:
        """Return the reported choices, as they are now."""
        return [choice for report in self._reports if (choice := report()) is not None]

    def skip(self, error: RowError) -> None:
        """Count a rejected row; the first few are kept as samples."""
        self.skipped += 1
        if len(self.samples) < SAMPLES:
            self.samples = (*self.samples, error)


class RowErrors:
    """Applies a policy. It has one owner: an operator, or a split reader."""

    def __init__(self, policy: OnError, tally: RowTally) -> None:
        self.policy = policy
        self._tally = tally
        self._aside: list[RowError] = []

    def reject(self, where: str, row: object, error: Exception) -> None:
        """Apply the policy to ``row``, which raised ``error``.

        Raises: ``error`` itself with policy FAIL, with ``where`` and the row as a note.
        """
        if self.policy is OnError.FAIL:
            self.failed(row)
            error.add_note(f"at {where}: {shorten(row)}; on_error='skip' leaves such rows out, 'side' sets them aside")
            raise error
        rejected = RowError(where, shorten(row), f"{type(error).__name__}: {_error_text(error)}")
        self._tally.skip(rejected)
        if self.policy is OnError.SIDE:
            self._aside.append(rejected)

    def failed(self, row: object) -> None:
        """Record the row of a call whose error fails the job."""
        self._tally.failed_row = shorten(row)

    def take(self) -> pa.RecordBatch | None:
        """Return the rows set aside since the last call, for side output ``errors``; None if there are none."""
        if not self._aside:
            return None
        import pyarrow as pa

        rows, self._aside = self._aside, []
        columns = [[r.where for r in rows], [r.row for r in rows], [r.error for r in rows]]
        return pa.record_batch([to_array(c, pa.string()) for c in columns], schema=errors_schema())


def errors_schema() -> pa.Schema:
    """Return the columns of side output ``errors``: place of the row, its text (at most 500 characters), error."""
    import pyarrow as pa

    return pa.schema({"where": pa.string(), "row": pa.string(), "error": pa.string()})


def _error_text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # a user's exception class, whose __str__ must not fail the job
        return "(it cannot be shown)"


def shorten(row: object) -> str:
    """Return ``row`` as text of at most 500 characters."""
    text = row if isinstance(row, str) else repr(row)
    return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."
