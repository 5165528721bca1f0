"""The loops around the functions of an aggregate kernel, each made for one function.

Their ``table`` is a view of the records as the state's type; a function receives a slice of it as its state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import from_dtype, njit, types

from dataflow.state.kernels.words import READ_RECORDS, RECORDS, RI32, RI64, RU8, WI64, valid

__all__ = ["finish_loop", "fold_loop", "merge_loop"]

INT = types.int64


def compiled(function: Callable[..., Any], *arguments: Any) -> tuple[Any, Any]:
    """Return the function compiled for arguments of these types, and its result type."""
    made = njit(function, nogil=True, error_model="numpy")
    made.compile(arguments)
    return made, made.nopython_signatures[0].return_type


def _check_in_place(found: Any) -> None:
    if found is not types.none:
        raise TypeError(f"it returns {found}, but must change the state in place and return nothing")


def fold_loop(function: Callable[..., Any], state: type[np.generic], value: type[np.generic]) -> Any:
    """Return ``loop(records, slots, column, bits, first, word, width, flag)``; empty ``bits``: no nulls."""
    state_type, value_type = from_dtype(np.dtype(state)), from_dtype(np.dtype(value))
    step, found = compiled(function, state_type[::1], value_type)
    _check_in_place(found)

    @njit(types.void(RECORDS, RI32, RI64, RU8, INT, INT, INT, INT), nogil=True, error_model="numpy")
    def loop(records: Any, slots: Any, column: Any, bits: Any, first: Any, word: Any, width: Any, flag: Any) -> None:
        table = records.view(state_type)
        values = column.view(value_type)
        for i in range(slots.size):
            if bits.size != 0 and not valid(bits, first + i):
                continue
            slot = types.uint64(slots[i])
            records[slot, 0] |= flag
            step(table[slot, word : word + width], values[i])

    return loop


def merge_loop(function: Callable[..., Any], state: type[np.generic], value: type[np.generic]) -> Any:
    """Return ``loop(records, slots, partials, word, width, flag)``; a record without values copies the state."""
    state_type = from_dtype(np.dtype(state))
    merge, found = compiled(function, state_type[::1], state_type[::1])
    _check_in_place(found)

    @njit(types.void(RECORDS, RI32, READ_RECORDS, INT, INT, INT), nogil=True, error_model="numpy")
    def loop(records: Any, slots: Any, partials: Any, word: Any, width: Any, flag: Any) -> None:
        table = records.view(state_type)
        others = partials.copy().view(state_type)  # a function may write to its arguments
        for i in range(slots.size):
            if partials[i, 0] & flag == 0:
                continue
            slot = types.uint64(slots[i])
            if records[slot, 0] & flag == 0:
                records[slot, 0] |= flag
                for k in range(word, word + width):
                    records[slot, k] = partials[i, k]
            else:
                merge(table[slot, word : word + width], others[i, word : word + width])

    return loop


def finish_loop(function: Callable[..., Any], state: type[np.generic], value: type[np.generic]) -> Any:
    """Return ``loop(records, word, width, flag, out)``, which writes each result, where ``flag``, as a word."""
    state_type, value_type = from_dtype(np.dtype(state)), from_dtype(np.dtype(value))
    finish, found = compiled(function, state_type[::1])
    whole = isinstance(found, types.Integer | types.Boolean)
    if not whole and not (isinstance(found, types.Float) and value is np.float64):
        raise TypeError(f"it returns {found}, expected {value_type}")

    @njit(types.void(READ_RECORDS, INT, INT, INT, WI64), nogil=True, error_model="numpy")
    def loop(records: Any, word: Any, width: Any, flag: Any, out: Any) -> None:
        table = records.copy().view(state_type)
        results = out.view(value_type)
        for i in range(out.size):
            if records[i, 0] & flag != 0:
                results[i] = finish(table[i, word : word + width])

    return loop
