"""The rule by which a local aggregate folds the rows of a batch before a shuffle, or lets them pass unchanged.

The aggregate downstream takes records and rows, in any mixture. So the rule concerns speed only.
"""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["PAYS", "SMALL", "FoldAll", "FoldNone", "FoldWherePays", "Folding"]

SMALL: Final = 4_096
"""Rows of a batch below which folding costs more than it saves."""
PAYS: Final = 24
"""Rows that a record must hold on average for folding to pay: a record costs as much as that many rows, because it is
written, sent and merged. Measured in batches of 524,288 rows: 14 ns a row instead of 19 with 52 rows a record, 25
instead of 20 with 17."""
_MOST_NEW: Final = 0.75
"""If more of the rows have new keys, the keys are too many for records that are kept back."""


class Folding(Protocol):
    """Decides which rows are folded. Any decision is allowed, because results do not depend on it.

    In both methods ``keeps`` says whether records are kept back (`dataflow.contracts.kept_rows`), so that they take the
    rows of later batches, too.
    """

    def tries(self, rows: int, *, keeps: bool) -> bool:
        """Return whether to fold a batch of ``rows``, if nothing is known against it."""
        ...

    def pays(self, rows: int, records: int, *, keeps: bool) -> bool:
        """Return whether to go on, because ``rows`` gave few ``records``; otherwise the next rows pass unchanged."""
        ...


class FoldWherePays:
    """Folds where this saves more than it costs, by measurements.

    >>> FoldWherePays().tries(100, keeps=False), FoldWherePays().tries(5_000, keeps=False)
    (False, True)
    >>> FoldWherePays().pays(5_000, 1_000, keeps=False), FoldWherePays().pays(5_000, 200, keeps=False)
    (False, True)
    """

    def tries(self, rows: int, *, keeps: bool) -> bool:
        return keeps or rows >= SMALL

    def pays(self, rows: int, records: int, *, keeps: bool) -> bool:
        return records <= _MOST_NEW * rows if keeps else records * PAYS <= rows


class FoldAll:
    """Folds every batch."""

    def tries(self, rows: int, *, keeps: bool) -> bool:
        return True

    def pays(self, rows: int, records: int, *, keeps: bool) -> bool:
        return True


class FoldNone:
    """Folds no batch."""

    def tries(self, rows: int, *, keeps: bool) -> bool:
        return False

    def pays(self, rows: int, records: int, *, keeps: bool) -> bool:
        return False
