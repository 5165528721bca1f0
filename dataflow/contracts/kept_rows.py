"""Operators that keep rows back for a while, and the rule by which they do.

A local aggregate in front of a shuffle sends fewer rows the longer it keeps them. Nothing may depend on how long that
is, so the engine asks for the rows before everything that they must not miss.
"""

from __future__ import annotations

from typing import Final, Protocol

from dataflow.contracts.folding import Folding, FoldWherePays
from dataflow.contracts.operator import Operator, Out

__all__ = ["MOST_RECORDS", "Keep", "KeepMany", "KeepNone", "RowKeeper"]

MOST_RECORDS: Final = 1 << 18
"""The records from which on none are kept back for another batch: with the index of their keys, they should fit into
the processor's cache."""


class Keep(Protocol):
    """Decides how long rows are kept back. The answer may be any, because results must not depend on it.

    ``keeps`` is False if no row is ever kept back, so that an operator need not prepare for it.
    """

    keeps: bool

    def goes_on(self, records: int) -> bool:
        """Return whether rows are kept back for another batch.

        Args:
            records: how many records are kept back, each of one or more rows.

        Returns: False if all of them leave now.
        """
        ...


class KeepNone:
    """Lets rows leave with the batch that they came in."""

    keeps = False

    def goes_on(self, records: int) -> bool:
        return False


class KeepMany:
    """Keeps rows back as long as their records are few.

    >>> KeepMany().goes_on(100_000), KeepMany().goes_on(1_000_000)
    (True, False)
    """

    keeps = True

    def goes_on(self, records: int) -> bool:
        return records < MOST_RECORDS


class RowKeeper(Operator):
    """An operator that may keep rows back, and emits them as one batch later.

    The engine calls ``emit_kept`` before each barrier, watermark, idleness and end of input, and before rows of another
    colour. So a snapshot has no rows that are kept back, no row becomes late by waiting, and an overtaking barrier need
    not wait: it overtakes the emitted rows, which become channel state. They need no credit, because they are one
    batch. The operator is the last one of its task, because the next one would have to process the rows between a
    barrier and the copy of the state.
    """

    keep: Keep = KeepNone()
    folding: Folding = FoldWherePays()
    """The rules of the runner. Set before the first batch."""

    def emit_kept(self, out: Out) -> None:
        """Emit all rows that are kept back, if any.

        Args:
            out: takes at most one batch, which needs no credit.

        Raises: NotImplementedError if the operator does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps rows back; define emit_kept(out)")
