"""The bytes that may wait in the channels into a task, so that wide rows cannot fill the memory.

A channel counts the batches and the bytes that wait in it. It has credit while both are below their limits, and then
takes a batch of any size: nothing waits for ever, and its limit is exceeded by one batch at most. Batches are not cut
to fit. Slices share the memory of their batch, so cutting would save none, and the rest of a batch would need a place
ahead of the channel, where barriers that overtake would have to find it.

Bytes are those of the rows, not of the buffers behind them: a slice of a large batch is small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dataflow.contracts.tuning import Choice

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TASK_BYTES", "RowBytes", "room"]

TASK_BYTES: Final = 32 << 20
"""The bytes in all channels into a task from which on writers wait; each channel has an equal share."""


class RowBytes:
    """Counts the bytes of batches. It remembers the widths of the last schema, because most batches have the same.

    >>> import pyarrow as pa
    >>> batch = pa.record_batch({"x": pa.array(range(100), pa.int64()), "flag": [True] * 100})
    >>> RowBytes().of(batch.slice(0, 16))
    130
    >>> names = pa.array(["a long name"] * 99 + ["x"]).dictionary_encode()
    >>> RowBytes().of(pa.record_batch({"name": names}).slice(0, 1))  # an index, and its share of the dictionary
    14
    """

    __slots__ = ("_bits", "_dictionaries", "_schema", "_varying")

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._bits = 0
        self._varying: list[int] = []
        self._dictionaries: list[int] = []

    def of(self, batch: pa.RecordBatch) -> int:
        """Return the bytes of the rows of ``batch``; null maps are not counted if all types have a fixed width."""
        if self._schema is None or not batch.schema.equals(self._schema):
            self._learn(batch.schema)
        rows = batch.num_rows
        size = rows * self._bits // 8
        for column in self._varying:
            size += batch.column(column).nbytes
        for column in self._dictionaries:
            size += _share(batch.column(column).dictionary, rows)
        return size

    def _learn(self, schema: pa.Schema) -> None:
        import pyarrow as pa

        self._schema, self._bits, self._varying, self._dictionaries = schema, 0, [], []
        for place, type_ in enumerate(schema.types):
            if pa.types.is_dictionary(type_):
                self._bits += type_.index_type.bit_width
                self._dictionaries.append(place)
            elif pa.types.is_primitive(type_) or pa.types.is_fixed_size_binary(type_) or pa.types.is_decimal(type_):
                self._bits += type_.bit_width
            else:
                self._varying.append(place)


def _share(dictionary: pa.Array, rows: int) -> int:
    """Return the bytes of the entries that ``rows`` rows use at most: batches may share one large dictionary."""
    entries = len(dictionary)
    return int(dictionary.nbytes * min(rows, entries) // entries) if entries else 0


def room(task_bytes: int, batches: int, larger: int) -> Choice:
    """Return the report on a channel of a task that takes ``task_bytes``; ``larger``: batches above its credit."""
    reason = "of {batches:,} batches, {larger:,} were larger than the equal share of a channel"
    chosen = f"{task_bytes / (1 << 20):,.3g} MiB a task"
    return Choice("room", chosen, reason, {"batches": batches, "larger": larger}, {"bytes": task_bytes})
