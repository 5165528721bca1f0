"""The handle of a `map_state` for a `KeyedProcess`: small mappings are read as a whole, large ones by entry."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from operators.process.handles import MOST_AHEAD, CurrentCall, Handle
from operators.process.map_store import Maps
from operators.process.stores import LEAST
from operators.process.values import Converter, canonical

__all__ = ["KeyedMap"]

_SMALL: Final = 64
"""Entries up to which a mapping is read as a whole."""

Entry = tuple[Any, Any] | None
"""The key and value of an entry; None: there is none."""


class KeyedMap(Handle):
    """The handle of a `map_state`."""

    def __init__(self, call: CurrentCall, store: Maps, key: Converter, value: Converter) -> None:
        super().__init__(call, store)
        self._store = store
        self._key, self._value = key, value
        self._read: dict[int, dict[Any, Entry]] = {}
        self._whole: set[int] = set()  # the keys all of whose entries are in _read
        self._sizes: list[int] | None = None
        self._next, self._ahead = -1, 1
        self._changed: dict[int, dict[Any, Entry]] = {}
        self._removed: dict[int, dict[Any, Any]] = {}  # the keys of entries to remove

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
        self._remove()

    def begin(self) -> None:
        super().begin()
        self._read, self._whole, self._sizes = {}, set(), None
        self._next, self._ahead = -1, 1

    def flush(self) -> None:
        gone = [(at, key) for at, keys in self._removed.items() if at not in self._cleared for key in keys.values()]
        self._clear_store()
        if gone:
            self._store.remove(self._slots([at for at, _ in gone]), self._key.array([key for _, key in gone]))
        if self._stamps:  # also of mappings whose new entries were removed again
            self._store.renew(self._slots(list(self._stamps)), LEAST, self._times(self._stamps))
        put = [(at, *entry) for at, entries in self._changed.items() for entry in entries.values() if entry is not None]
        if put:
            numbers = [at for at, _, _ in put]
            keys = self._key.array([key for _, key, _ in put])
            values = self._value.array([value for _, _, value in put])
            self._store.put(self._slots(numbers), keys, values)
        self._changed, self._removed, self._stamps = {}, {}, {}

    def keep_changes(self, numbers: Collection[int]) -> None:
        super().keep_changes(numbers)
        self._changed = {at: entries for at, entries in self._changed.items() if at in numbers}
        self._removed = {at: entries for at, entries in self._removed.items() if at in numbers}

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
        self._ahead = min(2 * self._ahead, MOST_AHEAD) if at == self._next else 1
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

        def undo() -> None:
            self._changed[at], self._removed[at] = changed, removed

        return undo

    def _forget(self, at: int) -> None:
        self._changed.pop(at, None)
        self._removed.pop(at, None)
