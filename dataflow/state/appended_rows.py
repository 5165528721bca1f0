"""Rows that are appended and never removed: a log whose deltas are the rows after those of an earlier checkpoint.

>>> log = AppendedRows(pa.schema({"k": pa.int64(), "tags": pa.list_(pa.string())}))
>>> log.append(pa.record_batch({"k": [7, 8], "tags": [["a"], []]}))
>>> base = log.freeze(1, None)["rows"].read_all()
>>> log.append(pa.record_batch({"k": [9], "tags": pa.array([["b"]])}))
>>> delta = log.freeze(2, 1)["rows"].read_all()
>>> delta.to_pylist()
[{'k': 9, 'tags': ['b'], '/live': True}]
>>> restored = AppendedRows(log.schema)
>>> restored.restore([{"rows": base}, {"rows": delta}])
>>> restored.count, restored.read(np.array([2, 0]), slice(0, 1))[0].to_pylist()
(3, [9, 7])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.state.appended_columns import Frozen, appended_column
from dataflow.state.copy_on_write import CHUNK
from dataflow.state.parts import LIVE_FIELD, marked, rows_since_base, small_batches

__all__ = ["AppendedRows"]

_MOST = 2**31 - 1


class AppendedRows:
    """Rows with numbers from 0, in order of arrival. It is state for `Snapshot.logs`. Only its task calls it.

    Args:
        schema: the columns; the first ``keys`` of them decide the key group.
        keys: how many.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.count = 0
        """The number of rows."""
        self._columns = [appended_column(type_) for type_ in schema.types]
        self._stored = pa.schema([*schema, LIVE_FIELD])
        self._counts: dict[int, int] = {}  # the rows that each checkpoint has since the last durable one
        self._restored = 0  # rows of the restored checkpoint

    @property
    def entries(self) -> int:
        """The number of rows."""
        return self.count

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows with the columns of ``schema``.

        Raises: OverflowError if there were more than 2**31 rows.
        """
        if self.count + batch.num_rows > _MOST:
            raise OverflowError(f"one subtask keeps at most {_MOST:,} rows of a side of a join; use more subtasks")
        for column, array in zip(self._columns, batch.columns, strict=True):
            column.append(array)
        self.count += batch.num_rows

    def read(self, numbers: npt.NDArray[np.integer[Any]], columns: slice) -> list[pa.Array]:
        """Return some of the columns of rows by their numbers."""
        return [column.take(numbers) for column in self._columns[columns]]

    def freeze(self, checkpoint: int, since: int | None) -> Mapping[str, pa.RecordBatchReader]:
        """Return a reader of all rows, or of those that came after checkpoint ``since``."""
        self._counts[checkpoint] = self.count
        first = 0 if since is None else self._counts.get(since, self._restored)
        schema = marked(self._stored, base=since is None)
        columns = [column.freeze() for column in self._columns]
        return {"rows": pa.RecordBatchReader.from_batches(schema, _batches(schema, columns, first, self.count))}

    def durable(self, checkpoint: int) -> None:
        """Note that ``checkpoint`` exists: deltas since older ones are not asked for any more."""
        self._counts = {known: count for known, count in self._counts.items() if known >= checkpoint}

    @property
    def stored(self) -> Mapping[str, pa.Schema]:
        """The columns of a checkpoint."""
        return {"rows": self._stored}

    def restore(self, parts: Sequence[Mapping[str, pa.Table]]) -> None:
        """Restore the rows of checkpoints. There must be none yet.

        Args:
            parts: the tables of a base and of the deltas after it.

        Raises: CheckpointMismatch for other columns; CheckpointDamaged if a table or the base is missing.
        """
        assert not self.count, f"restore is for no rows; there are {self.count}"
        for table in rows_since_base(parts, self._stored):
            for batch in table.to_batches():
                self.append(batch.select(range(len(self.schema))))
        self._restored = self.count


def _batches(schema: pa.Schema, columns: Sequence[Frozen], first: int, stop: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows ``first`` to ``stop`` - 1, in batches that take little memory."""
    for start in range(first, stop, CHUNK):
        count = min(CHUNK, stop - start)
        live = to_array(np.ones(count, np.bool_))
        batch = pa.RecordBatch.from_arrays([*[rows(start, start + count) for rows in columns], live], schema=schema)
        yield from small_batches(batch)
