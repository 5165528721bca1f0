"""Kernels of the aggregates that choose a row and keep its value: by the order of another column, or of arrival.

A record has the word of the order, as an ``EXTREME`` keeps it (``operators.kernels.aggregate``), and behind it that of
the value. Rows where either is null are not looked at.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types

from dataflow.state.kernels.words import RI32, RI64, RU8, valid
from operators.kernels.aggregate import READ_RECORDS, RECORDS

__all__ = ["fold_choice", "merge_choice"]

INT = types.int64


@njit(
    types.void(RECORDS, RI32, RI64, RU8, INT, RI64, RU8, INT, INT, INT, INT, INT, INT),
    nogil=True,
    cache=True,
)
def fold_choice(
    records: Any,
    slots: Any,
    values: Any,
    value_bits: Any,
    value_first: Any,
    orders: Any,
    order_bits: Any,
    order_first: Any,
    word: Any,
    flag: Any,
    flip: Any,
    mask: Any,
    latest: Any,
) -> None:
    """Keep the value of the greatest order: of equal ones the first, or with ``latest`` = 1 the last.

    Empty ``orders`` are all equal. Bitmaps are as in Arrow, or empty; ``flip`` and ``mask`` are those of an EXTREME.
    """
    at = types.uint64(word)
    for i in range(slots.size):
        if value_bits.size != 0 and not valid(value_bits, value_first + i):
            continue
        if order_bits.size != 0 and not valid(order_bits, order_first + i):
            continue
        order = types.int64(0)
        if orders.size != 0:
            order = orders[i] ^ flip ^ ((orders[i] >> 63) & mask)
        slot = types.uint64(slots[i])
        held = records[slot, at]
        if records[slot, 0] & flag == 0 or order > held or (latest == 1 and order == held):
            records[slot, 0] |= flag
            records[slot, at] = order
            records[slot, at + types.uint64(1)] = values[i]


@njit(types.void(RECORDS, RI32, READ_RECORDS, INT, INT, INT), nogil=True, cache=True)
def merge_choice(records: Any, slots: Any, partials: Any, word: Any, flag: Any, latest: Any) -> None:
    """As ``fold_choice`` for what other records chose."""
    for i in range(slots.size):
        if partials[i, 0] & flag == 0:
            continue
        slot = types.uint64(slots[i])
        order = partials[i, word]
        held = records[slot, word]
        if records[slot, 0] & flag == 0 or order > held or (latest == 1 and order == held):
            records[slot, 0] |= flag
            records[slot, word] = order
            records[slot, word + 1] = partials[i, word + 1]
