"""Column expressions: one tree for filters and projections, lowered to each engine.

>>> import pyarrow as pa
>>> batch = pa.record_batch({"price": [3, 10, None], "fee": [2, 0, 1]})
>>> cheap = (col("price") * 0.9 > 3) & ~(col("fee") == 0)
>>> cheap.evaluate(batch).to_pylist()
[False, False, None]
>>> (col("price") // col("fee")).evaluate(batch).to_pylist()
[1, None, None]
>>> col("prize").dtype(batch.schema, "filter 'cheap'")
Traceback (most recent call last):
dataflow.errors.UnknownColumn: filter 'cheap': there is no column 'prize' (did you mean 'price'?); valid columns: ...

Arithmetic is defined here, once for every engine:

====================  ==================================================================================================
``+ - *``             ints are computed in 64 bits: in int64, or in uint64 where a side is uint64 and the other is too,
                      or is a literal >= 0; overflow raises ``OverflowError``. A float side makes both float64, by
                      IEEE 754. Decimals grow in precision; timestamps and durations combine. Bools, text: refused
``/``                 always float64: both sides become float64 first, then IEEE: x/0 is +-inf, 0/0 is NaN
``//``                the floor of the quotient (Python's sign). Ints: null where the divisor is 0. Floats: Python's
                      result, and by zero that of ``/``. Not for decimals
``%``                 the remainder with the divisor's sign (Python's). Ints: null where the divisor is 0. Floats: NaN
``-x``, ``abs``       as 0 - x; int64's least value raises ``OverflowError``
int with float        the int is rounded to the nearest float64, in arithmetic and in comparisons
null                  an operand that is null makes the result null, comparisons included
``& | ~``             booleans only, in Kleene's logic: null & False is False, null | True is True
comparisons           exact between ints of any width; floats by IEEE: NaN is unequal to everything, itself included,
                      and neither less nor greater; -0.0 == 0.0. False < True. Timestamps with a zone do not compare
                      with those without; text does not compare with numbers
``is_in``             an OR of ``==``: null where the value is null; NaN is in no list; None may not be listed
``is_null``           nulls only; NaN is a value
``fill_null``         the result has the column's type where the literal fits it, else a type that holds both
``cast``              float to int truncates toward zero; int to float rounds to the nearest; a value out of range (NaN
                      to int too) raises ``OverflowError``, text that does not parse ``ValueError``
narrow types          results of ``+ - * // %`` are 64 bits wide: ``.cast("int32")`` narrows, checked
dictionaries          operations see the values; a comparison with a constant looks at each dictionary entry once
filters               keep a row where the predicate is true: false and null drop it
====================  ==================================================================================================
"""

from dataflow.expressions.aggregates import AggregateKind, Aggregation, count
from dataflow.expressions.calls import concat_str
from dataflow.expressions.conditionals import when
from dataflow.expressions.evaluation import compile_expression, compile_value
from dataflow.expressions.nodes import Expr, col, lit
from dataflow.expressions.typing import output_schema

__all__ = [
    "AggregateKind",
    "Aggregation",
    "Expr",
    "col",
    "compile_expression",
    "compile_value",
    "concat_str",
    "count",
    "lit",
    "output_schema",
    "when",
]
