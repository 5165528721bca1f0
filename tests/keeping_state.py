"""A pipeline for each kind of operator that keeps state, over rows of keys and times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col

__all__ = ["SCHEMA", "STREAMS", "Stream", "sample"]

SCHEMA = pa.schema({"k": pa.string(), "at": pa.timestamp("us"), "x": pa.int64()})
"""The columns of the rows."""

Stream = Callable[[flow.KeyedStream, flow.KeyedStream, str], flow.Stream]
"""Adds an operator of this name to rows of two inputs, of which most take the first."""
SUM, MIN = col("x").sum().alias("sum"), col("x").min().alias("min")


HOP, NEAR = op.hopping("300us", every="100us"), ("-50us", "20us")
EVERY = (
    op.count().alias("n"),
    col("x").mean().alias("mean"),
    col("x").stddev().alias("deviation"),
    col("x").min().alias("least"),
    col("x").count_distinct().alias("distinct"),
    col("x").quantile(0.5).alias("median"),
    col("x").to_list().alias("all"),
    col("x").first().alias("first"),
    col("x").last(by="at").alias("last"),
    col("at").max().alias("latest"),
)
"""Aggregates of every kind."""


@dataclass(frozen=True)
class Visit(flow.Window):
    """Windows that become one if they overlap."""

    length: int

    merges = True

    def assign(self, times: Any, batch: Any) -> flow.Assigned:
        return flow.Assigned(times, times + self.length)


class Totals(flow.KeyedProcess):
    """Emits the sum of a key, and how many rows it had, when its timer rings."""

    total = flow.value_state(pa.int64())
    seen = flow.list_state(pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: Any) -> None:
        for row in rows.to_pylist():
            self.total.set((self.total.get() or 0) + row["x"])
            self.seen.append(row["x"])
            ctx.timers.event(row["at"] + timedelta(microseconds=250))

    def on_timer(self, key: Any, due: Any, ctx: Any) -> None:
        ctx.emit({"k": key, "x": self.total.get() + 1000 * len(self.seen.get())})


STREAMS: dict[str, Stream] = {
    "aggregate": lambda rows, others, name: rows.agg(SUM, MIN, emit="final", name=name),
    "aggregate with changes": lambda rows, others, name: rows.agg(SUM, emit="changes", name=name),
    "every aggregate": lambda rows, others, name: rows.agg(*EVERY, emit="final", name=name),
    "aggregate that expires": lambda rows, others, name: rows.agg(SUM, emit="updates", ttl="1s", name=name),
    "windows": lambda rows, others, name: rows.window(op.tumbling("200us")).agg(SUM, name=name),
    "overlapping windows": lambda rows, others, name: rows.window(HOP).agg(SUM, name=name),
    "windows with lateness": lambda rows, others, name: rows.window(op.tumbling("200us"), lateness="400us").agg(
        SUM, emit="changes", name=name
    ),
    "triggered windows": lambda rows, others, name: rows.window(op.tumbling("400us"), early=op.after_rows(2)).agg(
        SUM, name=name
    ),
    "sessions": lambda rows, others, name: rows.window(op.session("20us")).agg(SUM, name=name),
    "sessions with changes": lambda rows, others, name: rows.window(op.session("20us"), lateness="50us").agg(
        SUM, emit="changes", name=name
    ),
    "sessions that keep rows": lambda rows, others, name: rows.window(op.session("20us")).agg(
        col("x").quantile(0.5).alias("median"), name=name
    ),
    "sessions in panes": lambda rows, others, name: rows.window(
        op.session("20us"), early=op.after_rows(2), panes="discarding"
    ).agg(SUM, name=name),
    "windows that merge": lambda rows, others, name: rows.window(Visit(30)).agg(SUM, name=name),
    "all rows in panes": lambda rows, others, name: rows.window(op.global_window(), early=op.after_rows(3)).agg(
        SUM, name=name
    ),
    "sliding windows": lambda rows, others, name: rows.window(op.sliding("200us")).agg(SUM, name=name),
    "windows of rows": lambda rows, others, name: rows.window(op.count_window(3)).agg(SUM, name=name),
    "first rows": lambda rows, others, name: rows.unique("k", name=name),
    "best rows": lambda rows, others, name: rows.top(2, by="x", name=name),
    "best rows of windows": lambda rows, others, name: rows.window(op.tumbling("200us")).top(2, by="x", name=name),
    "join": lambda rows, others, name: rows.join(others, on="k", how="full", name=name),
    "join that expires": lambda rows, others, name: rows.join(others, on="k", ttl="1s", name=name),
    "join of windows": lambda rows, others, name: rows.join(others, on="k", window=op.tumbling("100us"), name=name),
    "join within": lambda rows, others, name: rows.join(others, on="k", within=NEAR, how="left", name=name),
    "join as of": lambda rows, others, name: rows.join_asof(others, by="k", name=name),
    "join as of a time after": lambda rows, others, name: rows.join_asof(
        others, by="k", strategy="forward", tolerance="30us", name=name
    ),
    "process function": lambda rows, others, name: rows.process(
        Totals, schema=pa.schema({"k": pa.string(), "x": pa.int64()}), name=name
    ),
}


def sample(rng: np.random.Generator, at: int, rows: int = 40) -> pa.RecordBatch:
    """Rows of 20 keys from 60 us before ``at`` to 100 us after it."""
    times = rng.integers(at - 60, at + 100, rows)
    keys = [f"key {k}" for k in rng.integers(0, 20, rows)]
    columns = [pa.array(keys), pa.array(times, pa.timestamp("us")), pa.array(rng.integers(0, 9, rows))]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
