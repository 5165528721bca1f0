"""Functions of columns: one node for all of them, and a closed enum of the functions.

A ``Call`` holds the argument columns and the plain parameters (a pattern, a length of time). Parameters are checked
when the node is built, so engines need not check them.
"""

from __future__ import annotations

from enum import Enum

from dataflow.errors import GraphError
from dataflow.expressions.nodes import Column, Expr, FillNull, _node, _operand

__all__ = ["Call", "Function", "coalesce", "concat_str", "from_epoch"]


class Function(Enum):
    """The functions; a value is the text after the column in code. Comments list the parameters in brackets."""

    IS_NAN = "is_nan"
    IS_FINITE = "is_finite"
    HASH = "hash"
    ROUND = "round"  # [digits]

    CONCAT = "concat_str"  # [separator]
    LENGTH = "str.length"
    LOWER = "str.lower"
    UPPER = "str.upper"
    STRIP = "str.strip"  # [characters]
    STARTS_WITH = "str.starts_with"  # [prefix]
    ENDS_WITH = "str.ends_with"  # [suffix]
    CONTAINS = "str.contains"  # [pattern]
    CONTAINS_LITERAL = "str.contains, literal"  # [text]
    REPLACE_ALL = "str.replace_all"  # [pattern, plain text]
    REPLACE_ALL_LITERAL = "str.replace_all, literal"  # [text, plain text]
    EXTRACT = "str.extract"  # [pattern, group]
    SPLIT = "str.split"  # [separator]
    SLICE = "str.slice"  # [offset] or [offset, length]
    COUNT = "str.count"  # [text]

    LIST_GET = "list.get"  # [index]
    STRUCT_FIELD = "struct.field"  # [name]

    YEAR = "dt.year"
    MONTH = "dt.month"
    DAY = "dt.day"
    HOUR = "dt.hour"
    MINUTE = "dt.minute"
    SECOND = "dt.second"
    MILLISECOND = "dt.millisecond"
    MICROSECOND = "dt.microsecond"
    WEEKDAY = "dt.weekday"
    ORDINAL_DAY = "dt.ordinal_day"
    DATE = "dt.date"
    TRUNCATE = "dt.truncate"  # [every, offset], both in microseconds
    LOCALIZE = "dt.localize"  # [zone, ambiguous, missing]
    STRFTIME = "dt.strftime"  # [format]
    FROM_EPOCH = "from_epoch"  # [unit]


@_node
class Call(Expr):
    """A call of ``function`` with ``arguments`` and ``parameters``, which are plain text and ints."""

    function: Function
    arguments: tuple[Expr, ...]
    parameters: tuple[str | int, ...] = ()

    def operands(self) -> tuple[Expr, ...]:
        return self.arguments

    def kernels(self) -> tuple[str, ...]:
        own = ("dataflow.state.kernels.hashing",) if self.function is Function.HASH else ()
        return *own, *Expr.kernels(self)

    def _output_name(self) -> str | None:
        return str(self.parameters[0]) if self.function is Function.STRUCT_FIELD else Expr._output_name(self)


def concat_str(columns: list[object] | tuple[object, ...], separator: str = "") -> Expr:
    """Join texts row by row; null where one of them is null.

    Args:
        columns: text expressions and plain text. A plain str is a constant, not a column's name. Numbers and times are
            not text: ``.cast("string")`` them first.
        separator: text between the pieces.

    Raises: TypeError if ``columns`` is not a list or tuple, is empty, or holds plain text alone, which was probably
    meant as column names.

    >>> import pyarrow as pa
    >>> from dataflow.expressions import col
    >>> batch = pa.record_batch({"a": ["x", None], "b": ["y", "z"]})
    >>> concat_str([col("a"), "+", col("b")], separator=" ").evaluate(batch).to_pylist()
    ['x + y', None]
    """
    if isinstance(columns, str | bytes | Expr) or not columns:
        raise TypeError(f"concat_str takes a list of at least one column or text, got {columns!r}")
    if all([isinstance(column, str) for column in columns]):
        raise TypeError(
            f"concat_str: {columns!r} has no column, only plain text: write col({columns[0]!r}) for a column, "
            "or lit(...) if the same text is meant for all rows"
        )
    if not isinstance(separator, str):
        raise TypeError(f"concat_str: separator must be text, got {separator!r}")
    return Call(Function.CONCAT, tuple(_operand(column) for column in columns), (separator,))


def coalesce(*columns: object) -> Expr:
    """Return the first value of each row that is not null; null if all of them are.

    ``coalesce(a, b, c)`` is ``a.fill_null(b).fill_null(c)``.

    Args:
        columns: expressions and plain values. A plain str is a constant, not a column's name.

    Raises: TypeError if no column is given, or plain text alone, which was probably meant as column names.

    >>> import pyarrow as pa
    >>> from dataflow.expressions import col
    >>> batch = pa.record_batch({"a": [None, 1, None], "b": [2, 3, None]})
    >>> coalesce(col("a"), col("b"), 0).evaluate(batch).to_pylist()
    [2, 1, 0]
    """
    if not columns:
        raise TypeError("coalesce takes at least one column")
    if all([isinstance(column, str) for column in columns]):
        raise TypeError(
            f"coalesce: {columns!r} has no column, only plain text: write col({columns[0]!r}) for a column, "
            "or lit(...) if the same text is meant for all rows"
        )
    first, *others = (_operand(column) for column in columns)
    for other in others:
        first = FillNull(first, other)
    return first


def from_epoch(column: str | Expr, unit: str) -> Expr:
    """Return whole numbers of ``unit`` since 1970-01-01 00:00 UTC as timestamps of type ``timestamp[unit, tz=UTC]``.

    A ``cast`` to a timestamp reads a number in the timestamp's own unit, so ``cast("timestamp[us]")`` turns seconds
    into times of January 1970.

    Args:
        column: the name of an integer column, or an integer expression. Null stays null.
        unit: the unit of the numbers: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``.

    Raises: GraphError for another unit; TypeError if ``column`` is neither text nor an expression; SchemaMismatch, when
    it is used, if the column is not of integers; OverflowError, while the job runs, for a uint64 above int64.

    >>> import pyarrow as pa
    >>> batch = pa.record_batch({"at": [1_700_000_000, -1, None]})
    >>> [str(time) for time in from_epoch("at", "s").evaluate(batch)]
    ['2023-11-14 22:13:20+00:00', '1969-12-31 23:59:59+00:00', 'None']
    """
    if unit not in ("s", "ms", "us", "ns"):
        raise GraphError(f"from_epoch: unit must be 's', 'ms', 'us' or 'ns', got {unit!r}")
    if not isinstance(column, str | Expr):
        raise TypeError(f"from_epoch takes a column's name or an expression, got {column!r}")
    return Call(Function.FROM_EPOCH, (Column(column) if isinstance(column, str) else column,), (unit,))
