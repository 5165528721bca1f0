"""Whatever the rows at hand are, the error that is reported is the user's."""

from __future__ import annotations

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op

UNSHOWABLE = {
    "a time beyond year 9999": pa.array([2**60], pa.timestamp("us")),
    "a date beyond year 9999": pa.array([2**30], pa.date32()),
    "a zone nobody knows": pa.array([1], pa.timestamp("us", "Mars/Phobos")),
}


@pytest.mark.parametrize("column", UNSHOWABLE.values(), ids=UNSHOWABLE)
def test_an_error_over_rows_that_python_cannot_hold_ends_the_job(column: pa.Array) -> None:
    def boom(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("boom")

    p = flow.Pipeline()
    p.source(op.from_arrow(pa.table({"t": column})), name="in").map_batches(boom).sink(op.collect(), name="out")
    with pytest.raises(ValueError, match="boom") as caught:
        p.run(timeout="60s")
    assert "first:\n  {'t': '<" in caught.value.__notes__[-1]
