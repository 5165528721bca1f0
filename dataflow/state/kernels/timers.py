"""Kernels of timers: the linked list of each slot. ``links[t]`` is (timer before, timer after) t in its slot, or -1."""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RI32, WI32

__all__ = ["count_linked", "link_timers", "list_linked", "unlink_timers"]

LINKS = types.int32[:, ::1]


@kernel(types.void(RI32, RI32, WI32, LINKS))
def link_timers(timers: Any, slots: Any, heads: Any, links: Any) -> None:
    """Append each timer to the list of its slot."""
    for i in range(timers.size):
        before = heads[slots[i]]
        links[timers[i], 0] = before
        links[timers[i], 1] = -1
        if before >= 0:
            links[before, 1] = timers[i]
        heads[slots[i]] = timers[i]


@kernel(types.void(RI32, RI32, WI32, LINKS))
def unlink_timers(timers: Any, slots: Any, heads: Any, links: Any) -> None:
    """Take each timer out of the list of its slot."""
    for i in range(timers.size):
        before, after = links[timers[i], 0], links[timers[i], 1]
        if before >= 0:
            links[before, 1] = after
        if after >= 0:
            links[after, 0] = before
        else:
            heads[slots[i]] = before


@kernel(types.int64(RI32, RI32, LINKS))
def count_linked(slots: Any, heads: Any, links: Any) -> Any:
    """Return the number of timers of all ``slots``."""
    count = 0
    for i in range(slots.size):
        timer = heads[slots[i]]
        while timer >= 0:
            count += 1
            timer = links[timer, 0]
    return count


@kernel(types.void(RI32, RI32, LINKS, WI32))
def list_linked(slots: Any, heads: Any, links: Any, timers: Any) -> None:
    """Write the timers of all ``slots`` to ``timers``."""
    count = 0
    for i in range(slots.size):
        timer = heads[slots[i]]
        while timer >= 0:
            timers[count] = timer
            count += 1
            timer = links[timer, 0]
