"""A registry of objects by kind and name, whose modules are imported when an object is first used.

So ``runner="local"`` in a pipeline imports no threads. ``dataflow/__init__.py`` fills the registry. ``offered`` imports
the names that a package exports in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from dataflow.errors import ConfigurationError, did_you_mean

__all__ = ["offered", "register", "resolve"]

_entries: dict[tuple[str, str], str] = {}


def register(kind: str, name: str, target: str) -> None:
    """Register the object at ``target``, written ``module:attribute``, for ``resolve(kind, name)``.

    Args:
        kind: the kind of the object, such as ``"runner"``.
        name: its name among the objects of this kind; an earlier registration is replaced.
        target: the module and the attribute, such as ``"dataflow.runners.local:LocalRunner"``.

    >>> register("example", "parts", "string:Formatter")
    >>> resolve("example", "parts").__name__
    'Formatter'
    """
    _entries[kind, name] = target


def resolve(kind: str, name: str) -> Any:
    """Import and return the registered object.

    Raises: ConfigurationError if the name is not registered, with the names that are.
    """
    target = _entries.get((kind, name))
    if target is None:
        names = [n for k, n in _entries if k == kind]
        raise ConfigurationError(f"there is no {kind} {name!r}{did_you_mean(name, names)}; there are {names}")
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def offered(package: str, homes: Mapping[str, str], name: str) -> Any:
    """Import and return an exported name of a package; for the package's ``__getattr__``.

    Args:
        package: the package's name, for the message.
        homes: for each exported name, the module that defines it.
        name: the name.

    Raises: AttributeError if the package does not export the name.

    >>> offered("example", {"Formatter": "string"}, "Formatter").__name__
    'Formatter'
    """
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(import_module(homes[name]), name)
