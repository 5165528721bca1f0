"""Lists of keys: the rows of a keyed state, in the order in which they were appended."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed_rows import ROW_TIME, TIME
from dataflow.state.keyed_state import KeyedState, Ttl
from operators.process.stores import EVER, LEAST, Codec, Store, free_name

__all__ = ["Lists", "lists_of"]


class Lists(Store):
    """A list for each key. The time of a row is the number of values that were appended before it."""

    def __init__(self, main: KeyedState, keys: pa.Schema, type_: pa.DataType, ttl: int | None) -> None:
        super().__init__(main, ttl)
        self.codec = Codec(type_)
        self._schema = pa.schema([self.codec.field(free_name("value", keys.names))])
        self._state = KeyedState(keys, pa.schema([]), rows=self._schema, ttl=None if ttl is None else Ttl(ttl))
        self._appended = 0

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"": self._state}

    @property
    def counts(self) -> Sequence[str]:
        return (ROW_TIME,)

    def until(self, slots: Slots) -> Numbers:
        return super().until(slots) if self.ttl is None else self._expiry(self._state, slots)

    def read(self, slots: Slots, now: Numbers | int) -> tuple[Numbers, pa.Array]:
        """Return the values of each slot's list, and their offsets."""
        own = self._state.find(self.main.keys(slots), now)
        offsets, rows = self._state.between(own, LEAST, EVER)
        return offsets, self.codec.decode(rows.column(0))

    def append(self, slots: Slots, values: pa.Array, now: Numbers | int, stamps: Numbers | int) -> None:
        """Append a value to the list of each slot, which lives from ``stamps`` on.

        A list that has expired at ``now`` begins again.
        """
        if not len(slots):
            return
        own, _ = self._state.insert(self.main.keys(slots), now, stamps)
        times = np.arange(self._appended, self._appended + len(slots))
        self._appended += len(slots)
        self._state.append(
            own.copy(), times, pa.RecordBatch.from_arrays([self.codec.encode(values)], schema=self._schema)
        )

    def saved(self, slots: Slots, now: Numbers | int, *, whole: bool) -> Callable[[], None]:
        """Return a function that writes back the lists that ``slots``, each once, have now.

        Args:
            now: the time of the call. Lists that have expired are read now, because they will be dropped.
            whole: whether all lists are read now; else only their lengths, because values will only be appended.
        """
        until, lengths = self.until(slots), self._state.count_rows(self._state.find(self.main.keys(slots), LEAST))
        kept = np.full(len(slots), whole) | (until <= now)
        before = self.read(slots[kept], LEAST)

        def undo() -> None:
            offsets, values = self.read(slots[~kept], LEAST)
            first = np.arange(len(values)) - np.repeat(offsets[:-1], np.diff(offsets))
            left = first < np.repeat(lengths[~kept], np.diff(offsets))
            self.clear(slots)
            for some, array, rows in (
                (~kept, values.filter(to_array(left)), lengths[~kept]),
                (kept, before[1], np.diff(before[0])),
            ):
                self.append(np.repeat(slots[some], rows), array, LEAST, np.repeat(self.stamps(until[some]), rows))

        return undo

    def clear(self, slots: Slots) -> None:
        if len(slots):
            self._state.delete(self._state.find(self.main.keys(slots), LEAST))

    def expire(self, now: int, limit: int) -> None:
        self._state.expire(now, limit)

    def restored(self) -> None:
        rows = self._state.all_rows
        if len(rows):
            self._appended = int(self._state.row_records[rows, TIME].max()) + 1


def lists_of(offsets: Numbers, values: pa.Array) -> pa.Array:
    """Return an Arrow array of lists.

    >>> lists_of(np.array([0, 2, 2]), pa.array([7, 8])).to_pylist()
    [[7, 8], []]
    """
    return pa.LargeListArray.from_arrays(to_array(offsets), values).cast(pa.list_(values.type))
