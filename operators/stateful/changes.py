"""Signed changes: the old row of what changes, taken back, and its new row.

An operator that emits signed changes does three things. Before it changes rows that it has shown, it reads them. After
that it reads them again. ``changes`` emits the difference: the old rows of a slot directly before its new one, and
nothing if they are equal bit by bit. A slot is whatever has a row: the slot of a key or of a window in keyed state, or
the place of a result in a batch of results.

If several batches may change a slot before it is emitted again, ``ShownRows`` keeps the old row meanwhile, and names it
as a piece of the state. If a batch emits what it changes, the old rows need no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.declared_state import Table
from dataflow.errors import CheckpointDamaged
from dataflow.state.arrays import Mask, Numbers, fills_word, fresh, from_words, is_word, words
from dataflow.state.free_numbers import MANY
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState

__all__ = ["AT_ONCE", "Change", "ShownRows", "among", "changes", "differ"]

AT_ONCE = 32_768
"""Slots whose changes are emitted in one batch, with two rows each."""

_ROW = 28
"""The bits of a row's number that say which row of its batch it is; the others count batches."""

Change = tuple[Slots, list[pa.Array], npt.NDArray[np.int8]]
"""The slot of each row, the columns, and whether each row is added (+1) or taken back (-1)."""


class StoredRows(Protocol):
    """How rows of aggregates are stored: one column for each distinct aggregate, under what it computes."""

    @property
    def results(self) -> pa.Schema: ...

    @property
    def result_owners(self) -> Mapping[str, Sequence[str]]: ...

    def to_results(self, columns: Sequence[pa.Array]) -> list[pa.Array]: ...

    def from_results(self, columns: Sequence[pa.Array]) -> list[pa.Array]: ...


