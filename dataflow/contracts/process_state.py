"""Declarations of the state of process functions: what is kept for each key, and what all subtasks share.

A declaration is an attribute of the class. The engine replaces it in each subtask's instance by a handle of the same
name, which reads and writes the state of the key at hand (`KeyedProcess`) or of a column of slots (`BatchProcess`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from dataflow.clock import Duration, exact_duration_text, microseconds
from dataflow.errors import ConfigurationError, GraphError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ListState", "MapState", "SharedMap", "StateDeclaration", "ValueState"]
__all__ += ["list_state", "map_state", "shared_map", "value_state"]


class StateDeclaration:
    """The declaration of one state.

    ``word`` is the function that makes it, ``change`` the call that changes the state; ``types`` are its Arrow types.
    """

    is_declared_state = True
    word = ""
    change = ""
    ttl: int | None = None

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        raise NotImplementedError

    def described(self) -> str:
        """Return the declaration as text. Checkpoints hold it, so it says all that the stored state depends on."""
        ttl = "" if self.ttl is None else f", ttl={exact_duration_text(self.ttl)!r}"
        return f"{self.word}({', '.join(map(str, self.types))}{ttl})"

    def __repr__(self) -> str:
        return self.described()

    def _unbound(self, *arguments: Any, **options: Any) -> NoReturn:
        raise GraphError(
            f"{self.described()} is a declaration: state is there while the engine calls process() and on_timer() of "
            "the instance that it made, not in the constructor"
        )


@dataclass(frozen=True, repr=False)
class ValueState(StateDeclaration):
    """One value for each key. See `value_state`."""

    type: pa.DataType
    ttl: int | None = None
    word = "value_state"
    change = "set(value)"

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (self.type,)

    def get(self, default: Any = None) -> Any:
        """Return the value of the key, or ``default``. Of a `BatchProcess`: ``get(slots)`` returns an Arrow array."""
        self._unbound()

    def set(self, *values: Any) -> None:
        """Write the value of the key. Of a `BatchProcess`: ``set(slots, values)``; the last of equal slots counts."""
        self._unbound()

    def clear(self, *slots: Any) -> None:
        """Remove the value of the key. Of a `BatchProcess`: ``clear(slots)``."""
        self._unbound()


@dataclass(frozen=True, repr=False)
class ListState(StateDeclaration):
    """A list for each key. See `list_state`."""

    type: pa.DataType
    ttl: int | None = None
    word = "list_state"
    change = "append(value)"

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (self.type,)

    def get(self, *slots: Any) -> Any:
        """Return the list of the key. Of a `BatchProcess`: ``get(slots)`` returns an Arrow array of lists."""
        self._unbound()

    def append(self, *values: Any) -> None:
        """Append a value to the list of the key. Of a `BatchProcess`: ``append(slots, values)``."""
        self._unbound()

    def extend(self, *values: Any) -> None:
        """Append several values to the list of the key."""
        self._unbound()

    def clear(self, *slots: Any) -> None:
        """Empty the list of the key. Of a `BatchProcess`: ``clear(slots)``."""
        self._unbound()


@dataclass(frozen=True, repr=False)
class MapState(StateDeclaration):
    """A mapping for each key. See `map_state`."""

    key: pa.DataType
    value: pa.DataType
    ttl: int | None = None
    word = "map_state"
    change = "put(key, value)"

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (self.key, self.value)

    def get(self, *arguments: Any) -> Any:
        """Return the value of ``key``, or a default. Of a `BatchProcess`: ``get(slots, keys)`` returns an array."""
        self._unbound()

    def put(self, *arguments: Any) -> None:
        """Write the value of ``key``. Of a `BatchProcess`: ``put(slots, keys, values)``."""
        self._unbound()

    def remove(self, *arguments: Any) -> None:
        """Remove the entry of ``key``, if there is one. Of a `BatchProcess`: ``remove(slots, keys)``."""
        self._unbound()

    def items(self, *slots: Any) -> Any:
        """Return all entries. Of a `BatchProcess`: ``items(slots)`` returns an Arrow array of maps."""
        self._unbound()

    def clear(self, *slots: Any) -> None:
        """Remove all entries. Of a `BatchProcess`: ``clear(slots)``."""
        self._unbound()


@dataclass(frozen=True, repr=False)
class SharedMap(StateDeclaration):
    """A mapping that does not depend on the key. See `shared_map`."""

    key: pa.DataType
    value: pa.DataType
    word = "shared_map"
    change = "put(key, value)"

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (self.key, self.value)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of ``key``, or ``default``."""
        self._unbound()

    def put(self, key: Any, value: Any) -> None:
        """Write the value of ``key``; only in ``process_broadcast``."""
        self._unbound()

    def remove(self, key: Any) -> None:
        """Remove the entry of ``key``, if there is one; only in ``process_broadcast``."""
        self._unbound()

    def items(self) -> Any:
        """Return all entries, as a list of pairs, in the order in which their keys came."""
        self._unbound()


