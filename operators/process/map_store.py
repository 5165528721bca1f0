"""Mappings of keys: a keyed state of entries, by key and entry key, and a list of the entries of each key.

A mapping with a time to live has a keyed state of its own that says when it was last written. If that has expired, the
entries do not count any more; they are removed by a sweep, or when the key is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState, Ttl
from dataflow.state.parts import number_field
from operators.joins.members import Members
from operators.process.stores import LEAST, Codec, Store, free_name

__all__ = ["Maps"]

_CHUNK = 65_536


class Maps(Store):
    """A mapping for each key."""

    def __init__(
        self, main: KeyedState, keys: pa.Schema, entry: pa.DataType, value: pa.DataType, ttl: int | None
    ) -> None:
        super().__init__(main, ttl)
        self.codec = Codec(value)
        self._count = len(keys)
        names = [free_name(name, keys.names) for name in ("entry", "value", "number")]
        self._entry, self._value, self._number = names
        self._schema = pa.schema([self.codec.field(names[1]), number_field(names[2])])
        self._entries = KeyedState(pa.schema([*keys, pa.field(names[0], entry)]), self._schema, grouped_by=len(keys))
        self._members = Members(keys)
        self._lives = None if ttl is None else KeyedState(keys, pa.schema([]), ttl=Ttl(ttl))
        self._written = 0
        self._sweep = 0

    @property
    def states(self) -> dict[str, KeyedState]:
        lives = {} if self._lives is None else {" lives": self._lives}
        return {"": self._entries, **lives}

    @property
    def counts(self) -> Sequence[str]:
        return (self._number,)

    @property
    def kernels(self) -> list[str]:
        return [*super().kernels, *self._members.kernels]

    def until(self, slots: Slots) -> Numbers:
        return super().until(slots) if self._lives is None else self._expiry(self._lives, slots)

    def sizes(self, slots: Slots) -> Numbers:
        """Return the number of entries of each slot, expired ones included."""
        return self._members.sizes(self._members.find(self.main.keys(slots)))

    def read(self, slots: Slots, entries: pa.Array, now: Numbers | int) -> tuple[np.ndarray, pa.Array]:
        """Return whether the mapping of each slot has the entry, and the values, null where it has not."""
        keys = self.main.keys(slots)
        found = self._entries.find([*keys, entries])
        if self._lives is not None:
            found = np.where(self._lives.find(keys, now) >= 0, found, np.int32(-1))
        return found >= 0, self.codec.decode(self._entries.read(found, self._value).column(0))

    def items(self, slots: Slots, now: Numbers | int) -> tuple[Numbers, pa.Array, pa.Array]:
        """Return the offsets, keys and values of the entries of each slot, in the order in which their keys came."""
        keys = self.main.keys(slots)
        members = self._members.find(keys)
        if self._lives is not None:
            members = np.where(self._lives.find(keys, now) >= 0, members, np.int32(-1))
        offsets, rows = self._members.rows(members)
        stored = self._entries.read(rows)
        owners = np.repeat(np.arange(len(slots)), np.diff(offsets))
        order = np.lexsort((to_numbers(stored.column(1)), owners))
        rows, places = rows[order], to_array(order)
        entries = self._entries.keys(rows)[self._count]
        return offsets, entries, self.codec.decode(stored.column(0).take(places))

    def renew(self, slots: Slots, now: Numbers | int, stamps: Numbers | int) -> None:
        """Let the mappings live from ``stamps`` on; one that has expired at ``now`` begins anew."""
        if self._lives is None or not len(slots):
            return
        keys = self.main.keys(slots)
        _, fresh = self._lives.insert(keys, now, stamps)
        if fresh.any():
            self._drop(self._members.find([column.filter(to_array(fresh)) for column in keys]))

    def put(self, slots: Slots, entries: pa.Array, values: pa.Array) -> None:
        """Write an entry of the mapping of each slot, after ``renew``. Of equal ones the last counts."""
        if not len(slots):
            return
        keys = self.main.keys(slots)
        own, fresh = self._entries.insert([*keys, entries])
        own = own.copy()
        kept = self.codec.encode(values)
        new = np.flatnonzero(fresh)
        batch = pa.RecordBatch.from_arrays([kept], schema=pa.schema([self._schema.field(0)]))
        self._entries.write(own, batch)
        if len(new):
            numbers = np.arange(self._written, self._written + len(new))
            self._written += len(new)
            column = pa.RecordBatch.from_arrays([to_array(numbers)], schema=pa.schema([self._schema.field(1)]))
            self._entries.write(own[new], column)
            self._link(own[new], 1)

    def remove(self, slots: Slots, entries: pa.Array) -> None:
        """Remove an entry of the mapping of each slot, where it has it."""
        if len(slots):
            found = self._entries.find([*self.main.keys(slots), entries])
            self._remove(np.unique(found[found >= 0]))

    def saved(self, slots: Slots, entries: pa.Array | None, now: Numbers | int) -> Callable[[], None]:
        """Return a function that writes back the entries that the mappings of ``slots`` have now.

        Args:
            slots: the slots, of which one may occur several times.
            entries: an entry of each slot, the only one that will change; None: all will, and slots occur once.
            now: the time of the call. Mappings that have expired are read as a whole, because they will be dropped.
        """
        distinct, first = np.unique(slots, return_index=True)
        until = self.until(distinct)
        times = now if isinstance(now, int) else now[first]
        if entries is None or ((until > LEAST) & (until <= times)).any():
            entries = None
            rows = self._members.rows(self._members.find(self.main.keys(distinct)))[1]
        else:
            found = self._entries.find([*self.main.keys(slots), entries])
            rows = np.unique(found[found >= 0])
        keys, stored = self._entries.keys(rows), self._entries.read(rows)

        def undo() -> None:
            if entries is None:
                self.clear(distinct)
            else:
                self.remove(slots, entries)
            if len(rows):
                own = self._entries.insert(keys)[0].copy()
                self._entries.write(own, stored)
                self._link(own, 1)
            if self._lives is not None:
                self._lives.delete(self._lives.find(self.main.keys(distinct), LEAST))
                there = until > LEAST
                stamps = self.stamps(until[there])
                self._lives.insert(self.main.keys(distinct[there]), stamps, stamps)

        return undo

    def clear(self, slots: Slots) -> None:
        if len(slots):
            keys = self.main.keys(slots)
            self._drop(self._members.find(keys))
            if self._lives is not None:
                self._lives.delete(self._lives.find(keys, LEAST))

    def expire(self, now: int, limit: int) -> None:
        if self._lives is None:
            return
        self._lives.expire(now, limit)
        slots = self._entries.slots_from(self._sweep, limit)
        self._sweep = self._sweep + limit if self._sweep + limit < len(self._entries.records) else 0
        if len(slots):
            keys = self._entries.keys(slots)[: self._count]
            self._remove(slots[self._lives.find(keys, now) < 0])

    def restored(self) -> None:
        slots = self._entries.slots
        for begin in range(0, len(slots), _CHUNK):
            some = slots[begin : begin + _CHUNK]
            stored = self._entries.read(some)
            self._link(some, 1)
            self._written = max(self._written, int(to_numbers(stored.column(1)).max()) + 1)

    def _drop(self, members: Slots) -> None:
        """Remove all entries of ``members``, the slots of keys in the lists."""
        members = np.unique(members[members >= 0])
        if len(members):
            self._remove(np.sort(self._members.rows(members)[1]))

    def _remove(self, slots: Slots) -> None:
        """Remove entries, each once."""
        if len(slots):
            self._link(slots, -1)
            self._entries.delete(slots)

    def _link(self, slots: Slots, change: int) -> None:
        """Add entries, each once, to the lists of their keys, or remove them."""
        keys = self._entries.keys(slots)[: self._count]
        self._members.change(keys, slots, np.full(len(slots), change), np.zeros(len(slots), np.int64))
