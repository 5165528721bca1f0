"""The timers that calls of a process function set and cancel: they reach the keyed state together, in their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState
from dataflow.state.timers import TimeDomain

__all__ = ["TimerChanges"]


class TimerChanges:
    """Changes of timers that wait. Each is of some slots, and sets timers or cancels them.

    Timers that fire during a call with the time ``upto`` cannot set timers that fire in the same call: those due at or
    before ``upto`` are *deferred* until the call is over. Their keys are kept apart, because slots may change.
    """

    def __init__(self, main: KeyedState) -> None:
        self._main = main
        self._waiting: list[tuple[bool, TimeDomain, Any, Any]] = []
        self._deferred: list[tuple[bool, TimeDomain, list[pa.Array], Numbers]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def undo(self, mark: int) -> None:
        """Drop the changes since there were ``mark`` of them."""
        del self._waiting[mark:]

    def add(self, slots: Any, dues: Any, domain: TimeDomain, *, sets: bool) -> None:
        """Take a change of slots, which must be valid until ``apply``. Both are single integers, or both arrays."""
        self._waiting.append((sets, domain, slots, dues))

    def apply(self, fires: TimeDomain | None = None, upto: int = 0) -> None:
        """Change the timers of the keyed state; defer what could fire again at ``upto`` in the domain ``fires``."""
        waiting, self._waiting = self._waiting, []
        start = 0
        while start < len(waiting):
            sets, domain = waiting[start][:2]
            stop = start + 1
            while stop < len(waiting) and waiting[stop][:2] == (sets, domain):
                stop += 1
            some = waiting[start:stop]
            slots = _joined([each[2] for each in some], np.int32)
            dues = _joined([each[3] for each in some], np.int64)
            self._apply(slots, dues, domain, upto if domain is fires else None, sets=sets)
            start = stop

    def _apply(self, slots: Slots, dues: Numbers, domain: TimeDomain, upto: int | None, *, sets: bool) -> None:
        if upto is not None:
            later = dues <= upto
            if later.any():
                self._deferred.append((sets, domain, self._main.keys(slots[later]), dues[later]))
                if sets:
                    slots, dues = slots[~later], dues[~later]
        if not len(slots):
            return
        if sets:
            self._main.set_timers(slots, dues, domain)
        else:
            self._main.cancel_timers(slots, dues, domain)

    def apply_deferred(self) -> None:
        """Change the timers that were deferred."""
        deferred, self._deferred = self._deferred, []
        for sets, domain, keys, dues in deferred:
            if sets:
                self._main.set_timers(self._main.enter(keys), dues, domain)
            else:
                self._main.cancel_timers(self._main.enter(keys), dues, domain)

    def drop_deferred(self) -> int:
        """Drop the timers that were deferred, because time does not move any more; return how many."""
        dropped = sum([len(dues) for sets, _, _, dues in self._deferred if sets])
        self._deferred = []
        return dropped


def _joined(numbers: list[Any], dtype: type[np.int32] | type[np.int64]) -> np.ndarray:
    """Return integers, or arrays of them, as one array."""
    if isinstance(numbers[0], np.ndarray):
        return np.concatenate(numbers).astype(dtype, copy=False)
    return np.array(numbers, dtype)
