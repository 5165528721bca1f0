"""Hashable content of states and messages, by which ``explore`` recognises a state that it has seen before."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any

from dataflow.errors import ConfigurationError

__all__ = ["content_of"]

_PLAIN = frozenset([type(None), bool, int, float, complex, str, bytes])


def content_of(value: Any) -> Hashable:
    """Return a hashable value that is equal for values with the same content; numbers of different types differ.

    Args:
        value: a state or a message. Lists, tuples, mappings, sets, dataclasses and objects with attributes are read
            recursively; objects with ``__eq__`` and ``__hash__`` are taken as they are.

    >>> content_of({"b": [1], "a": {2}}) == content_of({"a": {2}, "b": [1]}), content_of(1) == content_of(True)
    (True, False)

    Raises: ConfigurationError for an object without attributes, ``__eq__`` and ``__hash__``.
    """
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is list or kind is tuple:
        return kind, tuple([content_of(each) for each in value])
    match value:
        case list() | tuple():
            return kind, tuple([content_of(each) for each in value])
        case Mapping():
            return kind, frozenset([(content_of(key), content_of(each)) for key, each in value.items()])
        case Set():
            return kind, frozenset([content_of(each) for each in value])
    if is_dataclass(value) and not isinstance(value, type):
        return kind, tuple([content_of(getattr(value, each.name)) for each in fields(value)])
    if isinstance(value, type) or callable(value) or _compares(kind):
        return kind, value
    if hasattr(value, "__dict__"):
        return kind, content_of(vars(value))
    raise ConfigurationError(
        f"cannot compare a {type(value).__name__} by content: it has neither attributes nor __eq__ and __hash__; "
        "use plain values in states and messages, or define both methods"
    )


def _compares(kind: type) -> bool:
    """Return whether ``kind`` defines equality and hash by content."""
    return any(["__eq__" in vars(cls) for cls in kind.__mro__ if cls is not object]) and kind.__hash__ is not None
