"""The restores that contribute duplicates to a final result: those along the lineage of its checkpoints.

A checkpoint taken in an attempt that restored checkpoint n contains the effect of n's duplicates. So the restores that
count are the one of the last attempt, the one of the attempt in which *its* checkpoint was taken, and so on back to the
fresh start. An attempt that left no checkpoint does not count, so restoring n twice counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataflow.runners.attempts import Attempt
    from dataflow.runtime.restore.find_checkpoint import RestoreReport

__all__ = ["delivered_again", "lineage"]


def lineage(attempts: Sequence[Attempt]) -> list[RestoreReport]:
    """Return the reports of the restores that the last attempt builds on, newest first.

    Args:
        attempts: the attempts of a job in order of time, as a simulation with faults records them.

    This code assumes: checkpoint ids are never reused, so checkpoint n was taken in the last attempt that began with
    only ids below n.

    >>> from dataflow.runners.attempts import Attempt
    >>> lineage([Attempt()])
    []
    """
    restores: list[RestoreReport] = []
    attempt = attempts[-1]
    while attempt.restored is not None:
        restores.append(attempt.restored)
        taken = attempt.restored.checkpoint
        attempt = next(a for a in reversed(attempts) if a.highest < taken)
    return restores


def delivered_again(attempts: Sequence[Attempt], operator: str) -> Counter[tuple[Any, ...]]:
    """Return the rows that ``operator`` received more often than in a run without faults, with the excess counts.

    Args:
        attempts: as in ``lineage``. Their checkpoints must have been taken with ``duplicates="rows"``.
        operator: the name of the operator.

    Returns: for each such row, as a tuple, how many times more it arrived.

    >>> from dataflow.runners.attempts import Attempt
    >>> delivered_again([Attempt()], "out")
    Counter()
    """
    rows: Counter[tuple[Any, ...]] = Counter()
    for report in lineage(attempts):
        table = report.rows(operator)
        if table is not None:
            assert table.num_rows == report.duplicated(operator), f"only a sample of the rows of {operator!r} is kept"
            rows.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return rows
