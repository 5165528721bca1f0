"""The rows that an aggregate with signed changes has shown: what it takes back when a row changes.

The row of a key is kept only from the first change after an emission to the next emission. A flag of its record
(``operators.aggregation.layout.SHOWN``) says that it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array, to_numbers
from dataflow.state.arrays import Mask, Numbers, fills_word, fresh, from_words, is_word, words
from dataflow.state.index import Slots
from operators.aggregation.records import Records

__all__ = ["ShownRows", "differ", "signed_rows"]

_AT_ONCE = 32_768
"""Keys whose changes are emitted in one batch."""


class ShownRows:
    """The shown rows of the slots that ``records`` lists as touched, as they were before they were touched.

    Call ``touch`` before rows are folded, then ``changes`` once to emit. ``present(slots)`` returns whether each slot
    has a row to show; ``naming_key(slots)`` is a context in which an error of a sum gets the key of its slot.
    """

    def __init__(
        self,
        records: Records,
        present: Callable[[Slots], Mask],
        naming_key: Callable[[Slots], AbstractContextManager[None]],
    ) -> None:
        self._records = records
        self._present = present
        self._naming_key = naming_key
        self._columns: list[list[pa.Array]] = []
        #: By touched slot: its row among those kept; -1: it was not shown.
        self._places: list[npt.NDArray[np.int64]] = []
        self._kept = 0

    def touch(self, slots: Slots) -> None:
        """List ``slots`` as touched, and keep the rows shown of those that were not."""
        new = self._records.touch(slots)
        shown = self._records.shown(new)
        self._keep(self._records.read(new[shown]), shown)

    def _keep(self, columns: list[pa.Array], shown: Mask) -> None:
        self._places.append(np.where(shown, self._kept + np.cumsum(shown) - 1, -1))
        count = int(shown.sum())
        if count:
            self._columns.append(columns)
        self._kept += count

    def changes(self) -> Iterator[tuple[Slots, list[pa.Array], npt.NDArray[np.int8]]]:
        """Yield slots, columns and weights of the changed rows, the old row of a slot directly before its new one.

        Afterwards what is shown is what was yielded; touched slots are still listed.
        """
        records, touched = self._records, self._records.touched.copy()
        places = np.concatenate([*self._places, np.empty(0, np.int64)])
        assert len(places) == len(touched), f"{len(places)} slots were kept, {len(touched)} touched"
        kept = self._kept_columns()
        self._columns, self._places, self._kept = [], [], 0
        for start in range(0, len(touched), _AT_ONCE):
            yield self._changes(touched[start : start + _AT_ONCE], places[start : start + _AT_ONCE], kept)
        records.forget_touched()

    def _changes(
        self, slots: Slots, places: npt.NDArray[np.int64], kept: Sequence[pa.Array]
    ) -> tuple[Slots, list[pa.Array], npt.NDArray[np.int8]]:
        records = self._records
        gone, present = records.shown(slots), self._present(slots)  # a row that expired is not taken back
        old = [_picked(column, places[gone]) for column in kept]
        with self._naming_key(slots[present]):
            new = records.read(slots[present])
        records.show(slots, present)
        rows_of_slot, columns, weights = signed_rows(old, gone, new, present)
        return np.repeat(slots, rows_of_slot), columns, weights

    def _kept_columns(self) -> list[pa.Array]:
        if not self._columns:
            return self._records.read(np.empty(0, np.int32))
        return [pa.concat_arrays(column) for column in zip(*self._columns, strict=True)]

    # --- checkpoints

    def snapshot(self) -> tuple[Slots, list[pa.Array]]:
        """Return the slots whose rows are kept, and these rows."""
        places = np.concatenate([*self._places, np.empty(0, np.int64)])
        return self._records.touched[places >= 0], self._kept_columns()

    def restore(self, slots: Slots, columns: list[pa.Array]) -> bool:
        """Restore the rows kept of ``slots``: all touched ones that are shown. Return False if that is not so."""
        touched = self._records.touched
        order = np.argsort(touched, kind="stable")
        found = np.searchsorted(touched, slots, sorter=order)
        if len(slots) and (not len(touched) or found.max() >= len(touched)):
            return False
        at = order[found]
        if not np.array_equal(touched[at], slots) or len(np.unique(slots)) != len(slots):
            return False
        shown = np.zeros(len(touched), np.bool_)
        shown[at] = True
        if not np.array_equal(shown, self._records.shown(touched)):
            return False
        self._keep([column.take(to_array(np.argsort(at))) for column in columns], shown)
        return True


def signed_rows(
    old: Sequence[pa.Array], gone: Mask, new: Sequence[pa.Array], present: Mask
) -> tuple[Numbers, list[pa.Array], npt.NDArray[np.int8]]:
    """Return the changes of slots that had the rows ``old`` and now have the rows ``new``.

    Args:
        old: the columns of the rows that were shown, of the slots in ``gone``.
        gone: which slots had a row.
        new: the columns of the rows to show, of the slots in ``present``.
        present: which slots have a row now.

    Returns: how many changes each slot has (none if its rows are equal bit by bit), and their columns and weights: the
    old row of a slot directly before its new one.

    >>> both = np.array([True, True])
    >>> counts, columns, weights = signed_rows([pa.array([1])], np.array([False, True]), [pa.array([5, 2])], both)
    >>> counts.tolist(), columns[0].to_pylist(), weights.tolist()
    ([1, 2], [5, 1, 2], [1, -1, 1])
    """
    if not gone.any():
        return present.astype(np.int64), list(new), np.ones(int(present.sum()), np.int8)
    minus, plus = gone.copy(), present.copy()
    both = gone & present
    if both.all():  # in most emissions
        unequal = differ(old, new)
        if unequal.all():
            columns = [_alternating(a, b) for a, b in zip(old, new, strict=True)]
            return np.full(len(gone), 2), columns, np.tile(np.array([-1, 1], np.int8), len(gone))
        minus, plus = unequal, unequal
    elif both.any():
        one, other = to_array(both[gone]), to_array(both[present])
        unequal = differ([column.filter(one) for column in old], [column.filter(other) for column in new])
        same = np.flatnonzero(both)[~unequal]
        minus[same] = plus[same] = False
    counts: Numbers = minus.astype(np.int64) + plus
    first: Numbers = np.cumsum(counts) - counts
    total = int(counts.sum())
    source, weights = np.empty(total, np.int64), np.ones(total, np.int8)
    at: Numbers = first[minus]
    source[at], weights[at] = (np.cumsum(gone) - 1)[minus], -1
    at = (first + minus)[plus]
    source[at] = int(gone.sum()) + (np.cumsum(present) - 1)[plus]
    order = to_array(source)
    return counts, [pa.concat_arrays([a, b]).take(order) for a, b in zip(old, new, strict=True)], weights


def _picked(column: pa.Array, places: Numbers) -> pa.Array:
    """Return the values at ascending places: a view, if no place between them is left out."""
    count = len(places)
    if count and places[-1] - places[0] + 1 == count:
        return column.slice(places[0], count)
    return column.take(to_array(places))


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
