"""Pictures of the documentation that are drawn by code: ``python -m docs.pictures`` draws them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from docs.pictures import barriers, layers, timelines

__all__ = ["DOCS", "PICTURES"]

DOCS: Final = Path(__file__).parents[1]

PICTURES: Final[Mapping[str, Callable[[], str]]] = {
    "barriers.svg": barriers.svg,
    "layers.svg": layers.svg,
    **{f"figures/timeline-{mode}.svg": timelines.picture_of(mode) for mode in timelines.MODES},
}
"""The function that draws each file of ``docs/``."""
