"""Kernels that split a batch by target: one counting pass, one scatter, one gather per column."""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RI32, RI64, RU64, WI32, WI64

__all__ = ["count_targets", "gather_wide", "gather_words", "scatter_rows"]


@kernel(types.void(RU64, RI32, WI32, WI64))
def count_targets(hashes: Any, owners: Any, targets: Any, counts: Any) -> None:
    """Write the target of each row, and add up the rows per target. ``owners`` maps a key group to its target."""
    groups = types.uint64(owners.size)
    for i in range(hashes.size):
        target = owners[((hashes[i] >> types.uint64(32)) * groups) >> types.uint64(32)]
        targets[i] = target
        counts[target] += 1


@kernel(types.void(RI32, WI64, WI32))
def scatter_rows(targets: Any, places: Any, order: Any) -> None:
    """Write each row's number to the next place of its target, so that rows of a target keep their order."""
    for i in range(targets.size):
        target = types.uint64(targets[i])
        order[places[target]] = i
        places[target] += 1


@kernel(types.void(RI64, RI32, WI64))
def gather_words(words: Any, order: Any, out: Any) -> None:
    """Copy ``words[order[i]]`` to ``out[i]``."""
    for i in range(order.size):
        out[i] = words[types.uint64(order[i])]


@kernel(types.void(types.Array(types.int64, 2, "C", readonly=True), RI32, types.int64[:, ::1]))
def gather_wide(rows: Any, order: Any, out: Any) -> None:
    """Copy ``rows[order[i]]``, of several words each, to ``out[i]``."""
    for i in range(order.size):
        row = types.uint64(order[i])
        for word in range(rows.shape[1]):
            out[i, word] = rows[row, word]
