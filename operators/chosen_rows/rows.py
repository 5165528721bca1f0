"""Key columns of chosen rows in the types that keyed state takes, and checks of a restored state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.clock import Clock
from dataflow.contracts.operator import OperatorContext, Snapshot
from dataflow.contracts.spec import Spec
from dataflow.contracts.windows import EventTime
from dataflow.errors import OTHER_PIPELINE, CheckpointMismatch
from dataflow.state.dictionaries import decoded
from operators.aggregation.partials import ALL
from operators.aggregation.window_times import Numbers, row_times, time_column

__all__ = ["KeyColumns", "RowTimes", "check_described"]

LEAST = -(2**63)


class KeyColumns:
    """The key columns of rows: dictionaries are decoded, views are large text, and over all rows there is one key.

    >>> keys = KeyColumns(pa.schema({"k": pa.string(), "x": pa.int64()}), ["k"])
    >>> keys.schema.names, keys.of(pa.record_batch({"k": ["a"], "x": [1]}))[0].to_pylist()
    (['k'], ['a'])
    """

    def __init__(self, schema: pa.Schema, names: Sequence[str]) -> None:
        from dataflow.expressions.coercion import value_type

        self.names = list(names)
        fields = [pa.field(name, value_type(schema.field(name).type)) for name in names]
        self.schema = pa.schema(fields or [pa.field(ALL, pa.int8())])

    def of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the key columns of a batch."""
        if not self.names:
            return [to_array(np.zeros(batch.num_rows, np.int8))]
        columns = [decoded(batch.column(name)) for name in self.names]
        return [
            column if column.type == type_ else column.cast(type_)
            for column, type_ in zip(columns, self.schema.types, strict=True)
        ]


class RowTimes:
    """The times by which keys expire: event time and watermark, or the clock.

    Attributes:
        now: the watermark, or without event time the latest time of the clock.
    """

    def __init__(self, time: EventTime | None, clock: Clock, where: str) -> None:
        self._time = time
        self._clock = clock
        self._where = where
        self.now = LEAST

    def of(self, batch: pa.RecordBatch) -> Numbers:
        """Return the time at which each row writes its key; one for all rows if it is the clock's.

        Raises: ValueError for a null event time.
        """
        if self._time is None:
            self.now = max(self.now, int(self._clock.wall() * 1_000_000))
            return np.full(1, self.now, np.int64)
        return row_times(time_column(batch, self._time.column, self._where), self._time.back)

    def advance(self, watermark: int) -> bool:
        """Take note of a watermark; return whether keys expire by it."""
        if self._time is not None:
            self.now = watermark
        return self._time is not None


def check_described(context: OperatorContext, spec: Spec, restored: Snapshot) -> None:
    """Raise CheckpointMismatch if the checkpoint holds the state of other settings."""
    found, own = restored.values.get("settings"), spec.detail()
    if found != own:
        raise CheckpointMismatch(
            f"{context.name}: the checkpoint holds the state of {spec.kind} {found}, the pipeline has {own}; "
            f"{OTHER_PIPELINE}"
        )
