"""Names of things that live in higher storeys, resolved when they are first used.

A pipeline says ``runner="local"`` without importing a thread; ``dataflow/__init__.py`` fills the registry.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dataflow.errors import ConfigurationError, did_you_mean

__all__ = ["register", "resolve"]

_entries: dict[tuple[str, str], str] = {}


def register(kind: str, name: str, target: str) -> None:
    """Let ``resolve(kind, name)`` answer the object at ``target``, written ``module:attribute``."""
    _entries[kind, name] = target


def resolve(kind: str, name: str) -> Any:
    """The registered object, imported now.

    Raises: ConfigurationError for a name nobody registered, with those that exist.
    """
    target = _entries.get((kind, name))
    if target is None:
        names = [n for k, n in _entries if k == kind]
        raise ConfigurationError(f"there is no {kind} {name!r}{did_you_mean(name, names)}; there are {names}")
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)
