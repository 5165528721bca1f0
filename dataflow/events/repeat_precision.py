"""How precise the count of rows is that a restore delivers twice at an operator."""

from __future__ import annotations

from enum import Enum

__all__ = ["Precision"]


class Precision(Enum):
    """The precision of an operator's number of duplicates, best first; see ``RestoreReport.precision``.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> with flow.Pipeline("x") as p:
    ...     rows = p.source(op.from_arrow(pa.table({"k": [1, 1]})), name="in").key_by("k")
    ...     rows.agg(op.count().alias("n"), name="counts").sink(op.collect(), name="out")
    >>> settings = flow.Checkpointing(flow.MemoryStore(), every="1h", mode="unaligned")
    >>> result = p.run(checkpoint=settings)
    >>> {name: precision.value for name, precision in p.run(checkpoint=settings).restore_report.precision.items()}
    {'in': 'exact', 'counts': 'exact', 'out': 'upper bound'}
    """

    EXACT = "exact"
    UPPER_BOUND = "upper bound"
    MAY_BE_TOO_LOW = "may be too low"
