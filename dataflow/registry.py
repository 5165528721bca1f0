"""Names of things that live elsewhere, resolved when they are first used.

A pipeline says ``runner="local"`` without importing a thread; ``dataflow/__init__.py`` fills the registry. Packages
offer names whose modules are imported when somebody asks for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from dataflow.errors import ConfigurationError, did_you_mean

__all__ = ["offered", "register", "resolve"]

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


def offered(package: str, homes: Mapping[str, str], name: str) -> Any:
    """What ``name`` is in ``package``, imported now from the module that ``homes`` says: for its ``__getattr__``.

    Raises: AttributeError for a name that it does not offer.
    """
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(import_module(homes[name]), name)
