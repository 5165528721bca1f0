"""The logs of a task: which checkpoint the next delta builds on, and which objects a restore needs.

Each checkpoint has a list of objects for the logs of a task: a base, then deltas. The list of a new checkpoint is that
of the checkpoint it builds on, and its own object after it. The barrier names the checkpoint to build on: the newest
one that was durable when the checkpoint was triggered. So all tasks agree on it, and the coordinator keeps it until the
new checkpoint is durable, too.

Invariant: a delta builds on a checkpoint that is durable, and whose objects this task wrote or was restored from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import pyarrow as pa

from dataflow.contracts.incremental import Incremental
from dataflow.contracts.operator import Snapshot
from dataflow.errors import ContractViolation
from dataflow.state.parts import is_base
from dataflow.store.manifest import LOG, Manifest, PartHandle

__all__ = ["LogChain"]

_MOST_DELTAS: Final = 200
"""After so many deltas a base is written, because a manifest names each of them, and a restore opens each."""

Names = frozenset[tuple[str, str]]
"""The logs of a task, by operator and name."""


@dataclass(frozen=True, slots=True)
class _Log:
    """The objects of the logs ``names`` in one checkpoint, base first."""

    names: Names
    objects: tuple[PartHandle, ...]

    @property
    def needs_base(self) -> bool:
        """Whether the deltas have passed half of the base."""
        deltas = self.objects[1:]
        return len(deltas) >= _MOST_DELTAS or 2 * sum(delta.size for delta in deltas) > self.objects[0].size


class LogChain:
    """The objects of the logs of one task, by checkpoint. The task freezes and drops, its writer adds."""

    def __init__(self) -> None:
        # Checkpoints whose own objects are durable; they themselves need not be. Single operations on it are atomic.
        self._logs: dict[int, _Log] = {}
        self._durable = 0

    @staticmethod
    def restored(task: str, states: Mapping[str, Snapshot], manifest: Manifest) -> LogChain:
        """Return the chain of ``task`` after a restore.

        A barrier names no checkpoint of another store, and no savepoint that was moved into this one. So the first
        checkpoint after such a restore is full.
        """
        chain = LogChain()
        objects = [handle for handle in manifest.parts if handle.task == task and handle.part == LOG]
        if objects:
            chain.add(manifest.checkpoint, states, objects)
        return chain

    def freeze(
        self, states: Mapping[str, Snapshot], checkpoint: int, since: int
    ) -> tuple[Mapping[str, Snapshot], tuple[PartHandle, ...]]:
        """Freeze the logs among the states of operators.

        Args:
            states: by operator, with logs that are `Incremental`.
            checkpoint: the checkpoint that is being taken.
            since: the newest durable checkpoint; 0: write a base.

        Returns: the states with frozen logs, each a sequence of one mapping from table names to readers; and the older
        objects that come before them, none for a base. Keyed state writes a base, too, if too much was deleted.

        Raises: the errors of ``freeze`` and ``durable``, with the operator as a note.
        """
        names = _names(states)
        if not names:
            return states, ()
        for older in list(self._logs):  # the writer may add to it meanwhile
            if older < since:
                self._logs.pop(older, None)
        log = self._logs.get(since)
        if log is None or log.names != names:
            return _frozen(states, checkpoint, None), ()
        if since > self._durable:
            for operator, name, incremental in _incremental(states):
                with _naming(operator, name):
                    incremental.durable(since)
            self._durable = since
        if log.needs_base:
            return _frozen(states, checkpoint, None), ()
        frozen = _frozen(states, checkpoint, since)
        return frozen, () if _are_bases(frozen) else log.objects

    def add(self, checkpoint: int, states: Mapping[str, Snapshot], objects: Sequence[PartHandle]) -> None:
        """Add the objects of a checkpoint, all of them durable."""
        absolute = tuple(msgspec.structs.replace(o, checkpoint=o.checkpoint or checkpoint) for o in objects)
        self._logs[checkpoint] = _Log(_names(states), absolute)

    def drop(self, checkpoint: int) -> None:
        """Forget an aborted checkpoint. If its objects are still being written, a later ``freeze`` forgets them."""
        self._logs.pop(checkpoint, None)


def _names(states: Mapping[str, Snapshot]) -> Names:
    return frozenset((operator, name) for operator, state in states.items() for name in state.logs)


def _incremental(states: Mapping[str, Snapshot]) -> Iterator[tuple[str, str, Incremental]]:
    for operator, state in states.items():
        for name, incremental in state.logs.items():
            assert isinstance(incremental, Incremental), f"log {name!r} of {operator!r} is frozen already"
            yield operator, name, incremental


def _frozen(states: Mapping[str, Snapshot], checkpoint: int, since: int | None) -> Mapping[str, Snapshot]:
    """Return the states with all logs frozen."""
    logs: dict[str, dict[str, Any]] = {operator: {} for operator in states}
    for operator, name, incremental in _incremental(states):
        with _naming(operator, name):
            logs[operator][name] = (_checked(incremental.freeze(checkpoint, since)),)
    return {operator: replace(state, logs=logs[operator]) for operator, state in states.items()}


def _are_bases(states: Mapping[str, Snapshot]) -> bool:
    """Return whether every table of the frozen logs says that it has the whole state."""
    for state in states.values():
        for log in state.logs.values():
            assert not isinstance(log, Incremental), "a log is not frozen"
            for tables in log:
                if not tables or not all([is_base(table) for table in tables.values()]):
                    return False
    return True


@contextmanager
def _naming(operator: str, log: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"raised while log {log!r} of operator {operator!r} was frozen")
        raise


def _checked(frozen: Any) -> Mapping[str, pa.RecordBatchReader]:
    """Return what ``freeze`` returned. Raises: ContractViolation unless it maps names to readers."""
    if not isinstance(frozen, Mapping):
        raise ContractViolation(f"freeze() returns readers by table name, but returned a {type(frozen).__name__}")
    for name, reader in frozen.items():
        if not isinstance(name, str) or not isinstance(reader, pa.RecordBatchReader):
            raise ContractViolation(
                f"freeze() returns a pa.RecordBatchReader by table name, but table {name!r} is a "
                f"{type(reader).__name__}; use pa.RecordBatchReader.from_batches(schema, batches)"
            )
    return frozen
