"""Keys of joins by value: zeros of both signs are one key, NaN is another, and null meets nothing, in every join."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op

US = pa.timestamp("us")
FLOATS = [pa.float16(), pa.float32(), pa.float64()]

Joined = Callable[[flow.Stream, flow.Stream], flow.Stream]
JOINS: dict[str, Joined] = {
    "unbounded": lambda left, right: left.join(right, on="k"),
    "ttl": lambda left, right: left.join(right, on="k", ttl="1h"),
    "full": lambda left, right: left.join(right, on="k", how="full", emit="final"),
    "within": lambda left, right: left.join(right, on="k", within=("-1s", "1s"), how="full"),
    "window": lambda left, right: left.join(right, on="k", window=op.tumbling("1s"), how="full"),
    "backward": lambda left, right: left.join_asof(right, by="k", how="inner"),
    "forward": lambda left, right: right.join_asof(left, by="k", how="inner", strategy="forward", tolerance="1s"),
}


def numbers(*values: float | None, type_: pa.DataType, name: str, start: int) -> pa.Table:
    typed = [None if value is None else np.float16(value) for value in values]
    times = pa.array(range(start, start + len(values)), US)
    return pa.table(
        {"k": pa.array(typed, pa.float16()).cast(type_), name: list(range(len(values))), f"at_{name}": times}
    )


def shown(key: float | None) -> str:
    return "null" if key is None else "NaN" if key != key else f"{float(key)}"


@pytest.mark.parametrize("type_", FLOATS, ids=str)
@pytest.mark.parametrize("kind", JOINS)
def test_zeros_are_one_key_nan_is_one_and_null_is_none(kind: str, type_: pa.DataType) -> None:
    nan = float("nan")
    tables = {
        "left": numbers(-0.0, nan, None, 1.5, type_=type_, name="left", start=10),
        "right": numbers(0.0, -nan, None, type_=type_, name="right", start=0),
    }
    with flow.Pipeline() as p:
        left, right = (
            p.source(op.from_arrow(table, batch_rows=1), name=name).with_watermark(f"at_{name}", delay="1s")
            for name, table in tables.items()
        )
        JOINS[kind](left, right).sink(op.collect(), name="out")
    found: Counter[Any] = Counter()
    for row in p.run(parallelism=2).table("out").to_pylist():
        found[shown(row["k"]), row["left"], row["right"]] += 1
    met = {("0.0", 0, 0), ("NaN", 1, 1)}
    alone = {("null", 2, None), ("1.5", 3, None), ("null", None, 2)}
    assert found == Counter(met | alone if kind in ("full", "within", "window") else met)


@pytest.mark.parametrize("type_", FLOATS, ids=str)
def test_a_table_is_looked_up_by_value(type_: pa.DataType) -> None:
    table = numbers(0.0, float("nan"), None, type_=type_, name="right", start=0)
    rows = numbers(-0.0, float("nan"), None, type_=type_, name="left", start=0)
    found = flow.Pipeline().source(op.from_arrow(rows), name="rows").lookup(table, on="k", how="left").collect()
    assert dict(zip(found["left"].to_pylist(), found["right"].to_pylist(), strict=True)) == {0: 0, 1: 1, 2: None}
