"""Rows that a user's code has emitted belong to the engine: their memory must not be written again.

``pa.array(numpy_array)`` shares the memory of the array. A buffer that is filled again for each batch changes rows that
were emitted, anywhere downstream and at any time. The simulated runner looks for that: it compares the last batches of
each operator and each source of a user with copies, and names the one whose rows changed.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import pyarrow as pa

from dataflow.errors import ContractViolation

__all__ = ["UNWATCHED", "EmittedRows", "Unwatched", "Watches", "unwatched"]

_KEPT: Final = 8
"""Batches that are watched: more than anyone keeps buffers in turn."""


class Unwatched:
    """Takes note of what user's code has emitted; this class does nothing, for runners that do not look for changes.

    >>> UNWATCHED.add(pa.record_batch({"x": [1]}))
    """

    def add(self, batch: pa.RecordBatch) -> None:
        """Take note of a batch that was emitted, or that waits until it is."""

    def check(self) -> None:
        """Raise ContractViolation if a batch has changed since it was added."""


UNWATCHED: Final = Unwatched()


def unwatched(where: str) -> Unwatched:
    """Return what takes note of the rows of ``where`` on runners that do not look for changes."""
    return UNWATCHED


class EmittedRows(Unwatched):
    """Watches the last batches of one operator or source, ``where``.

    >>> import numpy as np
    >>> emitted, numbers = EmittedRows("operator 'mine'"), np.array([1, 2])
    >>> emitted.add(pa.record_batch({"x": pa.array(numbers)}))
    >>> numbers[1] = 7
    >>> emitted.check()
    Traceback (most recent call last):
    dataflow.errors.ContractViolation: operator 'mine': a batch has changed after it was emitted: column 'x', row 1, \
was 2 and is 7. Emitted memory is shared with the engine, so never write into it again: pa.array(numpy_array) shares \
the array; copy it first, as in pa.array(buffer.copy())
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._batches: deque[tuple[pa.RecordBatch, pa.Buffer]] = deque(maxlen=_KEPT)

    def add(self, batch: pa.RecordBatch) -> None:
        self.check()
        if type(batch) is pa.RecordBatch and batch.num_rows:
            self._batches.append((batch, _stored(batch)))

    def check(self) -> None:
        for batch, stored in self._batches:
            if not _stored(batch).equals(stored):
                raise ContractViolation(
                    f"{self._where}: a batch has changed after it was emitted: {_difference(batch, stored)}. Emitted "
                    "memory is shared with the engine, so never write into it again: pa.array(numpy_array) shares the "
                    "array; copy it first, as in pa.array(buffer.copy())"
                )


class Watches:
    """Makes the watches of one job, and checks all of them at its end.

    >>> watches = Watches()
    >>> watches("operator 'mine'").add(pa.record_batch({"x": [1]}))
    >>> watches.check()
    """

    def __init__(self) -> None:
        self._watches: list[EmittedRows] = []

    def __call__(self, where: str) -> EmittedRows:
        self._watches.append(EmittedRows(where))
        return self._watches[-1]

    def check(self) -> None:
        """Raise ContractViolation if a batch that is still watched has changed."""
        for watch in self._watches:
            watch.check()


def _stored(batch: pa.RecordBatch) -> pa.Buffer:
    """Return a copy of the rows, dictionaries included."""
    if not any(map(_has_dictionary, batch.schema.types)):
        return batch.serialize()  # in a third of the time
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _has_dictionary(type_: pa.DataType) -> bool:
    inner = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
    if pa.types.is_dictionary(inner):
        return True
    return any([_has_dictionary(inner.field(at).type) for at in range(inner.num_fields)])


def _difference(batch: pa.RecordBatch, stored: pa.Buffer) -> str:
    """Return the first cell that differs from the copy."""
    if any(map(_has_dictionary, batch.schema.types)):
        before = pa.ipc.open_stream(stored).read_next_batch()
    else:
        before = pa.ipc.read_record_batch(stored, batch.schema)
    for name, now, was in zip(batch.schema.names, batch.columns, before.columns, strict=True):
        for row, (new, old) in enumerate(zip(now, was, strict=True)):
            if repr(new) != repr(old):
                return f"column {name!r}, row {row}, was {old} and is {new}"
    return "values that are null"
