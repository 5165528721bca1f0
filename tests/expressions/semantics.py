"""What each line of the tables in ``dataflow.expressions`` means, by example; all of them are in ``SEMANTICS``.

The expected values are worked out by hand, in plain Python. An exception class means that evaluation raises it.
"""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

from tests.expressions.cases import Kept, floats, ints, of, texts, times
from tests.expressions.semantics_of_text import TEXT
from tests.expressions.semantics_of_times import BEFORE, LEAP, TIME

__all__ = ["SEMANTICS"]

NAN, INF = math.nan, math.inf
MIN, MAX = -(2**63), 2**63 - 1

ARITHMETIC = [
    *of(
        "+ - *",
        ("col('a') + col('b')", {"a": ints(1, None, MAX), "b": ints(2, 3, -1)}, [3, None, MAX - 1]),
        ("col('a') - 1.5", {"a": ints(1, None)}, [-0.5, None]),
        ("col('a') * col('a')", {"a": floats(1e200, -0.0, NAN)}, [INF, 0.0, NAN]),
        ("col('a') + 1", {"a": ints(MAX)}, OverflowError),
        ("col('a') * 2", {"a": ints(MIN)}, OverflowError),
        ("col('a') - 1", {"a": ("uint64", [2**64 - 1])}, [2**64 - 2]),
        ("col('a') + 1", {"a": ("uint64", [2**64 - 1])}, OverflowError),
        ("col('a') - 2**63", {"a": ("uint64", [2**63, 2**64 - 1, None])}, [0, MAX, None]),
        (
            "col('a') + Decimal('0.001')",
            {"a": (pa.decimal128(5, 2), [Decimal("1.10"), None])},
            [Decimal("1.101"), None],
        ),
        (
            "col('t') + datetime.timedelta(hours=1)",
            {"t": times(BEFORE, None)},
            [BEFORE + timedelta(hours=1), None],
        ),
    ),
    *of(
        "/",
        ("col('a') / col('b')", {"a": ints(7, -7, 1, 0, None), "b": ints(2, 2, 0, 0, 1)}, [3.5, -3.5, INF, NAN, None]),
        ("col('a') / 0.0", {"a": floats(1.0, -1.0, 0.0, NAN)}, [INF, -INF, NAN, NAN]),
        ("col('a') / -0.0", {"a": floats(1.0)}, [-INF]),
        ("col('a') / 4", {"a": (pa.decimal128(5, 2), [Decimal("1.10")])}, [0.275]),
    ),
    *of(
        "//",
        ("col('a') // col('b')", {"a": ints(7, -7, 7, -7, 1), "b": ints(2, 2, -2, -2, 0)}, [3, -4, -4, 3, None]),
        ("col('a') // col('b')", {"a": floats(7.5, -7.5, 1.0, 0.0), "b": floats(2, 2, 0, 0)}, [3.0, -4.0, INF, NAN]),
        ("col('a') // -1", {"a": ints(MIN)}, OverflowError),
    ),
    *of(
        "%",
        ("col('a') % col('b')", {"a": ints(7, -7, 7, -7, 1), "b": ints(3, 3, -3, -3, 0)}, [1, 2, -2, -1, None]),
        ("col('a') % col('b')", {"a": floats(7.5, -7.5, 1.0), "b": floats(2, 2, 0)}, [1.5, 0.5, NAN]),
        ("col('a') % -1", {"a": ints(MIN, MAX)}, [0, 0]),
    ),
    *of(
        "-x, abs",
        ("-col('a')", {"a": ints(3, -3, None)}, [-3, 3, None]),
        ("col('a').abs()", {"a": floats(-0.5, -INF, None)}, [0.5, INF, None]),
        ("-col('a')", {"a": ints(MIN)}, OverflowError),
        ("col('a').abs()", {"a": ints(MIN)}, OverflowError),
    ),
    *of(
        "int with float",
        ("col('a') + 0.0", {"a": ints(2**53 + 1)}, [2.0**53]),
        ("col('a') == col('b')", {"a": ints(2**53 + 1), "b": floats(2.0**53)}, [True]),
    ),
    *of(
        "null",
        ("col('a') + col('b')", {"a": ints(None, 1), "b": ints(1, None)}, [None, None]),
        ("col('a') == col('b')", {"a": ints(None, 1, None), "b": ints(None, None, 1)}, [None, None, None]),
        ("col('s').str.upper()", {"s": texts(None)}, [None]),
        ("col('n') + 1", {"n": ("null", [None, None])}, [None, None]),
        ("col('n').str.length()", {"n": ("null", [None, None])}, [None, None]),
    ),
    *of(
        "& | ~",
        (
            "col('a') & col('b')",
            {"a": ("bool", [None, None, True]), "b": ("bool", [False, True, True])},
            [False, None, True],
        ),
        (
            "col('a') | col('b')",
            {"a": ("bool", [None, None, False]), "b": ("bool", [True, False, False])},
            [True, None, False],
        ),
        ("~col('a')", {"a": ("bool", [True, False, None])}, [False, True, None]),
    ),
    *of(
        "comparisons",
        ("col('a') < col('b')", {"a": ints(1, 2, None), "b": ints(2, 2, 2)}, [True, False, None]),
        ("col('a') == col('a')", {"a": floats(NAN, 0.0, INF, None)}, [False, True, True, None]),
        ("col('a') != col('a')", {"a": floats(NAN, 0.0)}, [True, False]),
        ("col('a') < 1", {"a": floats(NAN, -INF)}, [False, True]),
        ("col('a') >= 1", {"a": floats(NAN, INF)}, [False, True]),
        ("col('a') > col('b')", {"a": floats(NAN, 1.0), "b": floats(1.0, NAN)}, [False, False]),
        ("col('a') == 0.0", {"a": floats(-0.0)}, [True]),
        ("col('a') < col('b')", {"a": floats(-0.0), "b": floats(0.0)}, [False]),
        ("col('a') == col('b')", {"a": ("uint64", [2**64 - 1]), "b": ints(-1)}, [False]),
        ("col('a') < col('b')", {"a": ("bool", [False, True]), "b": ("bool", [True, True])}, [True, False]),
        ("col('a') < 2**63", {"a": ints(MAX, MIN, None)}, [True, True, None]),
        ("col('a') == 2**64 - 1", {"a": ("uint64", [2**64 - 1, 0])}, [True, False]),
        ("col('s') < 'b'", {"s": texts("a", "B", "é", "")}, [True, True, False, True]),
        (
            "col('d') >= datetime.date(2024, 2, 29)",
            {"d": ("date32", [date(2024, 2, 28), date(2024, 3, 1)])},
            [False, True],
        ),
        ("col('t') == col('u')", {"t": times(LEAP), "u": times(LEAP.replace(microsecond=0), unit="s")}, [False]),
    ),
    *of("between", ("col('a').between(1, 3)", {"a": ints(0, 1, 3, 4, None)}, [False, True, True, False, None])),
    *of(
        "is_in",
        ("col('a').is_in([1, 3])", {"a": ints(1, 2, None)}, [True, False, None]),
        ("col('a').is_in([2**63, 3])", {"a": ints(3, MIN)}, [True, False]),
        ("col('a').is_in([0.0, float('nan')])", {"a": floats(-0.0, NAN, None)}, [True, False, None]),
        ("col('s').is_in(['a', ''])", {"s": texts("", "A", None)}, [True, False, None]),
    ),
    *of(
        "is_null",
        ("col('a').is_null()", {"a": floats(NAN, None)}, [False, True]),
        ("col('a').is_not_null()", {"a": floats(NAN, None)}, [True, False]),
    ),
    *of(
        "is_nan",
        ("col('a').is_nan()", {"a": floats(NAN, INF, 0.0, None)}, [True, False, False, None]),
        ("col('a').is_finite()", {"a": floats(NAN, -INF, 0.0, None)}, [False, False, True, None]),
        ("col('a').is_nan()", {"a": ints(1, None)}, [False, None]),
    ),
    *of(
        "fill_null",
        ("col('a').fill_null(0)", {"a": ints(1, None)}, [1, 0]),
        ("col('a').fill_null(0.5)", {"a": ints(1, None)}, [1.0, 0.5]),
        ("col('a').fill_null(0)", {"a": floats(NAN, None)}, [NAN, 0.0]),
        ("col('s').fill_null(col('t'))", {"s": texts("a", None), "t": texts("b", "c")}, ["a", "c"]),
    ),
    *of(
        "when",
        ("when(col('a') > 1).then('big').otherwise('small')", {"a": ints(2, 1, None)}, ["big", "small", "small"]),
        ("when(col('a') > 1).then(col('a'))", {"a": ints(2, 1, None)}, [2, None, None]),
        (
            "when(col('a') > 2).then(1).when(col('a') > 1).then(col('b')).otherwise(2.5)",
            {"a": ints(3, 2, 1, None), "b": ints(7, 7, 7, 7)},
            [1.0, 7.0, 2.5, 2.5],
        ),
        ("when(col('a') != 0).then(col('b') // col('a'))", {"a": ints(0, 2), "b": ints(5, 5)}, [None, 2]),
        ("when(col('a') < 5).then(col('a') * col('a'))", {"a": ints(2, MAX)}, [4, None]),
        ("when(col('s') != 'x').then(col('s').cast('int64')).otherwise(-1)", {"s": texts("7", "x")}, [7, -1]),
        (
            "when(col('s') == 'x').then(-1).when(col('s').cast('int64') > 5).then(1).otherwise(col('s').cast('int64'))",
            {"s": texts("x", "7", "3")},
            [-1, 1, 3],
        ),
        (
            "when(col('a') == 1).then(0).when(col('a') == 2**63 - 1).then(col('a')).otherwise(col('a') * 2)",
            {"a": ints(1, MAX, 3)},
            [0, MAX, 6],
        ),
        ("when(col('a') > 0).then(col('a') * 2)", {"a": ints(MAX, 0)}, OverflowError),
    ),
    *of(
        "cast",
        ("col('a').cast('int64')", {"a": floats(1.9, -1.9, -0.5, None)}, [1, -1, 0, None]),
        ("col('a').cast('float64')", {"a": ints(2**53 + 1, -1)}, [2.0**53, -1.0]),
        ("col('a').cast('int32')", {"a": ints(2**31 - 1, -(2**31))}, [2**31 - 1, -(2**31)]),
        ("col('a').cast('int32')", {"a": ints(2**31)}, OverflowError),
        ("col('a').cast('int64')", {"a": floats(NAN)}, OverflowError),
        ("col('a').cast('int64')", {"a": floats(2.0**63)}, OverflowError),
        ("col('s').cast('int64')", {"s": texts("12", "-3", None)}, [12, -3, None]),
        ("col('s').cast('int64')", {"s": texts("x")}, ValueError),
        ("col('s').cast('int64')", {"s": texts("1.5")}, ValueError),
        ("col('s').cast('int64')", {"s": texts(" 1")}, ValueError),
        ("col('s').cast('bool')", {"s": texts("true", "FALSE", "1", "0")}, [True, False, True, False]),
        ("col('s').cast('double')", {"s": texts("1.5", "-2", "1e3", "nan")}, [1.5, -2.0, 1000.0, NAN]),
        ("col('s').cast('date32')", {"s": texts("2024-02-29")}, [date(2024, 2, 29)]),
        ("col('a').cast('string')", {"a": ints(-12, None)}, ["-12", None]),
        ("col('b').cast('int64')", {"b": ("bool", [True, False])}, [1, 0]),
        ("col('a').cast('float32') + 0.0", {"a": ints(2**31 - 1, None)}, [2.0**31, None]),
        ("col('a').cast(pa.decimal128(4, 2))", {"a": ints(12, -99, None)}, [Decimal("12.00"), Decimal("-99.00"), None]),
        ("col('a').cast(pa.decimal128(4, 2))", {"a": ints(100)}, ValueError),
        (
            "col('a').cast('float64')",
            {"a": (pa.decimal128(9, 2), [Decimal("1234567.89"), Decimal("-0.03"), None])},
            [1234567.89, -0.03, None],
        ),
        ("col('d').cast('timestamp[us]')", {"d": ("date32", [date(1969, 12, 31)])}, [datetime(1969, 12, 31)]),
    ),
    *of(
        "cast, not strict",
        (
            "col('s').cast('int64', strict=False)",
            {"s": texts("12", "x", "", None, "1.5")},
            [12, None, None, None, None],
        ),
        ("col('s').cast('bool', strict=False)", {"s": texts("true", "yes", " true", None)}, [True, None, None, None]),
        ("col('s').cast('double', strict=False)", {"s": texts("1.5", "?", "1.5")}, [1.5, None, 1.5]),
        ("col('s').cast('date32', strict=False)", {"s": texts("2024-02-29", "2023-02-29")}, [date(2024, 2, 29), None]),
        ("col('a').cast('int8', strict=False)", {"a": ints(127, 128, -129, None)}, [127, None, None, None]),
        (
            "col('a').cast('int64', strict=False)",
            {"a": floats(1.9, NAN, INF, 2.0**63, -(2.0**63))},
            [1, None, None, None, MIN],
        ),
        ("col('a').cast('uint64', strict=False)", {"a": ints(-1, 1)}, [None, 1]),
        (
            "col('a').cast(pa.decimal128(4, 2), strict=False)",
            {"a": ints(99, 100, None)},
            [Decimal("99.00"), None, None],
        ),
        ("col('a').cast('int64', strict=False)", {"a": ("uint64", [2**63, 5])}, [None, 5]),
    ),
    *of(
        "hash",
        (
            "col('a').hash()",
            {"a": ints(0, 1, -1, None)},
            [-2152535657050944081, -7995527694508729151, -1956407806741107680, None],
        ),
        ("col('a').hash() == col('b').hash()", {"a": ("int8", [-7]), "b": ints(-7)}, [True]),
        ("col('a').hash() == col('b').hash()", {"a": floats(-0.0, 1.0), "b": floats(0.0, 2.0)}, [True, False]),
        ("col('s').hash() == lit('é').hash()", {"s": texts("é", "e")}, [True, False]),
    ),
    *of(
        "round",
        (
            "col('a').round()",
            {
                "a": floats(
                    0.5, 1.5, 2.5, -0.5, -2.5, 0.49999999999999994, -0.2, -0.0, NAN, INF, -INF, 2.0**53 - 1, None
                )
            },
            [1.0, 2.0, 3.0, -1.0, -3.0, 0.0, -0.0, -0.0, NAN, INF, -INF, 2.0**53 - 1, None],
        ),
        (
            "col('a').round(2)",
            {"a": floats(1.245, -1.245, 0.285, 1.005, 1e300, -0.001, 0.1 + 0.2, 4503599627370496.5)},
            [1.25, -1.25, 0.28, 1.0, 1e300, -0.0, 0.3, 4503599627370496.5],
        ),
        (
            "col('a').round(-2)",
            {"a": floats(150.0, 149.9, -150.0, 1.7e308, -49.0)},
            [200.0, 100.0, -200.0, 1.7e308, -0.0],
        ),
        ("col('a').round(-308)", {"a": floats(1.7e308, 1e307)}, [INF, 0.0]),
        ("col('a').round(308)", {"a": floats(1.5, 5e-324)}, [1.5, 0.0]),
        ("col('a').round(1)", {"a": ("float32", [0.25, None])}, [0.3, None]),
        ("col('a').round(3)", {"a": ("int8", [-7, None])}, [-7, None]),
        ("col('a').round(-1)", {"a": ints(15, -15, 14, -14, MIN + 4, None)}, [20, -20, 10, -10, MIN + 8, None]),
        ("col('a').round(-1)", {"a": ints(MAX)}, OverflowError),
        ("col('a').round(-18)", {"a": ints(MAX, MIN, 499999999999999999)}, [9 * 10**18, -9 * 10**18, 0]),
        ("col('a').round(-19)", {"a": ints(4999999999999999999, None)}, [0, None]),
        ("col('a').round(-19)", {"a": ints(-5 * 10**18)}, OverflowError),
        ("col('a').round(-20)", {"a": ints(MAX, None)}, [0, None]),
        ("col('a').round(-19)", {"a": ("uint64", [10**19, 5 * 10**18, 1, None])}, [10**19, 10**19, 0, None]),
        ("col('a').round(-19)", {"a": ("uint64", [2**64 - 1])}, OverflowError),
        ("col('a').round(-1)", {"a": ("uint64", [2**64 - 1])}, OverflowError),
        (
            "col('a').round(1)",
            {"a": (pa.decimal128(3, 2), [Decimal("9.95"), Decimal("-0.25"), Decimal("0.24"), None])},
            [Decimal("10.00"), Decimal("-0.30"), Decimal("0.20"), None],
        ),
        ("col('a').round(1)", {"a": (pa.decimal32(9, 2), [Decimal("9999999.95")])}, [Decimal("10000000.00")]),
        ("col('a').round(1)", {"a": (pa.decimal256(40, 2), [Decimal("0.15"), None])}, [Decimal("0.20"), None]),
        ("col('a').round(5)", {"a": (pa.decimal128(3, 2), [Decimal("9.95")])}, [Decimal("9.95")]),
        (
            "col('a').round(-1)",
            {"a": (pa.decimal128(3, 2), [Decimal("5.00"), Decimal("4.99")])},
            [Decimal("10.00"), Decimal("0.00")],
        ),
        ("col('a').round(-2)", {"a": (pa.decimal128(3, 2), [Decimal("9.99"), None])}, [Decimal("0.00"), None]),
        ("col('a').round(-3)", {"a": (pa.decimal128(3, 2), [Decimal("9.99"), None])}, [Decimal("0.00"), None]),
        ("col('a').round(-1)", {"a": (pa.decimal128(38, 0), [Decimal(10**38 - 1)])}, OverflowError),
        ("col('a').round()", {"a": (pa.decimal128(38, 1), [Decimal("-2.5")])}, [Decimal("-3.0")]),
    ),
    *of(
        "coalesce",
        ("coalesce(col('a'), col('b'), 0)", {"a": ints(None, 1, None), "b": ints(2, 3, None)}, [2, 1, 0]),
        ("coalesce(col('a'), col('b'))", {"a": ints(1, None, None), "b": floats(0.5, NAN, None)}, [1.0, NAN, None]),
        ("coalesce(None, col('s'), '-')", {"s": texts("a", None)}, ["a", "-"]),
    ),
    *of(
        "narrow types",
        ("col('a') * 100", {"a": ("int8", [100])}, [10_000]),
        ("(col('a') * 100).cast('int8')", {"a": ("int8", [100])}, OverflowError),
        ("-col('a')", {"a": ("uint8", [200])}, [-200]),
    ),
    *of(
        "dictionaries",
        (
            "col('k') == 'a'",
            {"k": (pa.dictionary(pa.int32(), pa.string()), ["a", "b", None, "a"])},
            [True, False, None, True],
        ),
        ("col('k').str.upper()", {"k": (pa.dictionary(pa.int32(), pa.string()), ["a", "b", None])}, ["A", "B", None]),
        (
            "when(col('k') == 'a').then('!').otherwise(col('k'))",
            {"k": (pa.dictionary(pa.int8(), pa.string()), ["a", "b"])},
            ["!", "b"],
        ),
    ),
    *of("filters", ("col('p')", {"p": ("bool", [True, False, None]), "x": ints(1, 2, 3)}, Kept([1]))),
]

SEMANTICS = [*ARITHMETIC, *TEXT, *TIME]
