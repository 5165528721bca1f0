"""How long calls take beside each other: runs in turns, so that both meet the same load of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

__all__ = ["times_as_long"]


def times_as_long(
    other: Callable[[], object],
    ours: Callable[[], object],
    pairs: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return how many times as long ``other`` takes as ``ours``: the median of ``pairs`` runs in turns.

    ``time.process_time`` as the ``clock`` compares the CPU time of all threads.
    """
    ratios = []
    for _ in range(pairs):
        mine = _took(ours, clock)
        ratios.append(_took(other, clock) / mine)
    return round(median(ratios), 2)


def _took(call: Callable[[], object], clock: Callable[[], float]) -> float:
    started = clock()
    call()
    return clock() - started
