"""The columns of chosen rows in the types that state takes, their times, and the check of a restored state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.clock import OperatorClock
from dataflow.contracts.declared_state import Fixed, Passed, Piece
from dataflow.contracts.windows import EventTime
from dataflow.state.arrays import LEAST, Numbers
from operators.stateful.columns import ALL, typed
from operators.stateful.time_units import TimeUnit

__all__ = ["KeyColumns", "RowColumns", "RowTimes"]


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
        return [typed(batch.column(field.name), field.type) for field in self.schema]


class RowColumns:
    """The columns of rows that are kept beside the key columns, at least one, and how rows become output.

    Args:
        inputs: the columns of the input.
        output: the columns of the output.
        keys: the names of the key columns.
        made: the columns of the output that are not of the input.
        read: more columns that are kept, because the operator reads them.
    """

    def __init__(
        self, inputs: pa.Schema, output: pa.Schema, keys: Sequence[str], made: Collection[str], read: Sequence[str] = ()
    ) -> None:
        from dataflow.expressions.coercion import value_type

        names = [name for name in output.names if name not in made]
        others = [name for name in dict.fromkeys([*names, *read]) if name not in keys] or names[:1]
        self.schema = pa.schema([pa.field(name, value_type(inputs.field(name).type)) for name in others])
        self._output = output
        self._keys = list(keys)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns ``schema`` of a batch."""
        columns = [typed(batch.column(field.name), field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def output(self, keys: Sequence[pa.Array], rows: pa.RecordBatch, **made: pa.Array) -> pa.RecordBatch:
        """Return rows of the output, from their key columns, the columns ``schema``, and those that are made."""
        own = dict(zip(rows.schema.names, rows.columns, strict=True))
        own |= dict(zip(self._keys, keys, strict=False)) | made
        return pa.RecordBatch.from_arrays([own[name] for name in self._output.names], schema=self._output)


class RowTimes:
    """The times by which keys expire: event time and watermark, or the clock.

    Attributes:
        unit: the unit of these times.
    """

    def __init__(self, time: EventTime | None, clock: OperatorClock, where: str, unit: TimeUnit) -> None:
        self.unit = unit
        self._time = time
        self._clock = clock
        self._where = where
        self._passed = Passed()
        self._came = LEAST  # without event time: time by the clock when the last batch came

    @property
    def now(self) -> int:
        """The watermark, or without event time time by the clock when the last batch came; in ``unit``."""
        if self._time is None:
            return self._came
        return LEAST if self._passed.watermark is None else self.unit.first(self._passed.watermark)

    def of(self, batch: pa.RecordBatch) -> Numbers:
        """Return the time at which each row writes its key; one for all rows if it is the clock's.

        Raises: ValueError for a null event time; OverflowError for one that is out of range.
        """
        if self._time is None:
            self._came = self._clock.time()
            return np.full(1, self._came, np.int64)
        return self.unit.times_of(batch, self._time, self._where)

    def advance(self, watermark: int) -> bool:
        """Take note of a watermark; return whether keys expire by it."""
        if self._time is not None:
            self._passed.advance(watermark)
        return self._time is not None

    @property
    def state(self) -> Mapping[str, Piece]:
        """The pieces that a checkpoint stores: none if keys expire by the clock, which says the time of each batch."""
        return {} if self._time is None else {"time units": Fixed([self.unit.value]), "time": self._passed}
