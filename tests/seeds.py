"""How much of a campaign the default run does; ``-m soak`` or a thorough Hypothesis profile does the rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

__all__ = ["in_soak", "part_of_the_examples", "seeds"]


def seeds(some: int, soak: int) -> list[Any]:
    """The seeds below ``some``, and those from there to ``soak``, which only ``-m soak`` runs."""
    return [*range(some), *in_soak(*range(some, soak))]


def in_soak(*values: Any) -> list[Any]:
    """Return ``values`` as parameters that only ``-m soak`` runs."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]


def part_of_the_examples(divisor: int) -> settings:
    """One in ``divisor`` of the examples of the Hypothesis profile: for a property of which one takes long."""
    return settings(max_examples=max(1, settings.default.max_examples // divisor))
