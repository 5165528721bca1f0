"""``col(name).str``: functions of text, which is a sequence of Unicode characters (code points).

>>> import pyarrow as pa
>>> from dataflow.expressions import col
>>> batch = pa.record_batch({"s": ["bid-17", "Ask-4", None]})
>>> col("s").str.extract(r"^[a-z]+-([0-9]+)$").cast("int64").evaluate(batch).to_pylist()
[17, None, None]
>>> col("s").str.lower().str.split("-").evaluate(batch).to_pylist()
[['bid', '17'], ['ask', '4'], None]
"""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.errors import GraphError
from dataflow.expressions.calls import Call, Function
from dataflow.expressions.nodes import Expr
from dataflow.expressions.patterns import Pattern

__all__ = ["WHITESPACE", "StringMethods"]

WHITESPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
"""The characters with Unicode's property White_Space."""


@dataclass(frozen=True, slots=True, eq=False)
class StringMethods:
    """Functions of text columns, plain or dictionary encoded; a null gives null.

    Patterns are regular expressions in a dialect that means the same on every engine: see ``expressions.patterns``.

    >>> import pyarrow as pa
    >>> from dataflow.expressions import col
    >>> col("s").str.upper().str.length().evaluate(pa.record_batch({"s": ["ab", None]})).to_pylist()
    [2, None]
    """

    _text: Expr

    def length(self) -> Expr:
        """Return the number of characters, as int64.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> col("s").str.length().evaluate(pa.record_batch({"s": ["né", "", None]})).to_pylist()
        [2, 0, None]
        """
        return Call(Function.LENGTH, (self._text,))

    def lower(self) -> Expr:
        """Return each character by itself in lower case (Unicode's simple mapping), so the length stays.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> col("s").str.lower().evaluate(pa.record_batch({"s": ["ÀB", "ÉTÉ"]})).to_pylist()
        ['àb', 'été']
        """
        return Call(Function.LOWER, (self._text,))

    def upper(self) -> Expr:
        """Return each character by itself in upper case (Unicode's simple mapping, and ẞ for ß), so the length stays.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> col("s").str.upper().evaluate(pa.record_batch({"s": ["àb", "ŉß"]})).to_pylist()
        ['ÀB', 'ŉẞ']
        """
        return Call(Function.UPPER, (self._text,))

    def strip(self, characters: str | None = None) -> Expr:
        """Return the text without ``characters`` at both ends, in any order; by default, Unicode's White_Space.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> col("s").str.strip().evaluate(pa.record_batch({"s": [" a b\\n", "xay"]})).to_pylist()
        ['a b', 'xay']
        >>> col("s").str.strip("xy").evaluate(pa.record_batch({"s": [" a b\\n", "xay"]})).to_pylist()
        [' a b\\n', 'a']
        """
        return Call(Function.STRIP, (self._text,), (WHITESPACE if characters is None else _text(characters, "strip"),))

    def starts_with(self, prefix: str) -> Expr:
        """Return whether the text begins with ``prefix``.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> col("s").str.starts_with("ab").evaluate(pa.record_batch({"s": ["abc", "a", None]})).to_pylist()
        [True, False, None]
        """
        return Call(Function.STARTS_WITH, (self._text,), (_text(prefix, "starts_with"),))

    def ends_with(self, suffix: str) -> Expr:
        """Return whether the text ends with ``suffix``.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> col("s").str.ends_with("bc").evaluate(pa.record_batch({"s": ["abc", "c", None]})).to_pylist()
        [True, False, None]
        """
        return Call(Function.ENDS_WITH, (self._text,), (_text(suffix, "ends_with"),))

    def contains(self, pattern: str, *, literal: bool = False) -> Expr:
        """Return whether ``pattern`` matches anywhere; with ``literal=True``, whether it occurs as plain text.

        Raises: GraphError for a pattern outside the dialect.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> batch = pa.record_batch({"s": ["a.c", "abc"]})
        >>> col("s").str.contains("a.c").evaluate(batch).to_pylist()
        [True, True]
        >>> col("s").str.contains("a.c", literal=True).evaluate(batch).to_pylist()
        [True, False]
        """
        if literal:
            return Call(Function.CONTAINS_LITERAL, (self._text,), (_text(pattern, "contains"),))
        return Call(Function.CONTAINS, (self._text,), (Pattern.of(pattern, "contains").text,))

    def replace_all(self, pattern: str, value: str, *, literal: bool = False) -> Expr:
        """Replace each match of ``pattern``, left to right, with ``value``, which is plain text.

        Args:
            pattern: a regular expression; with ``literal=True``, plain text.
            value: the replacement, with no references to groups.

        Raises: GraphError for a pattern outside the dialect, or one that can match the empty text.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> col("s").str.replace_all("[0-9]+", "#").evaluate(pa.record_batch({"s": ["a1b22"]})).to_pylist()
        ['a#b#']
        """
        _text(value, "replace_all")
        if literal:
            if not _text(pattern, "replace_all"):
                raise GraphError("replace_all: the text to replace is empty; give at least one character")
            return Call(Function.REPLACE_ALL_LITERAL, (self._text,), (pattern, value))
        Pattern.of(pattern, "replace_all").consuming("replace_all")
        return Call(Function.REPLACE_ALL, (self._text,), (pattern, value))

    def extract(self, pattern: str, group: int = 1) -> Expr:
        """Return the text of group ``group`` in the first match of ``pattern`` (0: all of it); null without a match.

        A group that took no part in the match gives the empty text.

        Raises: GraphError for a pattern outside the dialect, or without such a group.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> col("s").str.extract("k=([^;]*)").evaluate(pa.record_batch({"s": ["k=v;k=w", "v"]})).to_pylist()
        ['v', None]
        """
        Pattern.of(pattern, "extract").group(group, "extract")
        return Call(Function.EXTRACT, (self._text,), (pattern, int(group)))

    def split(self, separator: str) -> Expr:
        """Return a list of the pieces between occurrences of ``separator``, which is plain text; empty pieces stay.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> col("s").str.split(",").evaluate(pa.record_batch({"s": ["a,,b,", "", None]})).to_pylist()
        [['a', '', 'b', ''], [''], None]
        """
        if not _text(separator, "split"):
            raise GraphError("split: the separator is empty; give at least one character")
        return Call(Function.SPLIT, (self._text,), (separator,))

    def slice(self, offset: int, length: int | None = None) -> Expr:
        """Return the ``length`` characters from position ``offset`` on, without those outside the text.

        Args:
            offset: the first position, from 0; a negative one counts from the end, -1 being the last character. Before
                the beginning there are no characters: ``"ab".slice(-3, 2)`` is ``"a"``.
            length: how many positions; None: all to the end.

        Raises: TypeError if one of them is no int; GraphError if ``length`` is negative, or one does not fit 32 bits.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> batch = pa.record_batch({"s": ["né😀x", "a", None]})
        >>> col("s").str.slice(1, 2).evaluate(batch).to_pylist(), col("s").str.slice(-2).evaluate(batch).to_pylist()
        (['é😀', '', None], ['😀x', 'a', None])
        """
        numbers = (offset,) if length is None else (offset, length)
        for number in numbers:
            if type(number) is not int:
                raise TypeError(f"slice takes whole numbers, the same for every row, got {number!r}")
            if not -(2**31) < number < 2**31 - 1:
                raise GraphError(f"slice: {number} does not fit 32 bits")
        if length is not None and length < 0:
            raise GraphError(f"slice: length must not be negative, got {length}")
        return Call(Function.SLICE, (self._text,), numbers)

    def count(self, text: str) -> Expr:
        """Return how often ``text`` occurs, from left to right and without overlaps, as int64.

        Raises: TypeError if it is no text; GraphError if it is empty.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> col("s").str.count("aa").evaluate(pa.record_batch({"s": ["aaaaa", "b", None]})).to_pylist()
        [2, 0, None]
        """
        if not _text(text, "count"):
            raise GraphError("count: the text to count is empty; give at least one character")
        return Call(Function.COUNT, (self._text,), (text,))


def _text(value: object, word: str) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"{word} takes plain text, the same for every row, got {value!r}")
