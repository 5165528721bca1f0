"""The handle of a `list_state` for a `KeyedProcess`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from operators.process.handles import MOST_AHEAD, CurrentCall, Handle
from operators.process.list_store import Lists
from operators.process.stores import LEAST
from operators.process.values import Converter

__all__ = ["KeyedList"]


class KeyedList(Handle):
    """The handle of a `list_state`."""

    def __init__(self, call: CurrentCall, store: Lists, converter: Converter) -> None:
        super().__init__(call, store)
        self._store = store
        self._converter = converter
        self._read: dict[int, list[Any]] = {}
        self._new: dict[int, list[Any]] = {}
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
        checked = self._converter.all_checked(list(values))
        if checked:
            self._save()
            self._renew()
            self._new.setdefault(self._call.at, []).extend(checked)

    def clear(self) -> None:
        """Empty the list of the key."""
        self._save()
        self._remove()

    def begin(self) -> None:
        super().begin()
        self._read, self._next, self._ahead = {}, -1, 1

    def flush(self) -> None:
        self._clear_store()
        if self._new:
            numbers = [at for at, values in self._new.items() for _ in values]
            values = self._converter.array([value for values in self._new.values() for value in values])
            self._store.append(self._slots(numbers), values, LEAST, self._times(numbers))
            self._new = {}
        self._stamps = {}

    def keep_changes(self, numbers: Collection[int]) -> None:
        super().keep_changes(numbers)
        self._new = {at: values for at, values in self._new.items() if at in numbers}

    def _kept(self, at: int) -> list[Any]:
        """Return the list in the store; if those of several keys are read in their order, more are read at a time."""
        if at not in self._read:
            self._ahead = min(2 * self._ahead, MOST_AHEAD) if at == self._next else 1
            self._next = min(at + self._ahead, len(self._call.slots))
            offsets, values = self._store.read(self._call.slots[at : self._next], LEAST)
            kept, places = values.to_pylist(), offsets.tolist()
            for number in range(at, self._next):
                self._read[number] = kept[places[number - at] : places[number - at + 1]]
        return self._read[at]

    def _copied(self, at: int) -> Callable[[], None]:
        new = list(self._new.get(at, ()))

        def undo() -> None:
            self._new.pop(at, None)
            if new:
                self._new[at] = new

        return undo

    def _forget(self, at: int) -> None:
        self._new.pop(at, None)
