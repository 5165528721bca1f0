"""The mappings of ``shared_map``: written by rows of the broadcast stream, the same in each subtask."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.errors import ContractViolation
from dataflow.state.keyed_state import KeyedState
from dataflow.state.parts import number_field
from operators.process.stores import Codec
from operators.process.values import Converter, canonical

__all__ = ["NUMBER", "SharedValues"]

NUMBER: Final = "number"
"""The column with the places of the keys, in the order in which they came."""


class SharedValues:
    """One mapping: in Python for reading, and in a keyed state, which is in checkpoints.

    Attributes:
        state: what is in checkpoints; its key is that of the mapping.
        is_writable: whether ``put`` and ``remove`` may be called now.
    """

    def __init__(self, key: pa.DataType, value: pa.DataType, where: str) -> None:
        self._where = where
        self._codec = Codec(value)
        self._key = Converter(key, f"{where}: key", nullable=False)
        self._value = Converter(value, f"{where}: value")
        self._schema = pa.schema([self._codec.field("value"), number_field(NUMBER)])
        self.state = KeyedState(pa.schema([pa.field("key", key)]), self._schema)
        self._entries: dict[Any, tuple[Any, Any]] = {}
        self._numbers: dict[Any, int] = {}
        self._written = 0
        self._changed: dict[Any, Any] = {}
        self.is_writable = False

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of ``key``, or ``default``."""
        entry = self._entries.get(canonical(self._key.checked(key)))
        return default if entry is None else self._value.copied(entry[1])

    def items(self) -> list[tuple[Any, Any]]:
        """Return all entries, in the order in which their keys came."""
        return [(key, self._value.copied(value)) for key, value in self._entries.values()]

    def put(self, key: Any, value: Any) -> None:
        """Write the value of ``key``."""
        self._check_writable("put")
        key, value = self._key.checked(key), self._value.checked(value)
        own = canonical(key)
        if own not in self._entries:
            self._numbers[own] = self._written
            self._written += 1
        self._entries[own] = (key, self._value.copied(value))
        self._changed[own] = key

    def remove(self, key: Any) -> None:
        """Remove the entry of ``key``, if there is one."""
        self._check_writable("remove")
        own = canonical(self._key.checked(key))
        entry = self._entries.pop(own, None)
        if entry is not None:
            del self._numbers[own]
            self._changed[own] = entry[0]

    def flush(self) -> None:
        """Write what changed into the keyed state."""
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        present = [own for own in changed if own in self._entries]
        gone = [key for own, key in changed.items() if own not in self._entries]
        if gone:
            self.state.delete(self.state.find([self._key.array(gone)]))
        if present:
            slots, _ = self.state.insert([self._key.array([changed[own] for own in present])])
            values = self._codec.encode(self._value.array([self._entries[own][1] for own in present]))
            numbers = to_array([self._numbers[own] for own in present], pa.int64())
            self.state.write(slots.copy(), pa.RecordBatch.from_arrays([values, numbers], schema=self._schema))

    def restored(self) -> None:
        """Take note that ``state`` is restored."""
        slots = self.state.slots
        stored = self.state.read(slots)
        numbers = to_numbers(stored.column(1))
        order = np.argsort(numbers, kind="stable")
        keys = self.state.keys(slots)[0].to_pylist()
        values = self._codec.decode(stored.column(0)).to_pylist()
        for at in order.tolist():
            own = canonical(keys[at])
            self._entries[own] = (keys[at], values[at])
            self._numbers[own] = int(numbers[at])
        self._written = int(numbers.max()) + 1 if len(numbers) else 0

    def _check_writable(self, method: str) -> None:
        if not self.is_writable:
            raise ContractViolation(
                f"{self._where}: {method}() is for process_broadcast alone, because all subtasks must have equal "
                "copies; keep what depends on a key in value_state, list_state or map_state"
            )
