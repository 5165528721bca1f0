"""Which restores count: the duplicates in a final result add up along the lineage of its checkpoints.

A checkpoint taken in an attempt that restored n holds what n's duplicates did; so the restores that matter are the one
of the last attempt, that of the attempt in which *its* checkpoint was taken, and so on to the fresh start. An attempt
that died without leaving a checkpoint is not among them, which is why restoring n twice counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataflow.runners.faults import Attempt
    from dataflow.runtime.restore.find_checkpoint import RestoreReport

__all__ = ["delivered_again", "lineage"]


def lineage(attempts: Sequence[Attempt]) -> list[RestoreReport]:
    """The restores that the last attempt builds on, newest first; attempts are in order of time.

    Assumes: ids of checkpoints are never used twice, so checkpoint n was taken in the last attempt that was born with
    all ids below n.
    """
    found: list[RestoreReport] = []
    attempt = attempts[-1]
    while attempt.restored is not None:
        found.append(attempt.restored)
        taken = attempt.restored.checkpoint
        attempt = next(a for a in reversed(attempts) if a.highest < taken)
    return found


def delivered_again(attempts: Sequence[Attempt], operator: str) -> Counter[tuple[Any, ...]]:
    """The rows that ``operator`` got more often than in an undisturbed run, once for each time too many.

    The checkpoints must have been taken with ``duplicates="rows"``.
    """
    rows: Counter[tuple[Any, ...]] = Counter()
    for report in lineage(attempts):
        table = report.rows(operator)
        if table is not None:
            assert table.num_rows == report.duplicated(operator), f"only a sample of the rows of {operator!r} is kept"
            rows.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return rows
