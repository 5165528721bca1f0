"""Logical nodes and edges: what the user's words build, and what every engine reads."""

from __future__ import annotations

from enum import Enum

__all__ = ["Emit"]


class Emit(Enum):
    """When a keyed aggregate emits."""

    UPDATES = "updates"
    FINAL = "final"
