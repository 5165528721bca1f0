"""Rows of each key in the order of their ranks, in a tree for each key. Derived: checkpoints lack them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array, to_numbers, to_scalar
from dataflow.planning.chosen_row_specs import Ties
from dataflow.state.arrays import Mask, Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState
from dataflow.state.order_words import order_columns
from dataflow.state.ordered_values import Nodes, OrderedValues, OrderedView
from operators.stateful.changes import differ

__all__ = ["RankedTrees", "Tops", "tree_columns"]

_ROOT, _SIZE = 1, 2
"""Words of the record of a key: the root of its tree, and the number of its rows."""


@dataclass(frozen=True, slots=True)
class Tops:
    """The first rows of keys. ``entries`` has three columns: the key's slot, the rank, and the number of the row."""

    entries: Numbers


class RankedTrees:
    """The rows of keys by number, in order; a row counts as often as its weight says.

    Args:
        keys: the key columns.
        types: the types of the columns by which rows are ranked.
        descending: whether each of them descends.

    >>> trees = RankedTrees(pa.schema({"k": pa.int64()}), [pa.int64()], [True])
    >>> groups = trees.groups([pa.array([7, 7, 7])])
    >>> orders, rows, new = [pa.array([1, 9, 5])], np.array([10, 11, 12]), np.ones(3, np.bool_)
    >>> trees.add(groups, orders, np.arange(3), rows, np.array([1, 1, 1]), new, ~new)
    >>> trees.tops(np.unique(groups), 2, "arrival").entries.tolist()
    [[0, 1, 11], [0, 2, 12]]
    """

    def __init__(self, keys: pa.Schema, types: Sequence[pa.DataType], descending: Sequence[bool]) -> None:
        self._state = KeyedState(keys, pa.schema([]), words=2)
        self._descending = list(descending)
        order = [column.type for column in tree_columns([pa.nulls(0, type_) for type_ in types], descending)]
        self._ordered = len(order)
        self._values = OrderedValues([*order, pa.int64(), pa.int64()], word=_ROOT)

    @property
    def kernels(self) -> Sequence[str]:
        """The modules with the kernels that are called."""
        return *self._state.kernels, *self._values.kernels

    @property
    def all_groups(self) -> Slots:
        """The slots of all keys with rows."""
        return self._state.slots

    def groups(self, keys: Sequence[pa.Array]) -> Slots:
        """Return the slot of each key; those that are not known yet have no rows."""
        return self._state.insert(list(keys))[0].copy()

    def sizes(self, groups: Slots) -> Numbers:
        """Return how many rows each key has, counted as often as their weights say."""
        return self._values.view().totals(self._state.records[groups])

    def add(
        self,
        groups: Slots,
        orders: Sequence[pa.Array],
        arrivals: Numbers,
        rows: Numbers | Slots,
        weights: Numbers,
        new: Mask,
        gone: Mask,
    ) -> None:
        """Add to the weights of rows.

        Args:
            groups: the slot of the key of each row.
            orders: the columns by which rows are ranked.
            arrivals: the numbers that decide between rows with equal columns.
            rows: the number of each row, each once.
            weights: what is added to the weight of each row.
            new: whether each row was not there before.
            gone: whether the weight of each row is 0 now.
        """
        records = self._state.records
        np.add.at(records[:, _SIZE], groups, new.astype(np.int64) - gone)
        chosen = np.flatnonzero(weights)
        index = to_array(chosen)
        columns = tree_columns([order.take(index) for order in orders], self._descending)
        columns += [to_array(arrivals[chosen]), to_array(rows[chosen].astype(np.int64))]
        self._values.add(records, groups[chosen], columns, weights[chosen])

    def drop_empty(self, groups: Slots) -> None:
        """Remove those of the keys, each once, that have no rows."""
        self._state.delete(groups[self._state.records[groups, _SIZE] == 0])

    def tops(self, groups: Slots, n: int, ties: Ties) -> Tops:
        """Return the rows with ranks up to ``n`` of keys, each once, in order of ``groups`` and then of ranks."""
        view, records = self._values.view(), self._state.records[groups]
        totals = view.totals(records)
        counts = np.minimum(totals, n)
        if ties == "all":
            counts = self._with_ties(view, records, counts, totals)
        at, places = _spread(counts)
        nodes = view.ranked(records[at], places)
        ranks = places + 1
        if ties == "all":
            begins = places == 0
            begins[1:] |= self._differ(view, nodes[1:], nodes[:-1])
            numbers = np.arange(len(nodes))
            first = np.maximum.accumulate(np.where(begins, numbers, 0))
            ranks = places[first] + 1
        rows = to_numbers(view.column(self._ordered + 1, nodes))
        return Tops(np.stack([groups[at].astype(np.int64), ranks, rows], axis=1))

    def _with_ties(self, view: OrderedView, records: Numbers, counts: Numbers, totals: Numbers) -> Numbers:
        """Return ``counts``, and for each key the rows after them that equal the last one."""
        counts, most = counts.copy(), 1
        last = view.ranked(records, counts - 1)
        groups = np.flatnonzero((counts > 0) & (counts < totals))
        while len(groups):
            looked_at = np.minimum(most, totals[groups] - counts[groups])
            at, places = _spread(looked_at)
            own = groups[at]
            nodes = view.ranked(records[own], counts[own] + places)
            unequal = self._differ(view, nodes, last[own])
            equal = looked_at.copy()
            np.minimum.at(equal, at[unequal], places[unequal])
            counts[groups] += equal
            groups = groups[(equal == looked_at) & (counts[groups] < totals[groups])]
            most *= 2
        return counts

    def _differ(self, view: OrderedView, nodes: Nodes, others: Nodes) -> Mask:
        """Return whether the columns of nodes by which rows are ranked differ."""
        if not self._ordered:
            return np.zeros(len(nodes), np.bool_)
        columns = [[view.column(n, some) for n in range(self._ordered)] for some in (nodes, others)]
        return differ(columns[0], columns[1])


