"""Numbers the rows of a source, so that later operators can put them into the order of the source.

A number has the source in its highest bits, then the split, then the place of the row in the split.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.operator import Operator, OperatorContext, Out

__all__ = ["PLACE_BITS", "SPLIT_BITS", "NumberRowsOperator"]

PLACE_BITS: Final = 35
SPLIT_BITS: Final = 20
_SOURCE_BITS: Final = 63 - PLACE_BITS - SPLIT_BITS


class NumberRowsOperator(Operator):
    """Adds the numbers as the last column. ``source`` is the number of the source.

    Raises: OverflowError for more sources, splits or rows than there are numbers.
    """

    stateless = True

    def __init__(self, context: OperatorContext, source: int) -> None:
        assert context.splits is not None, f"{context.name} must run in the tasks of a source"
        self._where = context.name
        self._schema = context.output_schema
        self._splits = context.splits
        # a source deals its splits out round-robin, see Verification
        own = {split: context.subtask + i * context.parallelism for i, split in enumerate(context.splits.all())}
        _check(source, _SOURCE_BITS, self._where, "sources")
        _check(max(own.values(), default=0), SPLIT_BITS, self._where, "splits of one source")
        self._first = {split: (source << SPLIT_BITS | number) << PLACE_BITS for split, number in own.items()}
        self._places = dict.fromkeys(own, 0)

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        split = self._splits.current
        place = self._places[split]
        self._places[split] = place + batch.num_rows
        _check(self._places[split], PLACE_BITS, self._where, "rows of one split")
        first = self._first[split] + place
        numbers = to_array(np.arange(first, first + batch.num_rows))
        arrays = [*batch.columns, numbers]
        fields = [*batch.schema, self._schema.field(len(self._schema) - 1)]
        out.emit(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)))


def _check(number: int, bits: int, where: str, what: str) -> None:
    if number >> bits:
        raise OverflowError(f"{where}: a batch numbers up to {1 << bits:,} {what}, and there are more")
