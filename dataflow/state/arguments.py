"""Checks of what operators pass to keyed state: slots and times.

Kernels read memory at the slots and times they get without a check of their own, so what is wrong is refused before.
What has the exact type costs one pass over the slots.

>>> with_key([0, 2], 3)
array([0, 2], dtype=int32)
>>> with_key(np.array([0, -1], np.int32), 3)
Traceback (most recent call last):
ValueError: slot -1 has no key: call insert for keys that may be new, or leave out rows for which find returned -1
>>> row_times(pa.array([5, 6]), 2, "now").tolist(), row_times(7, 2, "now").tolist()
([5, 6], [7])
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.state.index import Slots

__all__ = ["Times", "maybe_absent", "of_keys", "one_a_row", "one_time", "row_numbers", "row_times", "with_key"]

Times = int | npt.NDArray[np.int64]
"""A time for each row, or one for all; microseconds."""


def with_key(slots: Slots | Sequence[int], count: int) -> Slots:
    """Return ``slots`` as int32 memory.

    Raises: ValueError unless all are from 0 to ``count`` - 1; TypeError for other things than integers.
    """
    numbers = _slots(slots)
    if len(numbers) and int(numbers.view(np.uint32).max()) >= count:
        if (numbers == -1).any():
            raise ValueError(
                "slot -1 has no key: call insert for keys that may be new, or leave out rows for which find returned -1"
            )
        _check_range(numbers, count)
    return numbers


def maybe_absent(slots: Slots | Sequence[int], count: int, most: int) -> Slots:
    """Return ``slots``, of which some may be -1, as ``with_key`` does.

    If there were ``most`` slots once, those from ``count`` on had keys that are gone: -1 is returned for them.

    >>> maybe_absent([1, 4, -1], 3, 5)
    array([ 1, -1, -1], dtype=int32)
    """
    numbers = _slots(slots)
    if len(numbers):
        _check_range(numbers, max(count, most))
        if most > count:
            numbers = np.where(numbers < count, numbers, np.int32(-1))
    return numbers


def of_keys(slots: Slots) -> Slots:
    """Return the slots among ``slots``, a result of ``maybe_absent``, that are not -1, each once, ascending."""
    numbers = np.sort(slots)  # a sort of int32 is several times as fast as np.unique
    numbers = numbers[np.append(True, numbers[1:] != numbers[:-1])] if len(numbers) > 1 else numbers
    return numbers[1:] if len(numbers) and numbers[0] < 0 else numbers


def row_times(times: Any, rows: int, name: str) -> npt.NDArray[np.int64]:
    """Return times as int64 memory with an entry for each of ``rows`` rows, or one for all.

    Raises: ValueError for another number of them; TypeError for other things than integers, naming them ``name``.
    """
    if type(times) is int:
        return np.full(1, one_time(times, name), np.int64)
    if type(times) is np.ndarray and times.dtype == np.int64 and times.ndim == 1 and times.flags.c_contiguous:
        entries = times
    else:
        entries = np.atleast_1d(_integers(times, name))
    if len(entries) != rows and len(entries) != 1:
        raise ValueError(f"{name} has {len(entries)} entries for {rows} rows: give one for each row, or one for all")
    return entries


def one_time(time: Any, name: str) -> int:
    """Return one time. Raises: ValueError unless it is an int64; TypeError for other things than an integer.

    >>> one_time(np.int32(7), "upto")
    7
    """
    try:
        number = index(time)
    except TypeError:
        raise TypeError(f"{name}: expected a whole number of microseconds, got {time!r}") from None
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{name} is {number}: expected microseconds from -2**63 to 2**63 - 1")
    return number


def row_numbers(numbers: Slots | Sequence[int], count: int) -> Slots:
    """Return numbers of rows as int32 memory. Raises: as ``with_key``.

    >>> row_numbers([0, 3], 3)
    Traceback (most recent call last):
    ValueError: row 3 does not exist, there are 3: pass numbers from append, rows_between or first_rows
    """
    rows = _slots(numbers)
    if len(rows) and int(rows.view(np.uint32).max()) >= count:
        wrong = rows[rows.view(np.uint32) >= count][0]
        raise ValueError(
            f"row {wrong} does not exist, there are {count}: pass numbers from append, rows_between or first_rows"
        )
    return rows


def one_a_row(times: Any, rows: int, name: str) -> npt.NDArray[np.int64]:
    """Return times as ``row_times`` does, with an entry for each row."""
    entries = row_times(times, rows, name)
    if len(entries) != rows:
        entries = np.full(rows, entries[0], np.int64)
    return entries


def _slots(slots: Slots | Sequence[int]) -> Slots:
    if type(slots) is np.ndarray and slots.dtype == np.int32 and slots.ndim == 1 and slots.flags.c_contiguous:
        return slots
    numbers = _integers(slots, "slots")
    if numbers.ndim != 1:
        raise ValueError(f"slots are one array with an entry for each row, got {numbers.ndim} dimensions")
    if len(numbers) and not (int(numbers.min()) >= -1 and int(numbers.max()) < 2**31):
        raise ValueError(f"there are no slots from {numbers.min()} to {numbers.max()}: fetch them with find or insert")
    return numbers.astype(np.int32)


def _integers(values: Any, name: str) -> npt.NDArray[np.int64]:
    """Return the int64 array of some integers, of any integer type, numpy's or Arrow's."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        type_, nulls = values.type, values.null_count
        if nulls or not pa.types.is_integer(type_):
            raise TypeError(
                f"{name}: expected integers, got an Arrow array of {type_} with {nulls} nulls: cast or fill it"
            )
        values = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{name}: expected integers, got {type(values).__name__} of {array.dtype}: cast to int64")
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
        raise ValueError(f"{name} has {array.max()}: expected integers below 2**63")
    return np.ascontiguousarray(array, np.int64) if array.ndim else array.astype(np.int64)


def _check_range(numbers: Slots, count: int) -> None:
    lowest, highest = int(numbers.min()), int(numbers.max())
    if lowest < -1 or highest >= count:
        wrong = highest if highest >= count else lowest
        raise ValueError(f"slot {wrong} does not exist, there are {count}: fetch slots with find or insert")
