"""Split a batch by key: every row goes to the subtask that owns its key group.

One counting pass and one scatter order the rows by target. One gather per column makes a batch in that order, and the
parts are slices of it. There are no masks, so the cost does not grow with the number of targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.state.arrays import fills_word, fresh, fresh_words, words
from dataflow.state.hashing import Hashes, hash_rows, subtask_of

Targets = npt.NDArray[np.int32]

__all__ = ["gather_rows", "hash_partition", "order_by_target", "owners_of", "partition_rows"]


def partition_rows(
    hashes: Hashes, parallelism: int, max_key_groups: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the row numbers ordered by target, and the ``parallelism + 1`` offsets of the targets among them.

    Rows of one target keep their order. Raises ``ValueError`` if there are fewer key groups than subtasks.

    >>> order, offsets = partition_rows(np.array([0, 2**64 - 1, 0], np.uint64), 2, 128)
    >>> order.tolist(), offsets.tolist()
    ([0, 2, 1], [0, 2, 3])
    """
    from dataflow.state.kernels.partition import count_targets

    targets = fresh(np.int32, len(hashes))
    counts = np.zeros(parallelism, np.int64)
    count_targets(hashes, owners_of(parallelism, max_key_groups), targets, counts)
    return _scattered(targets, counts)


def order_by_target(targets: Targets, count: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the row numbers ordered by target (0 .. ``count`` - 1), and the ``count + 1`` offsets of the targets.

    >>> order, offsets = order_by_target(np.array([1, 0, 1], np.int32), 2)
    >>> order.tolist(), offsets.tolist()
    ([1, 0, 2], [0, 1, 3])
    """
    return _scattered(targets, np.bincount(targets, minlength=count))


def _scattered(targets: Targets, counts: npt.NDArray[np.int64]) -> tuple[Targets, npt.NDArray[np.int64]]:
    from dataflow.state.kernels.partition import scatter_rows

    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    order = fresh(np.int32, len(targets))
    scatter_rows(targets, offsets[:-1].copy(), order)
    return order, offsets


def hash_partition(
    batch: pa.RecordBatch, keys: Sequence[str], parallelism: int, max_key_groups: int
) -> list[pa.RecordBatch | None]:
    """Return the part of ``batch`` for each of ``parallelism`` subtasks, None for an empty part.

    Rows of one subtask keep their order. The parts are slices that share memory with each other. If a single subtask
    gets every row, its part is ``batch`` itself. Without keys, the first one does.

    >>> batch = pa.record_batch({"k": [1, 2, 3, 1], "v": ["a", "b", "c", "d"]})
    >>> parts = hash_partition(batch, ["k"], parallelism=2, max_key_groups=128)
    >>> sum(part.num_rows for part in parts if part is not None)
    4
    """
    if not batch.num_rows:
        return [None] * parallelism
    if parallelism == 1 or not keys:
        return [batch, *[None] * (parallelism - 1)]
    order, offsets = partition_rows(hash_rows([batch.column(key) for key in keys]), parallelism, max_key_groups)
    counts = np.diff(offsets)
    alone = int(counts.argmax())
    if counts[alone] == batch.num_rows:
        return [batch if target == alone else None for target in range(parallelism)]
    gathered = gather_rows(batch, order)
    return [
        gathered.slice(int(offsets[target]), int(counts[target])) if counts[target] else None
        for target in range(parallelism)
    ]


def gather_rows(batch: pa.RecordBatch, order: npt.NDArray[np.int32]) -> pa.RecordBatch:
    """Return the rows of ``batch`` in ``order``, copied to new memory."""
    return pa.RecordBatch.from_arrays([_gather(column, order) for column in batch.columns], schema=batch.schema)


def _gather(column: pa.Array, order: npt.NDArray[np.int32]) -> pa.Array:
    if pa.types.is_fixed_size_binary(column.type) and column.type.byte_width % 8 == 0 and not column.null_count:
        return _gather_wide(column, order)
    if column.null_count or not fills_word(column.type):
        return column.take(to_array(order))
    from dataflow.state.kernels.partition import gather_words

    out = fresh_words(len(order))
    gather_words(words(column), order, out)
    return pa.Array.from_buffers(column.type, len(out), [None, pa.py_buffer(out)])


def _gather_wide(column: pa.Array, order: npt.NDArray[np.int32]) -> pa.Array:
    """Gather values of several words each."""
    from dataflow.state.kernels.partition import gather_wide

    width = column.type.byte_width // 8
    values = np.frombuffer(column.buffers()[1] or b"", np.int64, len(column) * width, column.offset * width * 8)
    out = fresh_words(len(order) * width)
    gather_wide(values.reshape(len(column), width), order, out.reshape(len(order), width))
    return pa.Array.from_buffers(column.type, len(order), [None, pa.py_buffer(out)])


@lru_cache(maxsize=64)
def owners_of(parallelism: int, max_key_groups: int) -> npt.NDArray[np.int32]:
    """Return the subtask of each key group. Raises ``ValueError`` if there are fewer key groups than subtasks."""
    if parallelism > max_key_groups:
        raise ValueError(f"{parallelism} subtasks need at least as many key groups, got {max_key_groups}")
    return np.array([subtask_of(group, parallelism, max_key_groups) for group in range(max_key_groups)], np.int32)
