"""All state of a process function in one subtask: the main state, the stores of the declarations, and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dataflow.contracts.operator import OperatorContext, Snapshot
from dataflow.contracts.process_state import ListState, MapState, SharedMap, StateDeclaration, ValueState
from dataflow.contracts.source import Json
from dataflow.errors import CheckpointMismatch
from dataflow.planning.process_specs import Process
from dataflow.state.dictionaries import key_schema
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState
from operators.aggregation.restoring import restoring
from operators.process.list_store import Lists
from operators.process.map_store import Maps
from operators.process.shared import SharedValues
from operators.process.stores import Codec, ExpiringValues, MainValues, Store, free_name

__all__ = ["States"]

MAIN = "state"
"""The log of the main state in a snapshot; those of the others begin with "state" or "shared" and have a name."""
_NONE_SET = 1  # the flag of a record without a value in any column, apart from the sign


class States:
    """The state of one subtask.

    Attributes:
        main: the state with the slots that all others go by, and the timers.
        stores: the state of each declaration by name, but for shared mappings.
        shared: the shared mappings by name.
    """

    def __init__(self, context: OperatorContext, spec: Process, where: str) -> None:
        self._context = context
        self._spec = spec
        keys = key_schema(context.input_schemas[0], spec.keys)
        columns = {
            name: free_name(name, keys.names)
            for name, state in spec.states
            if _word(state) == ValueState.word and state.ttl is None
        }
        fields = [pa.field(columns[name], Codec(state.types[0]).kept) for name, state in spec.states if name in columns]
        self.main = KeyedState(keys, pa.schema(fields))
        self.stores: dict[str, Store] = {}
        self.shared: dict[str, SharedValues] = {}
        for name, state in spec.states:
            if _word(state) == SharedMap.word:
                key, value = state.types
                self.shared[name] = SharedValues(key, value, f"{where}: shared_map {name!r}")
            else:
                self.stores[name] = self._store(state, keys, columns.get(name, ""))
        self._columns = [store for store in self.stores.values() if isinstance(store, MainValues)]
        self._expiring = [store for store in self.stores.values() if store.ttl is not None]

    def _store(self, state: StateDeclaration, keys: pa.Schema, column: str) -> Store:
        match _word(state):
            case ListState.word:
                return Lists(self.main, keys, state.types[0], state.ttl)
            case MapState.word:
                entry, value = state.types
                return Maps(self.main, keys, entry, value, state.ttl)
            case _ if state.ttl is not None:
                return ExpiringValues(self.main, keys, state.types[0], state.ttl)
            case _:
                return MainValues(self.main, state.types[0], column)

    @property
    def expires(self) -> bool:
        """Whether some state has a time to live."""
        return bool(self._expiring)

    @property
    def kernels(self) -> Sequence[str]:
        """The modules with the kernels that are called."""
        stores = [module for store in self.stores.values() for module in store.kernels]
        return (
            *self.main.kernels,
            *stores,
            *[each for shared in self.shared.values() for each in shared.state.kernels],
        )

    def drop_empty(self, slots: Slots) -> None:
        """Remove the values of ``slots`` in the main state that have no column; a key without timers goes with it."""
        if not any([store.wrote_null for store in self._columns]):
            return
        for store in self._columns:
            store.wrote_null = False
        flags = self.main.records[slots, 0]
        self.main.clear(slots[(flags < 0) & ((flags & (2**63 - 1)) <= _NONE_SET)])

    def expire(self, now: int, limit: int) -> None:
        """Remove some of what has expired."""
        for store in self._expiring:
            store.expire(now, limit)

    # --- checkpoints

    def snapshot(self, watermark: int | None) -> Snapshot:
        """Return the state now."""
        values: dict[str, Json] = {"states": self._spec.described(), "watermark": watermark}
        return Snapshot(values, logs=self._logs)

    @property
    def _logs(self) -> dict[str, KeyedState]:
        stores = {
            f"state {name}{suffix}": state
            for name, store in self.stores.items()
            for suffix, state in store.states.items()
        }
        return {MAIN: self.main, **stores, **{f"shared {name}": each.state for name, each in self.shared.items()}}

    def restore(self, restored: Snapshot) -> None:
        """Restore what ``snapshot`` returned. Raises: CheckpointMismatch if states are declared in another way."""
        self._check(restored.values.get("states"))
        logs: Mapping[str, Any] = restored.logs
        with restoring(self._context.name):
            for name, state in self._logs.items():
                if name.startswith("shared "):
                    state.restore(logs.get(name, ()))
                else:
                    state.restore(logs.get(name, ()), self._context.key_groups, self._context.max_key_groups)
            for name, store in self.stores.items():
                store.restored(f"{self._context.name}: state {name!r}")
            for shared in self.shared.values():
                shared.restored()

    def _check(self, found: object) -> None:
        was: dict[str, Any] = found if isinstance(found, dict) else {}
        now = self._spec.described()
        problems = [
            f"{name!r} was {was[name]} and is {now[name]}"
            if name in was and name in now
            else f"{name!r}, {was[name]}, is not declared any more"
            if name in was
            else f"{name!r}, {now[name]}, is not in the checkpoint"
            for name in dict.fromkeys([*was, *now])
            if was.get(name) != now.get(name)
        ]
        if problems:
            raise CheckpointMismatch(
                f"{self._context.name}: the states of the checkpoint do not fit {self._spec.label}: "
                f"{'; '.join(problems)}; declare them as they were, or give the operator another name= to begin anew"
            )


def _word(state: StateDeclaration) -> str:
    """Return the kind of a declaration. Its class may be a second copy, if a test collected its module."""
    return state.word
