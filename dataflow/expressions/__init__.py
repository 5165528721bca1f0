"""Column expressions: one tree for filters and projections, lowered to each engine.

>>> import pyarrow as pa
>>> batch = pa.record_batch({"price": [3, 10, None], "fee": [2, 0, 1]})
>>> cheap = (col("price") * 0.9 > 3) & ~(col("fee") == 0)
>>> cheap.evaluate(batch).to_pylist()
[False, False, None]
>>> (col("price") // col("fee")).evaluate(batch).to_pylist()
[1, None, None]
>>> when(col("fee") == 0).then("free").when(col("price") > 2).then("dear").evaluate(batch).to_pylist()
['dear', 'free', None]
>>> col("prize").dtype(batch.schema, "filter 'cheap'")
Traceback (most recent call last):
dataflow.errors.UnknownColumn: filter 'cheap': there is no column 'prize' (did you mean 'price'?); valid columns: ...

Arithmetic is defined here, once for every engine; ``tests/expressions/semantics.py`` has an example of every line:

=====================  =================================================================================================
``+ - *``              ints are computed in 64 bits: in int64, or in uint64 if one side is uint64 and the other is too,
                       or is a literal >= 0; overflow raises ``OverflowError``. A float side makes both float64, by
                       IEEE 754. Decimals grow in precision; timestamps and durations combine. Bools, text: refused
``/``                  always float64: both sides become float64 first, then IEEE: x/0 is +-inf, 0/0 is NaN
``//``                 the floor of the quotient (Python's sign). Ints: null where the divisor is 0. Floats: Python's
                       result, and for a zero divisor the result of ``/``. Not for decimals
``%``                  the remainder with the divisor's sign (Python's). Ints: null where the divisor is 0. Floats: NaN
``-x``, ``abs``        computed as 0 - x; int64's least value raises ``OverflowError``
int with float         the int is rounded to the nearest float64, in arithmetic and in comparisons
null                   an operand that is null makes the result null, in comparisons and functions, too
``& | ~``              booleans only, in Kleene's logic: null & False is False, null | True is True
comparisons            exact between ints of any width; floats by IEEE: NaN is unequal to everything, itself included,
                       and neither less nor greater; -0.0 == 0.0. False < True. Timestamps with a zone do not compare
                       with those without; text does not compare with numbers
``between``            ``(x >= lower) & (x <= upper)``
``is_in``              an OR of ``==``: null where the value is null; NaN is in no list; None may not be listed
``is_null``            nulls only; NaN is a value
``is_nan``             for ints and floats, as ``is_finite``, which is true for neither NaN nor infinity
``fill_null``          the result has the column's type if the literal fits it, else a type that holds both
``when``               each row takes the first branch whose predicate is true (null is not), else ``otherwise``, else
                       null. Lazy: a branch that a row does not take cannot raise. The type is as for ``fill_null``
``cast``               float to int truncates toward zero; ints and decimals become the nearest float; a value out of
                       range (NaN to int too) raises ``OverflowError``; text that does not parse, and a number that
                       does not fit a decimal type, ``ValueError``
                       Text is read whole, no spaces around it: ``12``, ``-1.5e3``, ``true``, ``2024-02-29``, ISO times
``cast, not strict``   the same values, and null where ``cast`` would raise
``hash``               64 bits as int64, equal on every engine and release; -0.0 hashes as 0.0, int8 as int64, all NaNs
                       as one
``round``              halves away from zero. Ints and floats become 64 bits wide; ints that do not fit raise. Floats:
                       ``x * 10**digits``, rounded, ``/ 10**digits`` (negative digits: first ``/``, then ``*``), and x
                       itself if the product is so large that it is whole. Decimals keep their scale, and get one more
                       digit in front if some are cut off
``coalesce``           ``a.fill_null(b).fill_null(c)``
narrow types           results of ``+ - * // %`` are 64 bits wide: ``.cast("int32")`` narrows, checked
dictionaries           operations see the values; comparisons and functions look at each dictionary entry once
filters                keep a row where the predicate is true: false and null drop it
=====================  =================================================================================================

Text is a sequence of Unicode characters (code points). Its type is string, large_string or a view; functions keep the
type (views become large). Patterns use a dialect in which engines agree (``expressions.patterns``); others are refused
when the expression is built:

=====================  =================================================================================================
``str.length``         the number of characters
``str.lower, upper``   each character by itself, by Unicode's simple mapping (and upper ß is ẞ): the length stays
``str.strip``          remove characters of a set at both ends: Unicode's White_Space, or those given
``str.starts_with``    and ``str.ends_with``: compare characters; every text starts and ends with the empty one
``str.contains``       whether a pattern matches anywhere; with ``literal=True`` the exact text
``str.replace_all``    replace matches, left to right, none overlapping, with plain text; a pattern that can match the
                       empty text is refused
``str.extract``        a group of the first match; null without a match, "" for a group that took no part in it
``str.split``          at plain text; empty pieces stay, and "" becomes [""]
``str.slice``          ``length`` positions from ``offset`` on, which counts from the end if it is negative; there are
                       no characters outside the text
``str.count``          occurrences of plain text, left to right, none overlapping
``concat_str``         null where one of the texts is null
=====================  =================================================================================================

Timestamps with a zone are read on its clock; the calendar is the Gregorian, also before 1582; parts are int64:

=====================  =================================================================================================
``dt.year``            ``month``, ``day``: of timestamps and dates
``dt.hour``            ``minute``, ``second``: of timestamps and times of day, also before 1970
``dt.millisecond``     and ``dt.microsecond``: the whole fraction of the second, up to 999 and 999,999
``dt.weekday``         Monday is 1, Sunday 7 (ISO 8601)
``dt.ordinal_day``     1 to 366
``dt.date``            the day, as date32
``from_epoch``         ints that count a unit since 1970-01-01 00:00 UTC, as timestamps of that unit in UTC
``dt.truncate``        down to a multiple of a length of time since 1970-01-01 00:00 + ``offset``. With a zone, by its
                       clock: an edge that it skips is at the end of the gap; one that it shows twice counts the first
                       time, or both times if the length is at most what the clock was set back by
``dt.localize``        the instants at which a zone's clock shows timestamps without a zone. One that it shows twice or
                       never raises ``ValueError``, or is the earlier or later instant (before, or at the end of, the
                       gap), or null
``dt.strftime``        text in a format of Python's codes, zeros in front, names in English; years before 1 and after
                       9999 raise ``OverflowError``
=====================  =================================================================================================

Nested values:

=====================  =================================================================================================
``list.get``           the element at a position from 0, or from the end if it is negative; null outside the list
``struct.field``       the values of one field, under its name; null where the struct is null
=====================  =================================================================================================
"""

from dataflow.expressions.aggregate_kinds import AggregateKind
from dataflow.expressions.aggregates import Aggregation, count
from dataflow.expressions.calls import coalesce, concat_str, from_epoch
from dataflow.expressions.conditionals import when
from dataflow.expressions.evaluation import compile_expression, compile_value
from dataflow.expressions.last_row import Latest, latest
from dataflow.expressions.nodes import Expr, col, lit
from dataflow.expressions.typing import output_schema

__all__ = [
    "AggregateKind",
    "Aggregation",
    "Expr",
    "Latest",
    "coalesce",
    "col",
    "compile_expression",
    "compile_value",
    "concat_str",
    "count",
    "from_epoch",
    "latest",
    "lit",
    "output_schema",
    "when",
]
