"""A process function in a batch: its rows are sorted, and it is called when all rows, broadcast ones too, have come."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from dataflow.contracts.execution import RowOrder
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.planning.process_specs import ProcessBatchesInOrder, ProcessKeysInOrder
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.arrays import Numbers
from operators.batch.sorted import place_numbers, time_numbers
from operators.batch.sorted_rows import SortedRows
from operators.process.base import BROADCAST, ProcessOperator

__all__ = ["ProcessInOrder"]


class ProcessInOrder(ProcessOperator):
    """What both kinds of process functions have in a batch. Timers of the clock never fire."""

    def __init__(self, context: OperatorContext, spec: ProcessKeysInOrder | ProcessBatchesInOrder) -> None:
        super().__init__(context, spec)
        self._order: RowOrder = spec.order
        schema = context.input_schemas[0]
        keys = len(self._first_keys(pa.RecordBatch.from_pylist([], schema=schema))) + len(spec.order.columns)
        self._rows = SortedRows(schema, keys, context.spill.directory, context.spill.memory)
        self._columns = [name for name in schema.names if name != spec.order.place]

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if port == BROADCAST:
            return super().process(port, batch, out)
        if batch.num_rows:
            order = self._order
            self._note(batch)
            times, places = time_numbers(batch, order, self.where), place_numbers(batch, order)
            self._rows.add(batch, [*self._first_keys(batch), *times, *places])
        return None

    def advance(self, watermark: int, out: Out) -> Iterator[None]:
        if watermark == MAX_WATERMARK:
            yield from self._run(out)

    def held(self, watermark: int) -> int:
        return -MAX_WATERMARK

    def timer(self, due: int, out: Out) -> Iterator[None]:
        raise AssertionError(f"{self.where}: a batch asks for no timer of the clock")

    def finish(self, out: Out) -> Iterator[None]:
        yield from self._send(out)

    def close(self) -> None:
        self._rows.close()
        super().close()

    def _request_clock(self) -> None:
        """Do nothing: timers of the clock never fire."""

    def _note(self, batch: pa.RecordBatch) -> None:
        """Take note of rows that come, in any order. By default, nothing is done."""

    @abstractmethod
    def _first_keys(self, batch: pa.RecordBatch) -> list[Numbers]:
        """Return what rows are sorted by before their time."""

    @abstractmethod
    def _run(self, out: Out) -> Iterator[None]:
        """Call the function with all rows and timers."""