class ShownRows:
    """The rows that are shown of slots that changed: each from before its first change until the changes are emitted.

    Rows are kept as the batches that they came in.

    Args:
        state: the state that has the slots.
        keys: its key columns.
        types: the types of the columns of rows.

    >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
    >>> slots, _ = state.insert([pa.array([3, 4, 5])])
    >>> shown = ShownRows(state, pa.schema({"k": pa.int64()}), [pa.int64()])
    >>> shown.keep(slots[[0, 2]], [pa.array([30, 50])])
    >>> for slots, columns, weights in shown.changes(slots[1:], lambda slots: [pa.array([41, 51])]):
    ...     print(slots.tolist(), columns[0].to_pylist(), weights.tolist())
    [1, 2, 2] [41, 50, 51] [1, -1, 1]
    >>> shown.slots.tolist()
    [0]
    """

    def __init__(self, state: KeyedState, keys: pa.Schema, types: Sequence[pa.DataType]) -> None:
        self._state = state
        self._keys = keys
        self._empty = [pa.array([], type_) for type_ in types]
        self._next = 0  # the number of the next batch
        self._numbers = np.empty(0, np.int64)  # by slot: the number of its row; below ``_first``: it has none
        self._forget()

    def _forget(self) -> None:
        """Drop all rows. Numbers of earlier rows become invalid, so no slot need be written."""
        self._first = self._next << _ROW
        self._count = 0
        self._batches: dict[int, list[pa.Array]] = {}
        self._left: dict[int, int] = {}  # how many rows of each batch are kept

    @property
    def slots(self) -> Slots:
        """The slots that have a row, in ascending order."""
        return np.flatnonzero(self._numbers >= self._first).astype(np.int32)

    def keep(self, slots: Slots, columns: list[pa.Array]) -> None:
        """Keep row i of ``columns`` for ``slots[i]``, each once and without a row."""
        count, first = len(slots), self._next << _ROW
        if not count:
            return
        assert count < 1 << _ROW, f"a batch has {count} rows"
        self._fit()
        self._batches[self._next], self._left[self._next] = columns, count
        self._numbers[slots] = np.arange(first, first + count)
        self._next += 1
        self._count += count

    def changes(
        self, slots: Slots, read: Callable[[Slots], list[pa.Array]], present: Mask | None = None
    ) -> Iterator[Change]:
        """Yield the changes of ``slots``, each once, and drop their rows: see the function ``changes``."""
        return changes(slots, *self.take(slots), read, present)

    def take(self, slots: Slots) -> tuple[Mask, list[pa.Array]]:
        """Return whether each of ``slots``, each once, has a row, and the columns of these rows; drop them."""
        self._fit()
        numbers = self._numbers.take(slots)
        shown = numbers >= self._first
        numbers = numbers[shown]
        columns = self._read(numbers)
        if len(numbers) == self._count:
            self._forget()
            return shown, columns
        batches, counts = np.unique(numbers >> _ROW, return_counts=True)
        for batch, count in zip(batches.tolist(), counts.tolist(), strict=True):
            self._left[batch] -= count
            if not self._left[batch]:
                del self._left[batch], self._batches[batch]
        self._numbers[slots[shown]] = -1
        self._count -= len(numbers)
        return shown, columns

    def drop(self, slots: Slots) -> None:
        """Drop the rows of ``slots``, which are not to be taken back."""
        if self._count:
            self.take(np.unique(slots))

    def _fit(self) -> None:
        """Resize the numbers to the slots of the state."""
        room = len(self._state.records)
        if not room <= len(self._numbers) <= 4 * max(room, MANY):
            numbers = self._numbers[:room]
            self._numbers = np.append(numbers, np.full(2 * room - len(numbers), -1, np.int64))

    def _read(self, numbers: Numbers) -> list[pa.Array]:
        """Return the columns of kept rows by their numbers."""
        if not len(numbers):
            return self._empty
        if len(numbers) == self._count and (np.diff(numbers) > 0).all():  # in most emissions: all rows, as they came
            batches = self._batches.values()
            if sum([len(columns[0]) for columns in batches]) == self._count:
                return [_joined(parts) for parts in zip(*batches, strict=True)]
        order = np.argsort(numbers >> _ROW, kind="stable")
        touched, starts = np.unique(numbers[order] >> _ROW, return_index=True)
        taken = []
        for batch, part in zip(touched.tolist(), np.split(numbers[order], starts[1:]), strict=True):
            rows = to_array(part & ((1 << _ROW) - 1))
            taken.append([column.take(rows) for column in self._batches[batch]])
        back = to_array(np.argsort(order))
        return [pa.concat_arrays(parts).take(back) for parts in zip(*taken, strict=True)]

    # --- state

    def piece(self, deciding: int, expected: Callable[[], Slots], rows: StoredRows) -> Table:
        """Return the rows as a piece of state: the keys of their slots, and their columns.

        Args:
            deciding: how many of the key columns, the first ones, decide the key group.
            expected: returns the slots that have a row, according to the rest of the state, which is restored before.
            rows: how a checkpoint has the columns of rows.
        """
        keys = [(f"key {i}", type_) for i, type_ in enumerate(self._keys.types)]
        schema = pa.schema([*keys, *rows.results])

        def read() -> pa.Table:
            slots = self.slots
            columns = rows.to_results(self._read(self._numbers[slots]))
            return pa.Table.from_arrays([*self._state.keys(slots), *columns], schema=schema)

        def restore(table: pa.Table) -> None:
            (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
            slots = self._state.find(batch.columns[: len(self._keys)])
            if not np.array_equal(np.sort(slots), np.sort(expected())):
                raise CheckpointDamaged("the shown rows of the checkpoint belong to other keys")
            self.keep(slots, rows.from_results(batch.columns[len(self._keys) :]))

        return Table(read, restore, schema, deciding, rows.result_owners)


def changes(
    slots: Slots,
    shown: Mask | Numbers,
    old: Sequence[pa.Array],
    read: Callable[[Slots], list[pa.Array]],
    present: Mask | None = None,
) -> Iterator[Change]:
    """Yield the changes of slots, in their order, for at most ``AT_ONCE`` slots at a time.

    Args:
        slots: the slots that may have changed.
        shown: whether each of them had a row, or how many.
        old: the columns of these rows, in the order of ``slots``.
        read: returns the columns of the rows that slots have now.
        present: whether each of ``slots`` has a row now; None: all have.

    >>> slots, shown, old = np.array([7, 8, 9], np.int32), np.array([False, True, True]), [pa.array([1, 2])]
    >>> for changed, columns, weights in changes(slots, shown, old, lambda slots: [pa.array([5, 6, 2])]):
    ...     print(changed.tolist(), columns[0].to_pylist(), weights.tolist())
    [7, 8, 8] [5, 1, 6] [1, -1, 1]
    """
    done = 0
    for start in range(0, len(slots), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        chosen, had = slots[part], shown[part]
        has = np.ones(len(chosen), np.bool_) if present is None else present[part]
        count = int(had.sum())
        before = [column.slice(done, count) for column in old]
        now = read(chosen[has]) if has.any() else [column[:0] for column in before]
        yield _changed(chosen, had, before, has, now)
        done += count


def among(columns: Sequence[pa.Array]) -> Callable[[Slots], list[pa.Array]]:
    """Return a function for ``changes`` that reads from ``columns``; slots are places there, beside each other."""
    return lambda places: [column.slice(places[0], len(places)) for column in columns]


def _changed(
    slots: Slots, shown: Mask | Numbers, old: Sequence[pa.Array], present: Mask, new: Sequence[pa.Array]
) -> Change:
    """Return the changes of slots that had the rows ``old``, as ``shown`` says, and now have ``new``."""
    if not shown.any():
        return slots[present], list(new), np.ones(len(new[0]), np.int8)
    both: Mask = (shown == 1) & present
    if both.all():  # in most emissions
        unequal = differ(old, new)
        if unequal.all():
            columns = [_alternating(a, b) for a, b in zip(old, new, strict=True)]
            return np.repeat(slots, 2), columns, np.tile(np.array([-1, 1], np.int8), len(slots))
    else:
        one, other = to_array(_of_rows(both, shown)), to_array(both[present])
        unequal = differ([column.filter(one) for column in old], [column.filter(other) for column in new])
    same = np.flatnonzero(both)[~unequal]
    minus, plus = shown.astype(np.int64), present.copy()
    minus[same], plus[same] = 0, False
    counts = minus + plus
    ends = np.cumsum(counts)
    weights = np.full(int(ends[-1]), -1, np.int8)
    added = (ends - 1)[plus]
    weights[added] = 1
    source = np.empty(len(weights), np.int64)
    source[added] = len(old[0]) + (np.cumsum(present) - 1)[plus]
    source[np.flatnonzero(weights < 0)] = np.flatnonzero(_of_rows(minus > 0, shown))
    order = to_array(source)
    columns = [pa.concat_arrays([a, b]).take(order) for a, b in zip(old, new, strict=True)]
    return np.repeat(slots, counts), columns, weights


def _of_rows(values: Mask, shown: Mask | Numbers) -> Mask:
    """Return the value of the slot of each old row."""
    return values[shown] if shown.dtype == np.bool_ else np.repeat(values, shown)


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _alternating(one: pa.Array, other: pa.Array) -> pa.Array:
    """Return each value of ``one`` followed by the value of ``other`` in the same place."""
    if fills_word(one.type) and not one.null_count and not other.null_count:
        rows = fresh(np.int64, 2 * len(one))
        rows[::2], rows[1::2] = words(one), words(other)
        return from_words(rows, one.type)
    order = np.arange(2 * len(one)).reshape(2, -1).T.ravel()
    return pa.concat_arrays([one, other]).take(to_array(order))


def differ(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Mask:
    """Return for each row whether the columns of ``left`` and ``right`` differ, bit by bit.

    >>> differ([pa.array([1.0, None, float("nan")])], [pa.array([1.0, 2.0, float("nan")])]).tolist()
    [False, True, False]
    >>> differ([pa.array([[1], [2, 3], None])], [pa.array([[1], [2, 4], None])]).tolist()
    [False, True, False]
    """
    return np.logical_or.reduce([_differ(a, b) for a, b in zip(left, right, strict=True)])


def _differ(left: pa.Array, right: pa.Array) -> Mask:
    type_ = left.type
    if pa.types.is_null(type_):
        return np.zeros(len(left), np.bool_)
    if is_word(type_):
        unequal = words(left) != words(right)
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_):
        unequal = _lists_differ(left, right)
    elif pa.types.is_struct(type_):
        unequal = differ(left.flatten(), right.flatten())
    else:
        unequal = ~to_numbers(pc.equal(left, right).fill_null(True))  # noqa: FBT003
    if not left.null_count and not right.null_count:
        return unequal
    present, also = to_numbers(left.is_valid()), to_numbers(right.is_valid())
    result: Mask = (present != also) | (present & also & unequal)
    return result


def _lists_differ(left: pa.Array, right: pa.Array) -> Mask:
    lengths, others = (to_numbers(pc.list_value_length(lists).fill_null(0)) for lists in (left, right))
    unequal = lengths != others
    alike = to_array(~unequal)
    values, more = left.filter(alike).flatten(), right.filter(alike).flatten()
    rows = np.repeat(np.flatnonzero(~unequal), lengths[~unequal])
    unequal[rows[_differ(values, more)]] = True
    return unequal
