"""All state of a process function in one subtask: the main state, the stores of the declarations, and checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dataflow.contracts.declared_state import Log, Piece
from dataflow.contracts.operator import OperatorContext
from dataflow.contracts.process_state import ListState, MapState, SharedMap, StateDeclaration, ValueState
from dataflow.planning.process_specs import MAIN_STATE, Process
from dataflow.state.dictionaries import key_schema
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState
from operators.process.list_store import Lists
from operators.process.map_store import Maps
from operators.process.shared import NUMBER, SharedValues
from operators.process.stores import Codec, ExpiringValues, MainValues, Store, free_name

__all__ = ["States"]

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
        self._key_schema = keys = key_schema(context.input_schemas[0], spec.keys)
        columns = {
            name: free_name(name, keys.names)
            for name, state in spec.states
            if _word(state) == ValueState.word and state.ttl is None
        }
        fields = [Codec(state.types[0]).field(columns[name]) for name, state in spec.states if name in columns]
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

    def pieces(self) -> dict[str, Piece]:
        """Return the pieces of the state; each begins with the columns of the key, but for shared mappings."""
        keys = len(self._key_schema)
        stores = {
            f"state {name}{suffix}": Log(
                state, keys, counts=_of(state, store.counts), owners={name: _columns(state, keys)}
            )
            for name, store in self.stores.items()
            for suffix, state in store.states.items()
        }
        shared = {
            f"shared {name}": Log(each.state, 0, shared=True, counts=[NUMBER], owners={name: _columns(each.state, 0)})
            for name, each in self.shared.items()
        }
        values = {name: [store.column] for name, store in self.stores.items() if isinstance(store, MainValues)}
        return {MAIN_STATE: Log(self.main, keys, owners=values), **stores, **shared}

    def restored(self) -> None:
        """Take note that the pieces are restored."""
        for store in self.stores.values():
            store.restored()
        for shared in self.shared.values():
            shared.restored()


def _of(state: KeyedState, names: Sequence[str]) -> list[str]:
    """Return the ``names`` that are columns of a stored state; a store may have several states."""
    return [name for name in names if any([name in schema.names for schema in state.stored.values()])]


def _columns(state: KeyedState, keys: int) -> list[str]:
    """Return the columns of a stored state, after its keys, that are of the declaration and not of the engine."""
    tables = [schema for name, schema in state.stored.items() if name != "timers"]
    return list(dict.fromkeys([name for table in tables for name in table.names[keys:] if not name.startswith("/")]))


def _word(state: StateDeclaration) -> str:
    """Return the kind of a declaration. Its class may be a second copy, if a test collected its module."""
    return state.word
