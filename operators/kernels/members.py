"""Kernels of lists of rows by key: a row is linked to the rows before and after it in the list of its key.

``records`` has a row for each key: word 1 is the first row plus one, or 0, word 2 the number of rows. ``links`` has a
row for each row: the rows before and after it, or -1.
"""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import READ_RECORDS, RECORDS, RI32, RI64, WI32

__all__ = ["link_rows", "list_rows"]

LINKS = types.int32[:, ::1]
READ_LINKS = types.Array(types.int32, 2, "C", readonly=True)


@kernel(types.void(RI32, RI32, RI64, RECORDS, LINKS))
def link_rows(slots: Any, rows: Any, changes: Any, records: Any, links: Any) -> None:
    """Add row ``rows[i]`` to the list of ``slots[i]`` if ``changes[i]`` is 1, and remove it from there if it is -1."""
    for i in range(slots.size):
        slot, row = types.int64(slots[i]), types.int64(rows[i])
        first = records[slot, 1] - 1
        if changes[i] > 0:
            links[row, 0], links[row, 1] = -1, first
            if first >= 0:
                links[first, 0] = row
            records[slot, 1] = row + 1
            records[slot, 2] += 1
        elif changes[i] < 0:
            before, after = types.int64(links[row, 0]), types.int64(links[row, 1])
            if before >= 0:
                links[before, 1] = after
            else:
                records[slot, 1] = after + 1
            if after >= 0:
                links[after, 0] = before
            records[slot, 2] -= 1


@kernel(types.void(RI32, RI64, READ_RECORDS, READ_LINKS, WI32))
def list_rows(slots: Any, offsets: Any, records: Any, links: Any, rows: Any) -> None:
    """Write the rows of each of ``slots`` from ``offsets[i]`` on; -1 has none."""
    for i in range(slots.size):
        if slots[i] < 0:
            continue
        row = records[types.int64(slots[i]), 1] - 1
        for place in range(offsets[i], offsets[i + 1]):
            rows[place] = row
            row = types.int64(links[row, 1])
