"""The handles of a `KeyedProcess`: the state of the key at hand, as Python values.

Calls come in batches: each has some keys, and a call is for one of them. What is read is kept until the end of the
batch, and what is written reaches the stores then, as columns. A key may have several calls in a batch.

Invariant: how many calls a batch has changes nothing. So a handle decides at the time of each call what has expired,
and says to the store which state is to be removed (``_cleared``), and how long the rest lives (``_stamps``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import numpy as np

from dataflow.state.index import Slots
from operators.process.stores import EVER, LEAST, Store, Values
from operators.process.values import Converter

__all__ = ["MOST_AHEAD", "CurrentCall", "Handle", "KeyedValue"]

MOST_AHEAD: Final = 1024
"""Keys whose state is read at a time, if it is read in the order of the keys."""


class CurrentCall:
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

    def __init__(self, call: CurrentCall, store: Store) -> None:
        self._call = call
        self._any_store = store
        self._until: list[int] | None = None
        self._stamps: dict[int, int] = {}  # the time of the last write, of state that expires
        self._cleared: set[int] = set()  # the keys whose state in the store is to be removed
        self._saved = -1

    @abstractmethod
    def begin(self) -> None:
        """Forget what was read, because another batch begins."""
        self._until = None

    @abstractmethod
    def flush(self) -> None:
        """Write what was changed into the store."""

    def keep_changes(self, numbers: Collection[int]) -> None:
        """Forget the changes of all keys of the batch but these."""
        self._stamps = {at: stamp for at, stamp in self._stamps.items() if at in numbers}
        self._cleared.intersection_update(numbers)

    @abstractmethod
    def _copied(self, at: int) -> Callable[[], None]:
        """Return a function that returns the changes of key ``at`` to what they are now."""

    @abstractmethod
    def _forget(self, at: int) -> None:
        """Forget what the batch has written for key ``at``."""

    def _remove(self) -> None:
        """Remove the state of the key. Only later writes count for its life."""
        at = self._call.at
        self._forget(at)
        self._cleared.add(at)
        if self._any_store.ttl is not None:
            self._stamps.pop(at, None)
            self._expiries()[at] = LEAST

    def _clear_store(self) -> None:
        """Remove from the store what is to be removed. Call this before anything is written there."""
        if self._cleared:
            self._any_store.clear(self._slots(sorted(self._cleared)))
            self._cleared = set()

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
        undo, cleared = self._copied(at), at in self._cleared

        def undo_changes() -> None:
            undo()
            if not cleared:
                self._cleared.discard(at)

        if self._any_store.ttl is None:
            call.log.append(undo_changes)
            return
        until, stamp = self._expiries()[at], self._stamps.get(at)

        def undo_all() -> None:
            undo_changes()
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
            self._remove()
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

    def __init__(self, call: CurrentCall, store: Values, converter: Converter) -> None:
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
            if value is None:
                self._remove()
                return
            self._renew()
        self._written[self._call.at] = self._converter.copied(value) if self._converter.is_nested else value

    def clear(self) -> None:
        """Remove the value of the key."""
        self.set(None)

    def begin(self) -> None:
        super().begin()
        self._read = None

    def flush(self) -> None:
        self._clear_store()
        if self._written:
            numbers = list(self._written)
            values = self._converter.array(list(self._written.values()))
            self._store.write(self._slots(numbers), values, LEAST, self._times(numbers))
            self._written = {}
        self._stamps = {}

    def keep_changes(self, numbers: Collection[int]) -> None:
        super().keep_changes(numbers)
        self._written = {at: value for at, value in self._written.items() if at in numbers}

    def _copied(self, at: int) -> Callable[[], None]:
        written, value = at in self._written, self._written.get(at)

        def undo() -> None:
            if written:
                self._written[at] = value
            else:
                self._written.pop(at, None)

        return undo

    def _forget(self, at: int) -> None:
        self._written.pop(at, None)
