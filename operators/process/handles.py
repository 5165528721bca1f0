"""The handles of a `KeyedProcess`: the state of the key at hand, as Python values.

Calls come in batches: each has some keys, and a call is for one of them. What is read is kept until the end of the
batch, and what is written reaches the stores then, as columns. A key may have several calls in a batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from dataflow.state.index import Slots
from operators.process.list_store import Lists
from operators.process.map_store import Maps
from operators.process.stores import EVER, LEAST, Store, Values
from operators.process.values import Converter, canonical

__all__ = ["Call", "Handle", "KeyedList", "KeyedMap", "KeyedValue"]

_SMALL: Final = 64
"""Entries up to which a mapping is read as a whole."""
_MOST_AHEAD: Final = 1024


class Call:
    """The call at hand.

    Attributes:
        at: the number of its key in the batch.
        now: its time, for state that expires.
        slots: the slots of the keys of the batch.
        number: counts the calls.
        log: functions that undo what the call changed; None: nothing will be undone.
    """

    __slots__ = ("at", "log", "now", "number", "slots")

    def __init__(self) -> None:
        self.at, self.now, self.number = 0, LEAST, 0
        self.slots: Slots = np.empty(0, np.int32)
        self.log: list[Callable[[], None]] | None = None


class Handle(ABC):
    """What the handles of all kinds of state have: times to live, and a way back for calls that fail."""

    def __init__(self, call: Call, store: Store) -> None:
        self._call = call
        self._any_store = store
        self._until: list[int] | None = None
        self._stamps: dict[int, int] = {}  # the time of the last write, of state that expires
        self._saved = -1

    @abstractmethod
    def begin(self) -> None:
        """Forget what was read, because another batch begins."""
        self._until = None

    @abstractmethod
    def flush(self) -> None:
        """Write what was changed into the store."""

    @abstractmethod
    def _copied(self, at: int) -> Callable[[], None]:
        """Return a function that returns the changes of key ``at`` to what they are now."""

    @abstractmethod
    def _forget(self, at: int) -> None:
        """Let the state of key ``at`` begin as empty."""

    def _is_there(self) -> bool:
        """Return whether the state of the key has not expired."""
        if self._any_store.ttl is None:
            return True
        return self._expiries()[self._call.at] > self._call.now

    def _expiries(self) -> list[int]:
        if self._until is None:
            self._until = self._any_store.until(self._call.slots).tolist()
        return self._until

    def _save(self) -> None:
        """Prepare the key's state for a change."""
        call = self._call
        if call.log is None or self._saved == call.number:
            return
        self._saved = call.number
        at = call.at
        undo = self._copied(at)
        if self._any_store.ttl is None:
            call.log.append(undo)
            return
        until, stamp = self._expiries()[at], self._stamps.get(at)

        def undo_all() -> None:
            undo()
            self._expiries()[at] = until
            if stamp is None:
                self._stamps.pop(at, None)
            else:
                self._stamps[at] = stamp

        call.log.append(undo_all)

    def _renew(self) -> None:
        """Take note that the key's state is written now."""
        ttl = self._any_store.ttl
        if ttl is None:
            return
        at, now = self._call.at, self._call.now
        if not self._is_there():
            self._forget(at)
        # a write does not shorten the life of what an earlier one with a later time wrote
        stamp = max(now, self._stamps.get(at, now), min(self._expiries()[at], EVER) - ttl)
        self._stamps[at] = stamp
        self._expiries()[at] = min(stamp + ttl, EVER)

    def _times(self, numbers: Iterable[int]) -> np.ndarray | int:
        """Return the times of the writes of keys."""
        if self._any_store.ttl is None:
            return 0
        return np.array([self._stamps[at] for at in numbers], np.int64)

    def _slots(self, numbers: Sequence[int]) -> Slots:
        return self._call.slots[np.array(numbers, np.int64)]


