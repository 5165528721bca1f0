"""The metrics of an operator: one dataclass, from the tally that an operator counts in to the summary of a run.

Each field is a metric, with a rule for its sum, which ``+`` applies. So the sums over subtasks and over micro-batches
are the same everywhere, and Spark sends the dataclass between processes under the names of its fields. The rule also
says how summaries name the metric. Another metric takes a field here, and an operator that counts it:
``context.tally.rows_without_key += 1``.

>>> both = OperatorMetrics("f", rows_in=2, skipped=1) + OperatorMetrics("f", rows_in=3, partly_late=4)
>>> both.rows_in, both.skipped, both.partly_late
(5, 1, 4)
>>> RULES["partly_late"].line
'partly late'
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from dataflow.contracts.lateness import Lateness

__all__ = ["RULES", "SAMPLES", "OperatorMetrics", "RowError", "MetricRule"]

SAMPLES: Final = 5
"""Number of errors that the metrics of an operator keep as samples."""


@dataclass(frozen=True, slots=True)
class RowError:
    """A rejected row: its place ``where`` (file and line, or the operator), its text, and the error."""

    where: str
    row: str
    error: str


def _under_its_name(name: str, value: Any) -> Mapping[str, Any]:
    return {name: value}


@dataclass(frozen=True, slots=True)
class MetricRule:
    """How a metric is added up, and how summaries show it.

    Attributes:
        add: returns the sum of two values, and changes neither.
        line: the name of the metric in printed summaries, which have a line for it if its sum over all operators is not
            0, and in JSON summaries a total; "": neither.
        unit: what that line counts.
        to_json: returns the entries of the metric among those of its operator in JSON summaries, given the name of the
            field and the value.
    """

    add: Callable[[Any, Any], Any] = operator.add
    line: str = ""
    unit: str = "rows"
    to_json: Callable[[str, Any], Mapping[str, Any]] = _under_its_name


def _with(default: Any, **rule: Any) -> Any:
    """Return a field of `OperatorMetrics` that has a `MetricRule` of its own."""
    return field(default=default, metadata={"rule": MetricRule(**rule)})


def _left_out(name: str, value: Any) -> Mapping[str, Any]:
    return {}


@dataclass(slots=True)
class OperatorMetrics:
    """The metrics of one operator in one subtask, or in all.

    All count since the run began; after a restore they begin at zero. Numbers without another rule are summed.

    Attributes:
        operator: its name; "" while the operator counts.
        rows_in: rows received; for a source, rows read, pruned ones included.
        rows_out: rows emitted (main output).
        late: rows that arrived too late for it.
        partly_late: rows that were too late for some of their windows, and count in the others; not in ``late``.
        split_sessions: sessions that came out before a row that belongs to them, so that the row is in another one.
        late_right: late rows of a join's right input, which are also in ``late``.
        lateness: the distribution of lateness: ``lateness.share``, ``lateness.quantile(0.9)`` and ``lateness.most``.
        skipped: rows that it rejected; ``samples`` has some of them.
        busy: microseconds spent working; for a source, including reading.
        samples: the first few of the skipped rows, with their errors.
        rows_pruned: for a source, rows of row groups that it did not decode, because no row in them passes a filter.
    """

    operator: str = _with("", add=lambda name, _: name)
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    partly_late: int = _with(0, line="partly late")
    split_sessions: int = _with(0, line="split sessions", unit="sessions")
    late_right: int = 0
    lateness: Lateness = field(
        default_factory=Lateness,
        metadata={"rule": MetricRule(to_json=lambda _, late: {"late_share": late.share, "late_by_us": late.to_json()})},
    )
    skipped: int = 0
    busy: int = _with(0, to_json=lambda _, time: {"busy_us": time})
    samples: tuple[RowError, ...] = _with((), add=lambda a, b: (*a, *b)[:SAMPLES], to_json=_left_out)
    rows_pruned: int = _with(0, to_json=_left_out)

    def __add__(self, other: OperatorMetrics) -> OperatorMetrics:
        """Return the sums, under the name of this operator. The result shares nothing that changes with the two."""
        return OperatorMetrics(
            **{name: rule.add(getattr(self, name), getattr(other, name)) for name, rule in RULES.items()}
        )

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the operator in the JSON summary of a run; times in microseconds."""
        entries: dict[str, Any] = {}
        for name, rule in RULES.items():
            entries.update(rule.to_json(name, getattr(self, name)))
        return entries


RULES: Final[Mapping[str, MetricRule]] = {
    metric.name: metric.metadata.get("rule", MetricRule()) for metric in fields(OperatorMetrics)
}
"""The rule of each field of `OperatorMetrics`, in the order of summaries."""
