"""Kernels of the aggregates that choose a row, by the order of another column or by arrival, and store its values.

The words of a choice in a record: the order of the chosen row, as in an ``EXTREME`` (``operators.kernels.aggregate``);
the state; the values, one word a column; the number of the row by arrival, if records are merged in another order. The
state is a set of bits, 63 in each of its words: bit 0 means that the order is not null, bit c + 1 that value c is not
null. While a batch is folded, the first state word of a record that chose row i of the batch is ``~(2 * i + bit 0)``,
which is negative.
"""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import READ_RECORDS, RECORDS, RI32, RI64, RU8, WI32, WI64, valid

__all__ = ["fold_choice", "keep_values", "merge_choice"]

INT = types.int64


@kernel(INT(RECORDS, RI32, RU8, INT, RI64, RU8, INT, INT, INT, INT, INT, INT, INT, INT, WI32, WI64))
def fold_choice(
    records: Any,
    slots: Any,
    value_bits: Any,
    value_first: Any,
    orders: Any,
    order_bits: Any,
    order_first: Any,
    word: Any,
    states: Any,
    flag: Any,
    flip: Any,
    mask: Any,
    latest: Any,
    skip: Any,
    chosen_slots: Any,
    chosen_rows: Any,
) -> Any:
    """Choose the row with the greatest order: among equal ones the first, or with ``latest`` = 1 the last.

    Empty ``orders`` mean that all are equal. A null order is below all others; with ``skip`` = 1 such rows are skipped.
    Rows that are null by ``value_bits`` are always skipped. Bitmaps are as in Arrow, or empty; ``flip`` and ``mask``
    are those of an EXTREME. Writes the slots whose record chose a row of the batch to ``chosen_slots``, the rows to
    ``chosen_rows``, and returns how many. The state of these records, ``states`` words, is then bit 0 alone.
    """
    at = types.uint64(word)
    state = types.uint64(word + 1)
    for i in range(slots.size):
        if value_bits.size != 0 and not valid(value_bits, value_first + i):
            continue
        order, ordered = types.int64(0), types.int64(0)
        if orders.size != 0:
            if order_bits.size == 0 or valid(order_bits, order_first + i):
                order, ordered = orders[i] ^ flip ^ ((orders[i] >> 63) & mask), types.int64(1)
            elif skip == 1:
                continue
        slot = types.uint64(slots[i])
        better = records[slot, 0] & flag == 0
        if not better:
            held = records[slot, at]
            bits = records[slot, state]
            held_ordered = (bits if bits >= 0 else ~bits) & 1
            better = ordered > held_ordered or (
                ordered == held_ordered and (order > held or (latest == 1 and order == held))
            )
        if better:
            records[slot, 0] |= flag
            records[slot, at] = order
            records[slot, state] = ~(2 * i + ordered)
    count = 0
    for i in range(slots.size):
        slot = types.uint64(slots[i])
        bits = records[slot, state]
        if bits < 0 and ~bits >> 1 == i:
            records[slot, state] = ~bits & 1
            for more in range(1, states):
                records[slot, state + types.uint64(more)] = 0
            chosen_slots[count] = slots[i]
            chosen_rows[count] = i
            count += 1
    return count


@kernel(types.void(RECORDS, RI32, RI64, RI64, RU8, INT, INT, INT, INT))
def keep_values(
    records: Any, slots: Any, rows: Any, values: Any, bits: Any, first: Any, word: Any, state: Any, mask: Any
) -> None:
    """Store value ``rows[i]`` of the batch in the record of ``slots[i]``; set ``mask`` if it is not null."""
    at, flags = types.uint64(word), types.uint64(state)
    for i in range(slots.size):
        slot = types.uint64(slots[i])
        records[slot, at] = values[rows[i]]
        if bits.size == 0 or valid(bits, first + rows[i]):
            records[slot, flags] |= mask


@kernel(types.void(RECORDS, RI32, READ_RECORDS, INT, INT, INT, INT, INT))
def merge_choice(
    records: Any, slots: Any, partials: Any, word: Any, stop: Any, arrival: Any, flag: Any, latest: Any
) -> None:
    """Choose between the row of each record and the row of ``partials``; copies words ``word`` to ``stop``.

    The row of ``partials`` is the later one, or the one with the greater word ``arrival``; -1: there is no such word.
    """
    at = types.uint64(word)
    state = types.uint64(word + 1)
    for i in range(slots.size):
        if partials[i, 0] & flag == 0:
            continue
        slot = types.uint64(slots[i])
        better = records[slot, 0] & flag == 0
        if not better:
            order, ordered = partials[i, at], partials[i, state] & 1
            held, held_ordered = records[slot, at], records[slot, state] & 1
            is_later = types.int64(1)
            if arrival >= 0:
                number = types.uint64(arrival)
                is_later = types.int64(partials[i, number] >= records[slot, number])
            better = ordered > held_ordered or (
                ordered == held_ordered and (order > held or (latest == is_later and order == held))
            )
        if better:
            records[slot, 0] |= flag
            for w in range(word, stop):
                records[slot, types.uint64(w)] = partials[i, types.uint64(w)]
