"""The kernel that finds the ends of rows in CSV text: a newline within quotes does not end a row.

The automaton follows Arrow's parser: a quote opens a quoted part only at the beginning of a field; inside it, two
quotes are one quote character; after it the field continues unquoted, where quotes are ordinary characters.
"""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RU8, WI64

__all__ = ["row_ends"]

BEGIN, PLAIN, QUOTED, CLOSING, ESCAPED, ESCAPED_QUOTED = range(6)
NEWLINE, RETURN = 10, 13


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
