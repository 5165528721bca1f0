"""The locks of one run, on the store and on the outputs of sinks. All attempts of the run share them.

A restart does not release them. Otherwise another job could write there between two attempts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataflow.contracts.sink import TwoPhaseSink
    from dataflow.store.base import CheckpointStore

__all__ = ["RunLocks"]


class RunLocks:
    """Each lock is taken by the first attempt that asks for it, under the id of that attempt.

    >>> from dataflow.store.memory import MemoryStore
    >>> locks = RunLocks()
    >>> locks.open(MemoryStore(), "run-1")
    >>> locks.release()
    """

    def __init__(self) -> None:
        self._held = ExitStack()
        self._store: CheckpointStore | None = None
        self._sinks: set[str] = set()

    def open(self, store: CheckpointStore, run_id: str) -> None:
        """Open ``store``, unless it is open. Raises: DirectoryInUse; StoreError."""
        if self._store is None:
            store.open(run_id)
            self._held.callback(store.close)
            self._store = store
        assert self._store is store, "all attempts of a run write to one store"

    def hold(self, name: str, sink: TwoPhaseSink, run_id: str) -> None:
        """Lock the output of the sink called ``name``, unless it is locked. Raises: DirectoryInUse."""
        if name not in self._sinks:
            self._held.enter_context(sink.hold(run_id))
            self._sinks.add(name)

    def before_release(self, call: Callable[[], None]) -> None:
        """Call ``call`` when the locks are released, before the first of them is."""
        self._held.callback(call)

    def release(self) -> None:
        """Release all locks, and nothing else, as the kernel does for a dead process. Later calls do nothing."""
        self._store = None
        self._sinks.clear()
        self._held.close()
