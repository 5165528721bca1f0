"""Stores of the state of process functions: the values, lists and mappings of keys, read and written as columns.

Keys are named by their slots in the *main* state, which has a column for each value without a time to live, and the
timers. Every other state has a keyed state of its own. So a state with a time to live is renewed by writes to it alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.state.arrays import Numbers, is_key
from dataflow.state.index import Slots
from dataflow.state.ipc import messages_field
from dataflow.state.keyed_state import KeyedState, Ttl
from operators.stateful.nested_columns import NestedColumns

__all__ = ["EVER", "LEAST", "Codec", "ExpiringValues", "MainValues", "Store", "Values", "free_name", "last_of_each"]

LEAST, EVER = -(2**63), 2**63 - 1


class Codec:
    """Converts arrays of ``type_`` to arrays that keyed state can have as a column, and back.

    >>> codec = Codec(pa.list_(pa.int64()))
    >>> codec.decode(codec.encode(pa.array([[1, 2], None]))).to_pylist()
    [[1, 2], None]
    """

    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self._nested = None if is_key(type_) else NestedColumns(pa.schema([pa.field("value", type_)]))

    def field(self, name: str) -> pa.Field:
        """Return the field of a column with what is kept."""
        return (
            pa.field(name, self.type)
            if self._nested is None
            else messages_field(name, self._nested.schema, nullable=True)
        )

    def encode(self, values: pa.Array) -> pa.Array:
        """Return ``values`` as they are kept; null stays null."""
        if self._nested is None:
            return values
        rows = pa.RecordBatch.from_arrays([values], schema=self._nested.schema)
        kept = self._nested.encode(rows).column(0)
        if not values.null_count:
            return kept
        pairs = zip(kept.to_pylist(), values.is_valid().to_pylist(), strict=True)
        messages = [message if valid else None for message, valid in pairs]
        return to_array(messages, pa.binary())

    def decode(self, kept: pa.Array) -> pa.Array:
        """Return the values that ``encode`` returned as ``kept``."""
        if self._nested is None:
            return kept
        valid = kept.drop_null()
        rows = pa.RecordBatch.from_arrays([valid], schema=self._nested.kept)
        values = self._nested.decode(rows).column(0)
        if not kept.null_count:
            return values
        present = np.asarray(kept.is_valid())
        places = to_array(np.cumsum(present) - 1, mask=~present)
        return values.take(places)


class Store(ABC):
    """The state of one declaration."""

    def __init__(self, main: KeyedState, ttl: int | None) -> None:
        self.main = main
        self.ttl = ttl

    @property
    def states(self) -> dict[str, KeyedState]:
        """What is in checkpoints beside the main state, by a suffix of its name."""
        return {}

    @property
    def counts(self) -> Sequence[str]:
        """The columns of ``states`` with numbers that count up from 0."""
        return ()

    @property
    def kernels(self) -> Sequence[str]:
        """The modules with the kernels that are called."""
        return [module for state in self.states.values() for module in state.kernels]

    def until(self, slots: Slots) -> Numbers:
        """Return the time at which the state of each slot expires; ``LEAST`` if there is none."""
        return np.full(len(slots), EVER, np.int64)

    def expire(self, now: int, limit: int) -> None:
        """Remove some of what has expired."""

    @abstractmethod
    def clear(self, slots: Slots) -> None:
        """Remove the state of slots."""

    def stamps(self, until: Numbers) -> Numbers:
        """Return the times at which state that expires at ``until`` was written; 0 if it does not expire."""
        return np.zeros(len(until), np.int64) if self.ttl is None else until - self.ttl

    def restored(self) -> None:
        """Take note that ``states`` are restored."""

    def _expiry(self, state: KeyedState, slots: Slots) -> Numbers:
        """Return the time at which the value that ``state``, with a ttl, has of each slot expires."""
        assert self.ttl is not None, "the state expires"
        own = state.find(self.main.keys(slots), LEAST)
        until = np.full(len(slots), LEAST, np.int64)
        there = own >= 0
        stamps = state.stamps(own[there])
        until[there] = np.where(stamps > EVER - self.ttl, EVER, stamps + self.ttl)
        return until


class Values(Store):
    """One value for each key."""

    def __init__(self, main: KeyedState, type_: pa.DataType, ttl: int | None) -> None:
        super().__init__(main, ttl)
        self.codec = Codec(type_)

    @abstractmethod
    def read(self, slots: Slots, now: Numbers | int) -> pa.Array:
        """Return the value of each slot, or null. ``now`` is the time for values that expire."""

    @abstractmethod
    def write(self, slots: Slots, values: pa.Array, now: Numbers | int, stamps: Numbers | int) -> None:
        """Write the value of each slot; null removes it. Of equal slots the last one counts.

        Args:
            now: the time, for values that expire: what has expired then does not prolong the life of the new value.
            stamps: the times from which the new values live.
        """

    def saved(self, slots: Slots) -> Callable[[], None]:
        """Return a function that writes back what ``slots``, each once, have now."""
        until = self.until(slots)
        there = until > LEAST
        values = self.read(slots, LEAST).filter(to_array(there))

        def undo() -> None:
            self.clear(slots)
            self.write(slots[there], values, LEAST, self.stamps(until[there]))

        return undo


class MainValues(Values):
    """A column of the main state: values that do not expire."""

    def __init__(self, main: KeyedState, type_: pa.DataType, column: str) -> None:
        super().__init__(main, type_, None)
        self.column = column
        self.wrote_null = False
        """Whether a null was written, so that slots may have no value any more. The owner resets it."""
        self._schema = pa.schema([self.codec.field(column)])

    def read(self, slots: Slots, now: Numbers | int) -> pa.Array:
        return self.codec.decode(self.main.read(slots, self.column).column(0))

    def write(self, slots: Slots, values: pa.Array, now: Numbers | int, stamps: Numbers | int) -> None:
        self.wrote_null |= values.null_count > 0
        self.main.touch(slots)
        self.main.write(slots, pa.RecordBatch.from_arrays([self.codec.encode(values)], schema=self._schema))

    def clear(self, slots: Slots) -> None:
        self.write(slots, pa.nulls(len(slots), self.codec.type), LEAST, 0)


class ExpiringValues(Values):
    """Values with a time to live."""

    def __init__(self, main: KeyedState, keys: pa.Schema, type_: pa.DataType, ttl: int) -> None:
        super().__init__(main, type_, ttl)
        self._schema = pa.schema([self.codec.field(free_name("value", keys.names))])
        self._state = KeyedState(keys, self._schema, ttl=Ttl(ttl))

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"": self._state}

    def read(self, slots: Slots, now: Numbers | int) -> pa.Array:
        return self.codec.decode(self._state.read(self._state.find(self.main.keys(slots), now)).column(0))

    def until(self, slots: Slots) -> Numbers:
        return self._expiry(self._state, slots)

    def write(self, slots: Slots, values: pa.Array, now: Numbers | int, stamps: Numbers | int) -> None:
        if values.null_count:  # also before another value of its slot, whose life then begins anew
            self.clear(np.unique(slots[np.asarray(values.is_null())]))
        last = last_of_each(slots)
        last = last[np.asarray(values.take(to_array(last)).is_valid())]
        slots, values = slots[last], values.take(to_array(last))
        now, stamps = [times if isinstance(times, int) else times[last] for times in (now, stamps)]
        if len(slots):
            own, _ = self._state.insert(self.main.keys(slots), now, stamps)
            self._state.write(own.copy(), pa.RecordBatch.from_arrays([self.codec.encode(values)], schema=self._schema))

    def clear(self, slots: Slots) -> None:
        if len(slots):
            self._state.delete(self._state.find(self.main.keys(slots), LEAST))

    def expire(self, now: int, limit: int) -> None:
        self._state.expire(now, limit)


def last_of_each(slots: Slots) -> Numbers:
    """Return the last row of each slot, in ascending order of the slots.

    >>> last_of_each(np.array([7, 3, 7], np.int32)).tolist()
    [1, 2]
    """
    _, first = np.unique(slots[::-1], return_index=True)
    return np.asarray(len(slots) - 1 - first, np.int64)


def free_name(name: str, taken: Sequence[str]) -> str:
    """Return ``name``, or a name like it that no column has.

    >>> free_name("value", ["user", "value"])
    'value of the state'
    """
    while name in taken:
        name += " of the state"
    return name
