"""The kernels that look at CSV text ahead of Arrow: where rows end, and numbers that an integer type would change.

The automata follow Arrow's parser: a quote opens a quoted part only at the beginning of a field; inside it, two quotes
are one quote character; after it the field continues unquoted, where quotes are ordinary characters. A newline within
quotes does not end a row.
"""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RU8, WI64

__all__ = ["has_padded_number", "may_have_padded_number", "row_ends"]

BEGIN, PLAIN, QUOTED, CLOSING, ESCAPED, ESCAPED_QUOTED = range(6)
STRETCH = 256  # bytes that are searched at once
NEWLINE, RETURN = 10, 13
SPACE, TAB, MINUS, ZERO, NINE = 32, 9, 45, 48, 57
START, SIGN, PADDING, OTHER = range(4)
"""The beginning of a field: only spaces; also a minus; also a zero; anything else."""


@kernel(types.UniTuple(types.int64, 3)(RU8, types.int64, types.int64, types.int64, WI64))
def row_ends(text: Any, delimiter: Any, quote: Any, escape: Any, ends: Any) -> Any:
    """Return the number of rows that end in ``text``, the position after the last one, and whether a quote is still
    open (1 or 0).

    ``text`` begins with a row. ``ends`` receives the positions after the first rows, as many as fit. ``quote`` and
    ``escape`` are characters, or -1 for none. A carriage return as the last byte ends no row: a newline may follow.
    """
    state = BEGIN
    rows = 0
    last = 0
    for i in range(text.size):
        c = text[i]
        if state == QUOTED:
            if c == quote:
                state = CLOSING
            elif c == escape:
                state = ESCAPED_QUOTED
            continue
        if state == ESCAPED_QUOTED:
            state = QUOTED
            continue
        if state == ESCAPED:
            state = PLAIN
            continue
        if c == quote and state in (BEGIN, CLOSING):
            state = QUOTED
        elif c == escape:
            state = ESCAPED
        elif c == delimiter:
            state = BEGIN
        elif c == NEWLINE or (c == RETURN and i + 1 < text.size and text[i + 1] != NEWLINE):
            if rows < ends.size:
                ends[rows] = i + 1
            rows += 1
            last = i + 1
            state = BEGIN
        elif c != RETURN:
            state = PLAIN
    return rows, last, int(state in (QUOTED, ESCAPED_QUOTED))


@kernel(types.boolean(RU8, types.int64, types.int64, types.int64, types.int64))
def may_be_padded(text: Any, at: Any, delimiter: Any, quote: Any, escape: Any) -> Any:
    """Return whether byte ``at`` may be a zero before another digit at the beginning of a field that is a whole number.

    Quotes and escapes may occur between the characters of a number.
    """
    size = text.size
    if at + 1 >= size or text[at] != ZERO:
        return False
    digits = 0
    for end in range(at + 1, size):
        c = text[end]
        if c in (delimiter, NEWLINE, RETURN):
            break
        if ZERO <= c <= NINE:
            digits += 1
        elif c not in (quote, escape, SPACE, TAB):
            return False
    if not digits:
        return False
    for start in range(at - 1, -1, -1):
        c = text[start]
        if c in (delimiter, NEWLINE, RETURN):
            break
        if c not in (quote, escape, SPACE, TAB, MINUS):
            return False
    return True


@kernel(types.boolean(RU8, types.uint8, types.uint8, types.uint8))
def may_have_padded_number(text: Any, delimiter: Any, quote: Any, escape: Any) -> Any:
    """Return False only if no field is a whole number with zeros in front.

    Each stretch of the text is first searched by a loop without branches, for vector units. ``quote`` and ``escape``
    are characters, or 255 for none.
    """
    size = text.size
    for base in range(0, size, STRETCH):
        hits = base == 0 or base + STRETCH + 3 >= size
        if not hits:
            older, before, zero = text[base - 2 :], text[base - 1 :], text[base:]
            after, later = text[base + 1 :], text[base + 2 :]
            for i in range(STRETCH):
                a, b, d, e = older[i], before[i], after[i], later[i]
                begins = (b == delimiter) | (b <= RETURN) | (b == quote) | (b == escape)
                began = (a == delimiter) | (a <= SPACE) | (a == quote) | (a == escape)
                begins |= ((b == SPACE) | (b == MINUS)) & began
                digit, taken_out = (d >= ZERO) & (d <= NINE), (d == quote) | (d == escape)
                goes_on = ((e >= ZERO) & (e <= NINE)) | (e == quote) | (e == escape)
                ends = (e <= SPACE) | (e == delimiter)
                hits |= (zero[i] == ZERO) & begins & ((digit & (goes_on | ends)) | (taken_out & goes_on))
        if hits:
            for at in range(base, min(base + STRETCH, size)):
                if text[at] == ZERO and may_be_padded(text, at, delimiter, quote, escape):
                    return True
    return False


@kernel(types.boolean(RU8, types.int64, types.int64, types.int64, RU8))
def has_padded_number(text: Any, delimiter: Any, quote: Any, escape: Any, watched: Any) -> Any:
    """Return whether a field of a watched column begins like a number with a zero before another digit.

    ``text`` is whole rows, and the other arguments are as for ``row_ends``. ``watched`` has a byte for each column: not
    0 if it is watched.
    """
    state = BEGIN
    read = OTHER if watched[0] == 0 else START
    column = 0
    size = text.size
    i = -1
    while i + 1 < size:
        i += 1
        if read == OTHER:  # the rest of the field does not matter
            if state == QUOTED:
                while i < size and text[i] not in (quote, escape):
                    i += 1
            elif state == PLAIN:
                while i < size and text[i] not in (delimiter, escape, NEWLINE, RETURN):
                    i += 1
            if i == size:
                break
        c = text[i]
        if state == QUOTED:
            if c == quote:
                state = CLOSING
                continue
            if c == escape:
                state = ESCAPED_QUOTED
                continue
        elif state == ESCAPED_QUOTED:
            state = QUOTED
        elif state == ESCAPED:
            state = PLAIN
        elif c == quote and state == BEGIN:
            state = QUOTED
            continue
        elif c == quote and state == CLOSING:
            state = QUOTED
            read = OTHER
            continue
        elif c == escape:
            state = ESCAPED
            continue
        elif c in (delimiter, NEWLINE, RETURN):
            state = BEGIN
            column = column + 1 if c == delimiter else 0
            read = START if column < watched.size and watched[column] else OTHER
            continue
        else:
            state = PLAIN
        if read == PADDING and ZERO <= c <= NINE:
            return True
        if c == ZERO and read in (START, SIGN):
            read = PADDING
        elif c == MINUS and read == START:
            read = SIGN
        elif not (c in (SPACE, TAB) and read == START):
            read = OTHER
    return False