def value_state(type: pa.DataType, *, ttl: Duration | None = None) -> ValueState:
    """Declare one value for each key, as an attribute of a class of process functions.

    In a `KeyedProcess`: ``get(default=None)``, ``set(value)``, ``clear()``; to set None clears. In a `BatchProcess`:
    ``get(slots)``, an Arrow array with null where there is no value, ``set(slots, values)``, ``clear(slots)``.

    Args:
        type: the Arrow type of the value. A value that does not fit it is an error; nothing is cut off.
        ttl: how long a value is there after it was last set, by event time if the stream has it, else by the clock.
            None: until it is cleared.

    Raises: ConfigurationError for a wrong type or duration.

    >>> import pyarrow as pa, dataflow as flow
    >>> flow.value_state(pa.int64(), ttl="1d")
    value_state(int64, ttl='1d')
    """
    return ValueState(_checked(type, "value_state"), _length(ttl, "value_state"))


def list_state(type: pa.DataType, *, ttl: Duration | None = None) -> ListState:
    """Declare a list for each key, as an attribute of a class of process functions.

    In a `KeyedProcess`: ``get()`` returns a list, empty if there is nothing; ``append(value)``, ``extend(values)``,
    ``clear()``. In a `BatchProcess`: ``get(slots)`` returns an Arrow array of lists, ``append(slots, values)`` appends
    one value for each slot, ``clear(slots)``.

    Args:
        type: the Arrow type of the elements, which may be null.
        ttl: how long a list is there after the last ``append`` or ``extend``, see `value_state`.

    Raises: ConfigurationError for a wrong type or duration.

    >>> import pyarrow as pa, dataflow as flow
    >>> flow.list_state(pa.string())
    list_state(string)
    """
    return ListState(_checked(type, "list_state"), _length(ttl, "list_state"))


def map_state(key: pa.DataType, value: pa.DataType, *, ttl: Duration | None = None) -> MapState:
    """Declare a mapping for each key, as an attribute of a class of process functions.

    In a `KeyedProcess`: ``get(key, default=None)``, ``put(key, value)``, ``remove(key)``, ``items()``, a list of pairs
    in no particular order, ``clear()``. In a `BatchProcess`: ``get(slots, keys)``, ``put(slots, keys, values)``,
    ``remove(slots, keys)``, ``items(slots)``, an Arrow array of maps, ``clear(slots)``.

    Args:
        key: the Arrow type of the mapping's keys: a number, boolean, text, binary, time or decimal.
        value: the Arrow type of the values, which may be null.
        ttl: how long a mapping is there after the last ``put`` for its key of the stream, see `value_state`.

    Raises: ConfigurationError for a wrong type or duration.

    >>> import pyarrow as pa, dataflow as flow
    >>> flow.map_state(pa.string(), pa.int64())
    map_state(string, int64)
    """
    keys, values = _checked(key, "map_state"), _checked(value, "map_state")
    _check_map_key(keys, "map_state")
    return MapState(keys, values, _length(ttl, "map_state"))


def shared_map(key: pa.DataType, value: pa.DataType) -> SharedMap:
    """Declare a mapping that does not depend on the key; only ``process_broadcast`` can write to it.

    ``get(key, default=None)``, ``items()``; in ``process_broadcast`` also ``put(key, value)`` and ``remove(key)``. Each
    subtask has a copy of its own, and all copies are equal after the same rows of the broadcast stream.

    Args:
        key: the Arrow type of the keys: a number, boolean, text, binary, time or decimal.
        value: the Arrow type of the values, which may be null.

    Raises: ConfigurationError for a wrong type.

    >>> import pyarrow as pa, dataflow as flow
    >>> flow.shared_map(pa.string(), pa.int64())
    shared_map(string, int64)
    """
    keys, values = _checked(key, "shared_map"), _checked(value, "shared_map")
    _check_map_key(keys, "shared_map")
    return SharedMap(keys, values)


def _checked(type_: object, word: str) -> pa.DataType:
    """Return ``type_``, plain if it is an extension type. Raises: ConfigurationError unless state can have it."""
    import pyarrow as pa

    from dataflow.state.extension_types import without_extensions

    if not isinstance(type_, pa.DataType):
        raise ConfigurationError(f"{word}: expected an Arrow type such as pa.int64(), got {type_!r}")
    if pa.types.is_null(type_) or "dictionary<" in str(type_):
        raise ConfigurationError(
            f"{word}: state cannot have the type {type_}; take a type without dictionaries, such as pa.string()"
        )
    return without_extensions(type_)


def _check_map_key(type_: pa.DataType, word: str) -> None:
    from dataflow.state.arrays import is_key

    if not is_key(type_):
        raise ConfigurationError(
            f"{word}: {type_} cannot be the key of a mapping; expected a number, boolean, text, binary, time or decimal"
        )


def _length(ttl: Duration | None, word: str) -> int | None:
    if ttl is None:
        return None
    length = microseconds(ttl, f"{word}(ttl=)")
    if length == 0:
        raise ConfigurationError(f"{word}(ttl=) must be above zero; leave it out to keep the state")
    return length
