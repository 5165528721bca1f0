"""How long calls take beside each other: runs in turns, so that both meet the same load of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

__all__ = ["times_as_long"]


def times_as_long(other: Callable[[], object], ours: Callable[[], object], pairs: int) -> float:
    """Return how many times as long ``other`` takes as ``ours``: the median of ``pairs`` runs in turns."""
    ratios = []
    for _ in range(pairs):
        mine = _took(ours)
        ratios.append(_took(other) / mine)
    return round(median(ratios), 2)


def _took(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
