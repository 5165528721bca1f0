"""Rows that a restore would deliver twice, by operator, and words for counts that are not exact.

Each operator counts for itself, so counts of different operators are never added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dataflow.events.plan_shape import PlanShape
from dataflow.events.repeat_precision import Precision
from dataflow.views.sentence import counted

__all__ = ["Repeat", "repeats_in_order"]


class Repeat(NamedTuple):
    """How many rows a restore would deliver twice at ``operator``, and how precise that count is.

    >>> exact, low = Repeat("join", 180), Repeat("per-id", 460, Precision.MAY_BE_TOO_LOW)
    >>> exact.amount, low.amount, low.amount_of_rows
    ('180', 'perhaps more than 460', 'perhaps more than 460 rows')
    >>> Repeat("out", 0, Precision.MAY_BE_TOO_LOW).amount_of_rows
    'perhaps some rows'
    """

    operator: str
    rows: int
    precision: Precision = Precision.EXACT

    @property
    def amount(self) -> str:
        """The count in words."""
        return f"{self._bound}{self.rows:,}" if self.rows else "perhaps some"

    @property
    def amount_of_rows(self) -> str:
        """The count in words, with its noun."""
        return f"{self._bound}{counted(self.rows, 'row')}" if self.rows else "perhaps some rows"

    @property
    def _bound(self) -> str:
        match self.precision:
            case Precision.EXACT:
                return ""
            case Precision.UPPER_BOUND:
                return "at most "
            case Precision.MAY_BE_TOO_LOW:  # seldom it is too high, so "at least" would be wrong
                return "perhaps more than "


def repeats_in_order(plan: PlanShape, counts: Mapping[str, int]) -> tuple[Repeat, ...]:
    """Return the operators where rows come twice, upstream first; none if ``counts`` has no rows.

    Where a count may be too low, 0 rows may be some: such an operator is listed if rows come twice at another one.
    """
    if not any(counts.values()):
        return ()
    names = dict.fromkeys([*plan.operator_names, *counts])
    repeats = [Repeat(name, counts.get(name, 0), plan.repeat_precisions.get(name, Precision.EXACT)) for name in names]
    return tuple([each for each in repeats if each.rows or each.precision is Precision.MAY_BE_TOO_LOW])
