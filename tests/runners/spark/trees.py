"""Random expressions and rows for them: every type that Spark carries, every operation, and the values that hurt."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any, Final

import pyarrow as pa

from dataflow.expressions import Expr, coalesce, col, concat_str, lit, when

__all__ = ["Trees", "rows"]

HOUR: Final = 3_600_000_000
LEAST, MOST = -(2**63), 2**63 - 1
INSTANTS: Final = [
    0,
    -1,
    1,
    -HOUR * 24 * 365 * 400,
    1_710_054_000_000_000,
    1_730_611_800_000_000,
    1_730_615_400_000_000,
]
POOLS: Final[dict[str, tuple[pa.DataType, list[Any]]]] = {
    "i": (pa.int64(), [-7, -1, 0, 1, 2, 3, 10, 86_400]),
    "big": (pa.int64(), [LEAST, LEAST + 1, -1, 0, 1, 2**53 + 1, MOST]),
    "small": (pa.int8(), [-128, -1, 0, 5, 127]),
    "u": (pa.uint32(), [0, 1, 7, 2**32 - 1]),
    "f": (pa.float64(), [0.0, -0.0, 1.5, -2.5, 1e300, 5e-324, math.inf, -math.inf, math.nan, 2.0**63, 0.1]),
    "g": (pa.float32(), [0.0, -0.0, 0.1, -3.0, math.nan, math.inf]),
    "p": (pa.bool_(), [True, False]),
    "s": (
        pa.string(),
        ["", "a", "Ab-12", " é ", "😀", "12", "-3", "1.5", "2024-02-29", "x\ny", "ß", "nan", "1e5", "true"],
    ),
    "k": (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "", "7"]),
    "t": (pa.timestamp("us"), INSTANTS),
    "ms": (pa.timestamp("ms"), [n // 1000 for n in INSTANTS]),
    "z": (pa.timestamp("us", "America/New_York"), INSTANTS),
    "w": (pa.timestamp("s", "Asia/Kolkata"), [n // 1_000_000 for n in INSTANTS]),
    "d": (pa.date32(), [0, -1, 19_782, -150_000, 11_016]),
    "span": (pa.duration("us"), [0, 1, -1, HOUR, -25 * HOUR]),
    "m": (pa.decimal128(9, 2), [Decimal("0.00"), Decimal("-1.10"), Decimal("9999999.99"), Decimal("3.00")]),
}
BY_KIND: Final = {
    "int": ["i", "i", "i", "small", "u", "big"],
    "float": ["f", "f", "g"],
    "bool": ["p"],
    "text": ["s", "s", "k"],
    "time": ["t", "ms"],
    "zoned": ["z", "w"],
    "date": ["d"],
    "span": ["span"],
    "decimal": ["m"],
}


def rows(random: Random, count: int) -> pa.Table:
    """``count`` rows, a tenth of the values null."""
    columns = {}
    for name, (dtype, pool) in POOLS.items():
        values = [None if random.random() < 0.1 else random.choice(pool) for _ in range(count)]
        columns[name] = pa.array(values, dtype)
    return pa.table(columns)


class Trees:
    """Draws expressions that have a type; some of them overflow, and some text does not parse."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def any(self, depth: int) -> Expr:
        return self.draw(self.random.choice(list(BY_KIND)), depth)

    def draw(self, kind: str, depth: int) -> Expr:
        if depth == 0 or self.random.random() < 0.1:
            return col(self.random.choice(BY_KIND[kind]))
        if self.random.random() < 0.15:
            return self.shared(kind, depth - 1)
        makers: dict[str, Callable[[int], Expr]] = {
            "int": self.int,
            "float": self.float,
            "bool": self.bool,
            "text": self.text,
            "time": self.time,
            "zoned": self.zoned,
            "date": self.date,
            "span": self.span,
            "decimal": self.decimal,
        }
        return makers[kind](depth - 1)

    def shared(self, kind: str, depth: int) -> Expr:
        """What is done alike for all kinds."""
        if self.random.random() < 0.5:
            return self.draw(kind, depth).fill_null(self.draw(kind, 0))
        return when(self.bool(depth)).then(self.draw(kind, depth)).otherwise(self.draw(kind, 0))

    def number(self, depth: int, literals: list[Any], kinds: tuple[str, ...]) -> Expr:
        choice = self.random.random()
        return lit(self.random.choice(literals)) if choice < 0.3 else self.draw(self.random.choice(kinds), depth)

    def int(self, depth: int) -> Expr:
        one, other = self.draw("int", depth), self.number(depth, [-3, 0, 1, 7], ("int",))
        return self.one_of(
            lambda: one + other,
            lambda: one - other,
            lambda: one * other,
            lambda: one // other,
            lambda: one % other,
            lambda: other % one,
            lambda: -one,
            lambda: one.abs(),
            lambda: one.round(self.random.choice([-19, -18, -1, 2])),
            lambda: self.draw("text", depth).str.count("a"),
            lambda: self.draw("float", depth).cast("int64", strict=False),
            lambda: self.draw("text", depth).cast(self.random.choice(["int64", "uint8", "int32"]), strict=False),
            lambda: self.draw("text", depth).str.length(),
            lambda: self.any(0).hash(),
            lambda: one.cast("int16", strict=False),
            lambda: one.cast("int32"),
            lambda: self.part(self.draw(self.random.choice(["time", "zoned"]), depth)),
            lambda: self.draw("bool", depth).cast("int64"),
            lambda: self.draw("decimal", 0).cast("int64", strict=False),
            lambda: self.draw("time", depth).cast("timestamp[us]").cast("int64"),
        )

    def part(self, time: Expr) -> Expr:
        names = [
            "year",
            "month",
            "day",
            "hour",
            "minute",
            "second",
            "millisecond",
            "microsecond",
            "weekday",
            "ordinal_day",
        ]
        found: Expr = getattr(time.dt, self.random.choice(names))()
        return found

    def float(self, depth: int) -> Expr:
        one, other = self.draw("float", depth), self.number(depth, [-1.5, 0.0, 2, 1e10], ("int", "float"))
        return self.one_of(
            lambda: one + other,
            lambda: one - other,
            lambda: one * other,
            lambda: one / other,
            lambda: one // other,
            lambda: one % other,
            lambda: other // one,
            lambda: self.draw("int", depth) / other,
            lambda: -one,
            lambda: one.abs(),
            lambda: one.round(self.random.choice([-300, -1, 0, 1, 9])),
            lambda: self.draw("int", depth).cast(self.random.choice(["float64", "float32"])),
            lambda: one.cast("float32"),
            lambda: self.draw("text", depth).cast("float64", strict=False),
            lambda: self.draw("decimal", 0) / other,
        )

    def bool(self, depth: int) -> Expr:
        kind = self.random.choice(list(BY_KIND))
        return self.one_of(
            lambda: self.compare(self.draw(kind, depth), self.draw(kind, depth)),
            lambda: self.compare(self.draw("float", depth), self.draw("int", depth)),
            lambda: self.draw("float", depth).is_in([0.0, 1.5, math.nan]),
            lambda: self.draw("int", depth).is_in([0, 3, 300]),
            lambda: self.draw("text", depth).is_in(["a", "", "12"]),
            lambda: self.any(depth).is_null(),
            lambda: self.draw("float", depth).is_nan(),
            lambda: self.draw("float", depth).is_finite(),
            lambda: self.draw("bool", depth) & self.draw("bool", depth),
            lambda: self.draw("bool", depth) | self.draw("bool", depth),
            lambda: ~self.draw("bool", depth),
            lambda: self.draw("text", depth).str.contains(r"^[a-z]|\d$"),
            lambda: self.draw("text", depth).str.starts_with("a"),
            lambda: self.draw("text", depth).cast("bool", strict=False),
            lambda: self.draw("float", depth).cast("bool"),
        )

    def compare(self, a: Expr, b: Expr) -> Expr:
        return self.one_of(lambda: a == b, lambda: a != b, lambda: a < b, lambda: a <= b, lambda: a > b, lambda: a >= b)

    def text(self, depth: int) -> Expr:
        one = self.draw("text", depth)
        return self.one_of(
            lambda: one.str.upper(),
            lambda: one.str.lower(),
            lambda: one.str.strip(),
            lambda: one.str.replace_all("[a-z]", "$1"),
            lambda: one.str.extract("([0-9]+)"),
            lambda: one.str.slice(self.random.choice([-2, 0, 1]), self.random.choice([None, 0, 2])),
            lambda: one.str.split("-").list.get(self.random.choice([-1, 0, 1])),
            lambda: coalesce(one, self.draw("text", 0), "?"),
            lambda: self.draw(self.random.choice(["time", "date"]), 0).dt.strftime("%G-%V %U%W %y%j %f%%"),
            lambda: self.draw("zoned", 0).dt.strftime("%d.%m.%Y %I:%M:%S"),
            lambda: concat_str([one, self.draw("text", depth)], separator="|"),
            lambda: self.draw("int", depth).cast("string"),
            lambda: self.draw("bool", depth).cast("string"),
            lambda: self.draw("decimal", 0).cast("string"),
            lambda: self.draw("date", 0).cast("string"),
        )

    def time(self, depth: int) -> Expr:
        one = self.draw("time", depth)
        return self.one_of(
            lambda: one + self.draw("span", 0),
            lambda: one - datetime.timedelta(hours=25),
            lambda: col("t").dt.truncate(self.random.choice(["1h", "7d", "90s"]), offset="30s"),
            lambda: self.draw("date", 0).cast("timestamp[us]"),
            lambda: self.draw("zoned", depth).cast("timestamp[us]"),
        )

    def zoned(self, depth: int) -> Expr:
        one = self.draw("zoned", depth)
        return self.one_of(
            lambda: one + self.draw("span", 0),
            lambda: self.draw("zoned", 0).dt.truncate(self.random.choice(["1h", "1d", "30min"])),
            lambda: self.draw("time", depth).cast(pa.timestamp("us", "America/New_York")),
        )

    def date(self, depth: int) -> Expr:
        return self.one_of(
            lambda: self.draw("time", 0).dt.date(),
            lambda: self.draw("zoned", 0).dt.date(),
            lambda: self.draw("date", 0).dt.truncate("7d", offset="4d"),
            lambda: self.draw("text", 0).cast("date32", strict=False),
        )

    def span(self, depth: int) -> Expr:
        one = self.draw("span", 0)
        return self.one_of(
            lambda: self.draw("time", depth) - self.draw("time", 0),
            lambda: self.draw("zoned", depth) - self.draw("zoned", 0),
            lambda: self.draw("date", 0) - self.draw("date", 0),
            lambda: one * col("i"),
            lambda: one + self.draw("span", 0),
            lambda: -one,
        )

    def decimal(self, depth: int) -> Expr:
        one, other = self.draw("decimal", 0), self.draw("decimal", 0)
        return self.one_of(
            lambda: one + other,
            lambda: one - other,
            lambda: one * other,
            lambda: one * 3,
            lambda: -one,
            lambda: one.abs(),
            lambda: one.round(self.random.choice([-7, -1, 0, 1, 2])),
            lambda: self.draw("text", 0).str.replace_all("e", "").cast(pa.decimal128(9, 2), strict=False),
            lambda: col("small") + one,
            lambda: one.cast(pa.decimal128(6, 1), strict=False),
        )

    def one_of(self, *makers: Callable[[], Expr]) -> Expr:
        return self.random.choice(makers)()