def tree_columns(columns: Sequence[pa.Array], descending: Sequence[bool]) -> list[pa.Array]:
    """Return columns that are in ascending order, nulls last, where ``columns`` are in the order asked for.

    >>> tree_columns([pa.array([1, None])], [True])[0].to_pylist()
    [-2, None]
    >>> [text.hex() for text in tree_columns([pa.array(["a", "ab"])], [True])[0].to_pylist()]
    ['9effff', '9e9dffff']
    """
    result: list[pa.Array] = []
    for column, is_descending in zip(columns, descending, strict=True):
        (order,) = order_columns([column.type])
        if order.is_text:
            text = column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column
            text = text.cast(pa.large_binary())
            result.append(_reversed_text(text) if is_descending else text)
            continue
        missing = to_numbers(column.is_null()) if column.null_count else None
        words = order.words(column)
        result += [to_array(~word if is_descending else word, pa.int64(), mask=missing) for word in words]
    return result


def _reversed_text(column: pa.Array) -> pa.Array:
    """Return binaries in the reverse order: complements of the bytes.

    A byte 0 becomes 0, 255 and the end is 0, 0, so that no value begins with another one; then the order of the
    complements is the reverse.
    """
    escaped = pc.replace_substring(column, pattern=b"\x00", replacement=b"\x00\xff")
    end, separator = (to_scalar(octets, pa.large_binary()) for octets in (b"\x00\x00", b""))
    ended = pc.binary_join_element_wise(escaped, end, separator)
    bitmap, offsets, data = ended.buffers()
    octets = np.empty(0, np.uint8) if data is None else ~np.frombuffer(data, np.uint8)
    return pa.Array.from_buffers(ended.type, len(ended), [bitmap, offsets, pa.py_buffer(octets)], offset=ended.offset)


def _spread(counts: Numbers) -> tuple[Numbers, Numbers]:
    """Return for each of ``counts`` its place, so many times, and beside it the numbers from 0 on."""
    at = np.repeat(np.arange(len(counts)), counts)
    return at, np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)