class KeyedValue(Handle):
    """The handle of a `value_state`."""

    def __init__(self, call: Call, store: Values, converter: Converter) -> None:
        super().__init__(call, store)
        self._store = store
        self._converter = converter
        self._read: list[Any] | None = None
        self._written: dict[int, Any] = {}

    def get(self, default: Any = None) -> Any:
        """Return the value of the key, or ``default`` if there is none."""
        at = self._call.at
        if self._store.ttl is not None and not self._is_there():
            return default
        if at in self._written:
            value = self._written[at]
        else:
            if self._read is None:
                self._read = self._store.read(self._call.slots, LEAST).to_pylist()
            value = self._read[at]
        if value is None:
            return default
        return self._converter.copied(value) if self._converter.is_nested else value

    def set(self, value: Any) -> None:
        """Write the value of the key; None removes it."""
        value = self._converter.checked(value)
        self._save()
        if self._store.ttl is not None:
            self._renew()
        self._written[self._call.at] = self._converter.copied(value) if self._converter.is_nested else value

    def clear(self) -> None:
        """Remove the value of the key."""
        self.set(None)

    def begin(self) -> None:
        super().begin()
        self._read = None

    def flush(self) -> None:
        if self._written:
            numbers = list(self._written)
            values = self._converter.array(list(self._written.values()))
            self._store.write(self._slots(numbers), values, self._times(numbers))
            self._written, self._stamps = {}, {}

    def _copied(self, at: int) -> Callable[[], None]:
        written, value = at in self._written, self._written.get(at)

        def undo() -> None:
            if written:
                self._written[at] = value
            else:
                self._written.pop(at, None)

        return undo

    def _forget(self, at: int) -> None:
        """Do nothing: a value is overwritten."""


class KeyedList(Handle):
    """The handle of a `list_state`."""

    def __init__(self, call: Call, store: Lists, converter: Converter) -> None:
        super().__init__(call, store)
        self._store = store
        self._converter = converter
        self._read: dict[int, list[Any]] = {}
        self._new: dict[int, list[Any]] = {}
        self._cleared: set[int] = set()
        self._next, self._ahead = -1, 1

    def get(self) -> list[Any]:
        """Return the list of the key."""
        at = self._call.at
        if not self._is_there():
            return []
        kept = [] if at in self._cleared else self._kept(at)
        return [self._converter.copied(value) for value in (*kept, *self._new.get(at, ()))]

    def append(self, value: Any) -> None:
        """Append a value to the list of the key."""
        self.extend((value,))

    def extend(self, values: Iterable[Any]) -> None:
        """Append several values to the list of the key."""
        checked = [self._converter.copied(self._converter.checked(value)) for value in values]
        if checked:
            self._save()
            self._renew()
            self._new.setdefault(self._call.at, []).extend(checked)

    def clear(self) -> None:
        """Empty the list of the key."""
        self._save()
        self._forget(self._call.at)

    def begin(self) -> None:
        super().begin()
        self._read, self._next, self._ahead = {}, -1, 1

    def flush(self) -> None:
        if self._cleared:
            self._store.clear(self._slots(sorted(self._cleared)))
            self._cleared = set()
        if self._new:
            numbers = [at for at, values in self._new.items() for _ in values]
            values = self._converter.array([value for values in self._new.values() for value in values])
            self._store.append(self._slots(numbers), values, self._times(numbers))
            self._new = {}
        self._stamps = {}

    def _kept(self, at: int) -> list[Any]:
        """Return the list in the store; if those of several keys are read in their order, more are read at a time."""
        if at not in self._read:
            self._ahead = min(2 * self._ahead, _MOST_AHEAD) if at == self._next else 1
            self._next = min(at + self._ahead, len(self._call.slots))
            offsets, values = self._store.read(self._call.slots[at : self._next], LEAST)
            kept, places = values.to_pylist(), offsets.tolist()
            for number in range(at, self._next):
                self._read[number] = kept[places[number - at] : places[number - at + 1]]
        return self._read[at]

    def _copied(self, at: int) -> Callable[[], None]:
        new, cleared = list(self._new.get(at, ())), at in self._cleared

        def undo() -> None:
            self._new.pop(at, None)
            if new:
                self._new[at] = new
            if not cleared:
                self._cleared.discard(at)

        return undo

    def _forget(self, at: int) -> None:
        self._new.pop(at, None)
        self._cleared.add(at)


Entry = tuple[Any, Any] | None
"""The key and value of an entry; None: there is none."""


