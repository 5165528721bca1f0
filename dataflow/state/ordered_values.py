"""An ordered multiset of values for each record: a balanced tree, whose root is a word of the record.

A value is a row of one or more columns. Rows compare column by column: numbers and decimals by value (all NaNs are one
number, the greatest; -0.0 is 0.0), text and binary by their bytes, null after every value. Each value has a
multiplicity. It may be negative for a while, because a removal may come before its insertion; only values with a
positive one count for totals and ranks. A value of multiplicity 0 leaves, and its memory is used again.

A row costs O(log n), in a kernel, and so do the rank queries. A snapshot copies nothing: while its view exists, nodes
that it can reach do not change, and the first change of a value afterwards copies the path to it. What a copy replaces
is freed once the view is gone.

Invariant: a node that was made before the newest freeze is not written to while a view of it exists.

>>> values = OrderedValues([pa.int64()], word=0)
>>> records = np.zeros((2, 1), np.int64)
>>> values.add(records, np.array([0, 0, 1, 0], np.int32), [pa.array([7, 5, 9, None])], np.array([1, 2, 1, 1]))
>>> view = values.view()
>>> view.totals(records).tolist(), view.distinct(records).tolist()
([4, 1], [3, 1])
>>> view.column(0, view.ranked(records, np.array([2, 0]))).to_pylist()
[7, 9]
>>> offsets, nodes = view.listed(records)
>>> offsets.tolist(), view.column(0, nodes).to_pylist(), view.multiplicities(nodes).tolist()
([0, 3, 4], [5, 7, None, 9], [2, 1, 1, 1])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.errors import CheckpointDamaged
from dataflow.state.arrays import Numbers, words
from dataflow.state.columns import PIECE_BYTES, FrozenColumns
from dataflow.state.copy_on_write import Readers, Reading, Rows
from dataflow.state.free_numbers import MANY, FreeNumbers
from dataflow.state.index import Slots
from dataflow.state.interning import InternedValues, Interner
from dataflow.state.order_words import NO_TEXT, OrderColumn, order_columns

__all__ = ["Nodes", "OrderedValues", "OrderedView"]


Nodes = npt.NDArray[np.int32]
"""Numbers of nodes, each of one value; 0 is no node. Valid until the next change, those of a frozen view for ever."""

_MULTIPLICITY, _POSITIVE, _SIZES, _NULLS, _FIRST_WORD = 0, 1, 2, 6, 7  # words of a node, see the kernels
_RETIRED, _FREE, _FRESH, _GONE = 1, 2, 3, 4  # words of the state
_NODES, _ROOM, _MOST_RETIRED = 128, 64, 1 << 14
_MOST_MULTIPLICITY = 1 << 62
_FEW_MASK = (1 << 32) - 1
_NO_BYTES = InternedValues(np.zeros((0, 2), np.int64), np.empty(0, np.uint8))


class OrderedValues:
    """The multisets of many records; root is word ``word`` of a record, 0 if its multiset is empty.

    Args:
        types: the types of the columns of a value: numbers, booleans, times, decimals, text, binary.
        word: the word of a record that has the root.

    Callers must have saved the records that a call changes, if they are copied on write. One thread may call this.

    Raises: SchemaMismatch for other types.
    """

    kernels = (
        "dataflow.state.kernels.ordered_values",
        "dataflow.state.kernels.index",
        "dataflow.state.kernels.interning",
    )

    def __init__(self, types: Sequence[pa.DataType], word: int) -> None:
        self._columns = order_columns(list(types))
        self._word = word
        self._bits = np.array([bit for column in self._columns for bit in column.bits], np.int64)
        texts = [column for column in self._columns if column.is_text]
        self._codes = [column.first for column in texts]  # the words that are codes
        self._interner = Interner(counted=True) if texts else None
        self._readers = Readers()
        self._freezes = 0
        self._room = _ROOM  # the most nodes that a row may need
        self._table = _Table(_FIRST_WORD + len(self._bits))
        self._retired = np.empty(_ROOM, np.int32)

    def __len__(self) -> int:
        """Return the number of nodes in use: one for each value, and those that only frozen views may read."""
        return int(self._table.state[0] - 1 - self._table.state[_FREE])

    def add(self, records: Rows, places: Slots, columns: Sequence[pa.Array], weights: Numbers) -> None:
        """Add row i of ``columns`` to the multiset of record ``places[i]``, ``weights[i]`` times, in order of rows.

        Args:
            records: the records; their roots are changed.
            places: the record of each row.
            columns: the values, an array for each type; dictionaries are decoded.
            weights: how often each value is added; negative: it is taken away.
        """
        from dataflow.state.kernels.ordered_values import add_values

        self._readers.settle()
        fewer = self._table.shrink(len(places))
        if self._interner is not None:
            self._interner.shrink_counted(lost_many=fewer)
        values, nulls = self._encoded(columns)
        rows, interned = len(places), self._interned()
        weights = np.ascontiguousarray(weights, np.int64)
        fresh, gone = np.empty(rows, np.int32), np.empty((rows, values.shape[1]), np.int64)
        fixed = self._freezes if self._readers.has_any else 0
        state = self._table.state
        state[_FRESH] = state[_GONE] = 0
        row, before = 0, -1
        while row < rows:
            row = add_values(
                records,
                places,
                self._word,
                values,
                nulls,
                weights,
                row,
                self._freezes,
                fixed,
                self._bits,
                interned.arena,
                interned.places,
                self._table.nodes,
                state,
                self._table.free,
                self._retired,
                fresh,
                gone,
            )
            if row < rows:
                self._make_room(stuck=row == before)
                before = row
        self._retire()
        if self._interner is not None:
            self._interner.hold(self._texts(values[fresh[: state[_FRESH]]]))
            left = self._texts(gone[: state[_GONE]])
            if len(left):
                self._readers.defer(partial(self._interner.drop, left))

    def forget(self, records: Rows) -> None:
        """Free the multisets of ``records``, a copy with each record once; the caller resets the roots."""
        _, nodes = self.view().listed(records)
        if len(nodes):
            codes = self._texts(self._table.nodes[nodes, _FIRST_WORD:])
            self._readers.defer(partial(_release, self._table, self._interner, nodes, codes))

    def view(self) -> OrderedView:
        """Return the multisets of this moment, to be read before the next change."""
        return OrderedView(self._columns, self._word, self._table.nodes, self._interned())

    def freeze(self) -> OrderedView:
        """Return the multisets of this moment, to be read at any time, on any one thread.

        Frozen records have the roots. Memory that the view needs is kept until it is dropped.
        """
        self._freezes += 1
        return OrderedView(
            self._columns, self._word, self._table.nodes, self._interned(), reading=self._readers.begin()
        )

    def stored(self, names: Sequence[str]) -> list[pa.Field]:
        """Return the columns of a checkpoint: a list for each column of the values, and one of multiplicities."""
        types = [*[column.dtype for column in self._columns], pa.int64()]
        return [pa.field(name, pa.large_list(type_), nullable=False) for name, type_ in zip(names, types, strict=True)]

    def store(self) -> FrozenColumns:
        """Return the columns ``stored`` of records frozen now."""
        view = self.freeze()
        return FrozenColumns(view.lists, view.text_bytes)

    def restore(self, records: Rows, columns: Sequence[pa.Array], name: str) -> list[pa.Array]:
        """Fill the empty multisets of ``records`` with the columns ``stored``; row i is of record i.

        Returns: the values restored, an array for each column.

        Raises: CheckpointDamaged if the lists do not fit together, or a value is stored twice or with multiplicity 0.
        """
        if any([column.null_count for column in columns]):  # the offsets of null lists are arbitrary
            raise CheckpointDamaged(f"{name}: some lists of values in the checkpoint are null")
        lengths = np.diff(to_numbers(columns[-1].offsets))
        if any([not np.array_equal(np.diff(to_numbers(column.offsets)), lengths) for column in columns[:-1]]):
            raise CheckpointDamaged(f"{name}: the lists of a record in the checkpoint have different lengths")
        *values, multiplicities = [column.flatten() for column in columns]
        weights = words(multiplicities)
        if multiplicities.null_count or (weights == 0).any():
            raise CheckpointDamaged(f"{name}: values in the checkpoint have no multiplicity")
        if np.abs(weights.astype(np.float64)).sum() > _MOST_MULTIPLICITY:
            raise CheckpointDamaged(f"{name}: the multiplicities in the checkpoint exceed 62 bits")
        places = np.repeat(np.arange(len(records), dtype=np.int32), lengths)
        self.add(records, places, values, weights)
        found = int(self.view().sizes(records).sum())
        if found != len(places):
            raise CheckpointDamaged(
                f"{name}: a record has {len(places)} values in the checkpoint, but only {found} distinct ones"
            )
        return values

    def _encoded(self, columns: Sequence[pa.Array]) -> tuple[Rows, Numbers]:
        """Return the words of the rows, one row each, and the bits of their nulls."""
        arrays = [array.dictionary_decode() if pa.types.is_dictionary(array.type) else array for array in columns]
        rows = len(arrays[0])
        values, nulls = np.empty((rows, len(self._bits)), np.int64), np.zeros(rows, np.int64)
        texts = [array for column, array in zip(self._columns, arrays, strict=True) if column.is_text]
        codes = iter(self._text_codes(texts))
        for column, array in zip(self._columns, arrays, strict=True):
            own = [next(codes)] if column.is_text else column.words(array)
            for k, word in enumerate(own):
                values[:, column.first + k] = word
            if array.null_count:
                missing = to_numbers(array.is_null())
                nulls |= missing.astype(np.int64) << column.number
                if column.is_text:
                    values[missing, column.first] = NO_TEXT
        return values, nulls

    def _text_codes(self, arrays: Sequence[pa.Array]) -> list[Numbers]:
        """Return the codes of byte columns. All are interned at once, because that may drop codes without a holder."""
        if not arrays:
            return []
        assert self._interner is not None, f"{len(arrays)} byte columns without an interner"
        if len(arrays) == 1:
            return [self._interner.codes(arrays[0])]
        together = pa.concat_arrays([array.cast(pa.large_binary()) for array in arrays])
        return np.split(self._interner.codes(together), len(arrays))

    def _interned(self) -> InternedValues:
        return _NO_BYTES if self._interner is None else self._interner.values()

    def _texts(self, values: Rows) -> Numbers:
        """Return the codes in the words of ``values``, those of null left out."""
        codes = values[:, self._codes].reshape(-1)
        return codes[codes != NO_TEXT]

    def _retire(self) -> None:
        """Free the nodes that copies replaced, once nobody reads them."""
        count = int(self._table.state[_RETIRED])
        if count:
            nodes = self._retired[:count].copy()
            self._table.state[_RETIRED] = 0
            self._readers.defer(partial(_release, self._table, None, nodes, _NO_CODES))

    def _make_room(self, *, stuck: bool) -> None:
        """Make room for the nodes that a row may need; ``stuck``: there was room, and it was too small."""
        full = 2 * int(self._table.state[_RETIRED]) > len(self._retired)
        self._retire()
        self._room *= 2 if stuck else 1
        if self._room > len(self._retired) or (full and len(self._retired) < _MOST_RETIRED):
            self._retired = np.empty(max(self._room, 2 * len(self._retired)), np.int32)
        self._table.reserve(self._room)


_NO_CODES: Numbers = np.empty(0, np.int64)


class _Table:
    """The nodes, in one array, and a stack of free ones, to which kernels add others."""

    def __init__(self, width: int) -> None:
        self.nodes: Rows = np.zeros((_NODES, width), np.int64)
        self.free: Nodes = np.empty(_NODES, np.int32)
        self.state = np.array([1, 0, 0, 0, 0], np.int64)  # see the kernels
        self._changes = 0  # since the free nodes were last sorted

    def reserve(self, count: int) -> None:
        """Make room for ``count`` more nodes. Views keep the old array, in which their nodes do not change."""
        used, free = int(self.state[0]), int(self.state[_FREE])
        if len(self.nodes) - used + free >= count:
            return
        self._rebuild(max(2 * len(self.nodes), used + count))

    def shrink(self, changes: int) -> bool:
        """Give memory back if few of many nodes are in use, and no high one; return whether it was so.

        Args:
            changes: the number of values that are about to change. There is no other try before enough have.
        """
        self._changes += changes
        used = int(self.state[0])
        live = used - int(self.state[_FREE])
        if used <= MANY or 4 * live > used or 4 * self._changes < used:
            return False
        self._changes, free = 0, FreeNumbers(self.state, self.free)
        fewer = free.sort(live)
        free.prepare(used)  # nodes are not withheld: kernels free them, too
        self.free = self._stack(free.stack, len(self.nodes))
        if fewer:
            self._rebuild(max(_NODES, int(self.state[0])))
        return fewer

    def _rebuild(self, capacity: int) -> None:
        """Continue with room for ``capacity`` nodes, in other arrays."""
        used = int(self.state[0])
        nodes = np.zeros((capacity, self.nodes.shape[1]), np.int64)
        nodes[:used] = self.nodes[:used]
        self.nodes, self.free = nodes, self._stack(self.free, capacity)

    def _stack(self, nodes: Nodes, capacity: int) -> Nodes:
        """Return the free ones of ``nodes`` with room for ``capacity``."""
        free = int(self.state[_FREE])
        stack = np.empty(capacity, np.int32)
        stack[:free] = nodes[:free]
        return stack

    def release(self, nodes: Nodes) -> None:
        """Let new values have ``nodes``."""
        free = int(self.state[_FREE])
        self.free[free : free + len(nodes)] = nodes
        self.state[_FREE] += len(nodes)


def _release(table: _Table, interner: Interner | None, nodes: Nodes, codes: Numbers) -> None:
    """Free ``nodes``, and drop the ``codes`` of values that left. No method, so that there is no reference cycle."""
    table.release(nodes)
    if interner is not None:
        interner.drop(codes)


@dataclass(frozen=True, slots=True)
class OrderedView:
    """The multisets of one moment. Its methods take records with the roots of that moment, a row each."""

    columns: Sequence[OrderColumn]
    word: int
    nodes: Rows
    interned: InternedValues
    reading: Reading | None = None

    def totals(self, records: Rows) -> Numbers:
        """Return the sum of the positive multiplicities of each record."""
        totals: Numbers = self.nodes[self._roots(records), _POSITIVE]
        return totals

    def distinct(self, records: Rows) -> Numbers:
        """Return the number of values with a positive multiplicity of each record."""
        distinct: Numbers = self.nodes[self._roots(records), _SIZES] & _FEW_MASK
        return distinct

    def sizes(self, records: Rows) -> Numbers:
        """Return the number of values of each record, those with a negative multiplicity included."""
        sizes: Numbers = self.nodes[self._roots(records), _SIZES] >> 32
        return sizes

    def ranked(self, records: Rows, ranks: Numbers) -> Nodes:
        """Return each record's value of rank ``ranks[i]``, from 0; a value counts as often as its multiplicity.

        Returns: its node; 0 if the rank is negative, or not below the total.
        """
        from dataflow.state.kernels.ordered_values import seek_ranks

        nodes = np.empty(len(records), np.int32)
        seek_ranks(self._roots(records), np.ascontiguousarray(ranks, np.int64), self.nodes, nodes)
        return nodes

    def least(self, records: Rows) -> Nodes:
        """Return the least value with a positive multiplicity of each record; 0: there is none."""
        return self.ranked(records, np.zeros(len(records), np.int64))

    def greatest(self, records: Rows) -> Nodes:
        """Return the greatest value with a positive multiplicity of each record; 0: there is none."""
        return self.ranked(records, self.totals(records) - 1)

    def listed(self, records: Rows) -> tuple[Numbers, Nodes]:
        """Return all values of each record in order, also those with a negative multiplicity.

        Returns: offsets and nodes: those of record i are from ``offsets[i]`` to ``offsets[i + 1]``.
        """
        from dataflow.state.kernels.ordered_values import list_nodes

        offsets = np.zeros(len(records) + 1, np.int64)
        np.cumsum(self.sizes(records), out=offsets[1:])
        nodes = np.empty(int(offsets[-1]), np.int32)
        list_nodes(self._roots(records), self.nodes, offsets[1:], nodes)
        return offsets, nodes

    def multiplicities(self, nodes: Nodes) -> Numbers:
        """Return the multiplicity of each node's value; 0 for node 0."""
        multiplicities: Numbers = self.nodes[nodes, _MULTIPLICITY]
        return multiplicities

    def column(self, number: int, nodes: Nodes) -> pa.Array:
        """Return column ``number`` of the nodes' values; node 0 is null."""
        column = self.columns[number]
        missing = (nodes == 0) | ((self.nodes[nodes, _NULLS] >> number) & 1 == 1)
        bitmap = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
        start = _FIRST_WORD + column.first
        own = self.nodes[nodes, start : start + column.width]
        if column.is_text:
            own[missing] = 0
            return self.interned.of(np.ascontiguousarray(own[:, 0]), column.dtype, bitmap)
        return column.values(own, bitmap)

    def lists(self, records: Rows) -> list[pa.Array]:
        """Return the columns of a checkpoint, as ``OrderedValues.stored`` declares them."""
        offsets, nodes = self.listed(records)
        columns = [self.column(number, nodes) for number in range(len(self.columns))]
        arrays = [*columns, to_array(self.multiplicities(nodes))]
        return [pa.LargeListArray.from_arrays(to_array(offsets), array) for array in arrays]

    def text_bytes(self, records: Rows) -> int:
        """Return the bytes of these lists, or a number above ``PIECE_BYTES`` if they are more."""
        width = 1 + sum([column.width for column in self.columns])
        size = 8 * width * int(self.sizes(records).sum())
        texts = [column for column in self.columns if column.is_text]
        if not texts or size > PIECE_BYTES:
            return size  # there is no need to list so many values
        _, nodes = self.listed(records)
        codes = self.nodes[nodes][:, [_FIRST_WORD + column.first for column in texts]].reshape(-1)
        return size + self.interned.text_bytes(codes[codes != NO_TEXT])

    def _roots(self, records: Rows) -> Numbers:
        return np.ascontiguousarray(records[:, self.word])
