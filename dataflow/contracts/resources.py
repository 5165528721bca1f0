"""Operators of the library that must be closed because a user's function, which they call, may hold resources."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["MayHoldResources"]


@runtime_checkable
class MayHoldResources(Protocol):
    """An operator that knows whether it must be closed. Others of the library need not be: they hold only memory."""

    @property
    def holds_resources(self) -> bool:
        """Whether ``close`` does anything that the end of the process would not do."""
        ...