class KeyedMap(Handle):
    """The handle of a `map_state`."""

    def __init__(self, call: Call, store: Maps, key: Converter, value: Converter) -> None:
        super().__init__(call, store)
        self._store = store
        self._key, self._value = key, value
        self._read: dict[int, dict[Any, Entry]] = {}
        self._whole: set[int] = set()  # the keys all of whose entries are in _read
        self._sizes: list[int] | None = None
        self._next, self._ahead = -1, 1
        self._changed: dict[int, dict[Any, Entry]] = {}
        self._removed: dict[int, dict[Any, Any]] = {}  # the keys of entries to remove
        self._cleared: set[int] = set()

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of ``key`` in the mapping of the stream's key, or ``default``."""
        if not self._is_there():
            return default
        key = self._key.checked(key)
        own, at = canonical(key), self._call.at
        changed = self._changed.get(at)
        if changed is not None and own in changed:
            entry = changed[own]
        elif at in self._cleared:
            entry = None
        else:
            entry = self._entry(at, own, key)
        return default if entry is None else self._value.copied(entry[1])

    def put(self, key: Any, value: Any) -> None:
        """Write the value of ``key``."""
        own, value = canonical(self._key.checked(key)), self._value.copied(self._value.checked(value))
        self._save()
        self._renew()
        changed = self._changed.setdefault(self._call.at, {})
        if own in changed and changed[own] is None:
            del changed[own]  # an entry that was removed and comes again is the last one
        changed[own] = (own, value)

    def remove(self, key: Any) -> None:
        """Remove the entry of ``key``, if there is one."""
        key = self._key.checked(key)
        self._save()
        at, own = self._call.at, canonical(key)
        self._changed.setdefault(at, {})[own] = None
        self._removed.setdefault(at, {})[own] = key

    def items(self) -> list[tuple[Any, Any]]:
        """Return all entries, in the order in which their keys came."""
        at = self._call.at
        if not self._is_there():
            return []
        entries: dict[Any, Entry] = {}
        if at not in self._cleared:
            self._load(at)
            entries.update(self._read[at])
        for own, entry in self._changed.get(at, {}).items():
            if own in self._removed.get(at, ()):
                entries.pop(own, None)  # an entry that was removed and came again is the last one
            entries[own] = entry
        return [(key, self._value.copied(value)) for key, value in filter(None, entries.values())]

    def clear(self) -> None:
        """Remove all entries of the stream's key."""
        self._save()
        self._forget(self._call.at)

    def begin(self) -> None:
        super().begin()
        self._read, self._whole, self._sizes = {}, set(), None
        self._next, self._ahead = -1, 1

    def flush(self) -> None:
        if self._cleared:
            self._store.clear(self._slots(sorted(self._cleared)))
        gone = [(at, key) for at, keys in self._removed.items() if at not in self._cleared for key in keys.values()]
        if gone:
            self._store.remove(self._slots([at for at, _ in gone]), self._key.array([key for _, key in gone]))
        put = [(at, *entry) for at, entries in self._changed.items() for entry in entries.values() if entry is not None]
        if put:
            numbers = [at for at, _, _ in put]
            keys = self._key.array([key for _, key, _ in put])
            values = self._value.array([value for _, _, value in put])
            self._store.put(self._slots(numbers), keys, values, self._times(numbers))
        self._changed, self._removed, self._cleared, self._stamps = {}, {}, set(), {}

    def _entry(self, at: int, own: Any, key: Any) -> Entry:
        """Return an entry of the store. A mapping with few entries is read as a whole."""
        read = self._read.get(at)
        if read is not None and own in read:
            return read[own]
        if at in self._whole:
            return None
        if self._known_sizes()[at] <= _SMALL:
            self._load(at)
            return self._read[at].get(own)
        there, values = self._store.read(self._call.slots[at : at + 1], self._key.array([key]), LEAST)
        entry = (key, values[0].as_py()) if there[0] else None
        self._read.setdefault(at, {})[own] = entry
        return entry

    def _load(self, at: int) -> None:
        """Read all entries of a key; if those of several keys are read in their order, more are read at a time."""
        if at in self._whole:
            return
        self._ahead = min(2 * self._ahead, _MOST_AHEAD) if at == self._next else 1
        self._next = min(at + self._ahead, len(self._call.slots))
        sizes = self._known_sizes()
        numbers = [at, *[n for n in range(at + 1, self._next) if sizes[n] <= _SMALL and n not in self._whole]]
        offsets, keys, values = self._store.items(self._slots(numbers), LEAST)
        pairs = [(canonical(key), value) for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)]
        places = offsets.tolist()
        for number, start, stop in zip(numbers, places, places[1:], strict=False):
            self._read[number] = {pair[0]: pair for pair in pairs[start:stop]}
        self._whole.update(numbers)

    def _known_sizes(self) -> list[int]:
        """Return the number of entries of each key in the store."""
        if self._sizes is None:
            self._sizes = self._store.sizes(self._call.slots).tolist()
        return self._sizes

    def _copied(self, at: int) -> Callable[[], None]:
        changed, removed = dict(self._changed.get(at, {})), dict(self._removed.get(at, {}))
        cleared = at in self._cleared

        def undo() -> None:
            self._changed[at], self._removed[at] = changed, removed
            if not cleared:
                self._cleared.discard(at)

        return undo

    def _forget(self, at: int) -> None:
        self._changed.pop(at, None)
        self._removed.pop(at, None)
        self._cleared.add(at)
