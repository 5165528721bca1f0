"""Joins: what is refused when they are built, each with a way out, and the columns and event time of the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import ConfigurationError, DataflowError, GraphError, SchemaMismatch, UnknownColumn

US = pa.timestamp("us")
LEFT = pa.table({"k": [1], "x": [2], "tags": [["a"]], "at": pa.array([1], US)})
RIGHT = pa.table({"k": [1], "y": ["b"], "name": ["c"], "at": pa.array([1], US)})


def sides(*, left: pa.Table = LEFT, right: pa.Table = RIGHT, timed: bool = True) -> tuple[flow.Stream, flow.Stream]:
    p = flow.Pipeline()
    streams = [p.source(op.from_arrow(table), name=name) for name, table in (("left", left), ("right", right))]
    one, other = ([stream.with_watermark("at") for stream in streams]) if timed else streams
    return one, other


def join(*, of: tuple[flow.Stream, flow.Stream] | None = None, **options: Any) -> flow.Stream:
    left, right = of or sides()
    keys = {} if options.keys() & {"left_on", "right_on"} else {"on": "k"}
    return left.join(right, **{**keys, **options})


def near(**options: Any) -> flow.Stream:
    left, right = sides()
    return left.join_asof(right, **{"by": "k", **options})


def signed_and_plain() -> tuple[flow.Stream, flow.Stream]:
    left, right = sides()
    return left.key_by("k").agg(op.count().alias("n"), emit="changes", name="counts"), right


def updates_and_plain() -> tuple[flow.Stream, flow.Stream]:
    left, right = sides()
    return left.key_by("k").agg(op.count().alias("n"), emit="updates", name="counts"), right


def zoned() -> tuple[flow.Stream, flow.Stream]:
    return sides(right=RIGHT.set_column(3, "at", pa.array([1], pa.timestamp("us", "UTC"))))


def near_zoned() -> flow.Stream:
    left, right = zoned()
    return left.join_asof(right, by="k")


def other_pipeline() -> tuple[flow.Stream, flow.Stream]:
    return sides()[0], sides()[1]


REFUSED: dict[str, tuple[Callable[[], Any], type[DataflowError], str]] = {
    "no key": (lambda: join(on=None), GraphError, r"join: name the columns.*on= .*left_on= and right_on="),
    "two ways to name keys": (lambda: join(on="k", left_on="k", right_on="k"), GraphError, r"either on= .*or left_on="),
    "half a key": (lambda: join(left_on="k"), GraphError, r"left_on= and right_on="),
    "unequal numbers": (
        lambda: join(left_on=["k", "x"], right_on=["k"]),
        GraphError,
        r"left_on= has 2 columns and right_on= has 1",
    ),
    "an unknown key": (lambda: join(on="z"), UnknownColumn, r"z.*join\(on=\)|join\(on=\).*z"),
    "a list as a key": (
        lambda: join(left_on="tags", right_on="k"),
        SchemaMismatch,
        r"'tags' of type list.*cannot be a key",
    ),
    "unequal types": (
        lambda: join(left_on="x", right_on="y"),
        SchemaMismatch,
        r"'x' of the left side is int64 and 'y' of the right side is string.*cast\(\"int64\"\)",
    ),
    "another how": (lambda: join(how="outer"), ConfigurationError, r"how=.*'inner', 'left', 'right', 'full'.*'outer'"),
    "a name that clashes": (lambda: join(suffix=""), GraphError, r"two columns 'at'.*another suffix="),
    "a suffix that is no text": (lambda: join(suffix=1), GraphError, r"suffix=.*expected text, got 1"),
    "window and within": (
        lambda: join(window=op.tumbling("1s"), within=("0s", "1s")),
        GraphError,
        r"window= and within= exclude each other",
    ),
    "within and ttl": (lambda: join(within=("0s", "1s"), ttl="1s"), GraphError, r"within= and ttl= exclude"),
    "lateness alone": (lambda: join(lateness="1s"), GraphError, r"lateness=.*needs window= or within="),
    "lo above hi": (lambda: join(within=("1s", "0s")), ConfigurationError, r"the first duration is above the second"),
    "one duration": (lambda: join(within="1s"), ConfigurationError, r"two durations, such as \('-4s', '10s'\)"),
    "a bare number": (lambda: join(within=(0, 5)), ConfigurationError, r"within=.*must be a timedelta or text"),
    "within without event time": (
        lambda: join(of=sides(timed=False), within=("0s", "1s")),
        GraphError,
        r"within=.*needs event time, and the left side, 'left', has none.*with_watermark",
    ),
    "a time zone on one side": (
        lambda: join(of=zoned(), window=op.tumbling("1s")),
        SchemaMismatch,
        r"window=.*'at' of the left side is timestamp\[us\], and 'at' of the right side is .*tz=UTC\].*cast.*localize",
    ),
    "a time zone within": (
        lambda: join(of=zoned(), within=("0s", "1s")),
        SchemaMismatch,
        r"within=.*tz=UTC.*cast.*localize",
    ),
    "a time zone with ttl": (lambda: join(of=zoned(), ttl="1s"), SchemaMismatch, r"ttl=.*tz=UTC.*cast.*localize"),
    "a time zone as-of": (near_zoned, SchemaMismatch, r"join_asof: 'at' of the left.*tz=UTC.*cast.*localize"),
    "a session": (lambda: join(window=op.session("1s")), GraphError, r"window=.*tumbling, op.hopping and op.cumulate"),
    "emit of an inner join": (lambda: join(emit="changes"), GraphError, r"emit='changes'.*an inner join"),
    "emit of windows": (
        lambda: join(how="left", emit="final", window=op.tumbling("1s")),
        GraphError,
        r"emit='final'.*a join with window=",
    ),
    "updates": (lambda: join(of=updates_and_plain()), GraphError, r"Use emit=\"changes\".*'counts' emits updates"),
    "emit updates": (lambda: join(how="left", emit="updates"), ConfigurationError, r"'changes' or 'final'"),
    "final with ttl": (lambda: join(how="left", emit="final", ttl="1s"), GraphError, r"join\(ttl=\) needs emit="),
    "no ttl": (lambda: join(ttl="0s"), ConfigurationError, r"ttl=.*must be above zero"),
    "signed changes that expire": (
        lambda: join(of=signed_and_plain(), ttl="1s"),
        GraphError,
        r"join\(ttl=\): the left side, 'counts', has signed changes",
    ),
    "signed changes in windows": (
        lambda: join(of=signed_and_plain(), window=op.tumbling("1s")),
        GraphError,
        r"join\(window=\): the left side, 'counts', has signed changes",
    ),
    "another pipeline": (lambda: join(of=other_pipeline()), GraphError, r"belongs to another pipeline"),
    "no stream": (lambda: sides()[0].join(LEFT, on="k"), GraphError, r"expected a stream"),  # type: ignore[arg-type]
    "forward for ever": (lambda: near(strategy="forward"), GraphError, r"forward.*needs tolerance="),
    "another strategy": (lambda: near(strategy="nearest"), ConfigurationError, r"'backward' or 'forward'"),
    "full as-of": (lambda: near(how="full"), ConfigurationError, r"how=.*'inner' or 'left'"),
    "as-of of signed changes": (
        lambda: signed_and_plain()[0].join_asof(sides()[1], by="k"),
        GraphError,
        r"another pipeline",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_joined_is_refused_with_a_way_out(case: str) -> None:
    build, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        build()


def test_the_result_has_keys_then_left_then_right_columns() -> None:
    assert join().schema.names == ["k", "x", "tags", "at", "y", "name", "at_right"]
    assert near().schema.names == ["k", "x", "tags", "at", "y", "name", "at_right"]


def test_the_key_has_the_name_of_the_left_side() -> None:
    assert join(left_on="x", right_on="k").schema.names == ["x", "k", "tags", "at", "y", "name", "at_right"]


def test_windows_come_after_the_keys() -> None:
    joined = join(window=op.tumbling("1s"))
    assert joined.schema.names[:4] == ["k", "window_start", "window_end", "x"]
    assert joined.time == "window_end"


@pytest.mark.parametrize(("how", "time"), [("inner", "at"), ("left", "at"), ("right", None), ("full", None)])
def test_the_left_time_stays_event_time_if_each_row_has_one(how: str, time: str | None) -> None:
    assert join(how=how, within=("-1s", "1s")).time == time
    assert join(how=how).time is None


def test_late_rows_have_the_columns_of_their_side() -> None:
    joined = join(within=("0s", "0s"))
    assert joined.side("late").schema.equals(LEFT.schema)
    assert joined.side("late_right").schema.equals(RIGHT.schema)
    assert (joined.side("late").time, joined.side("late_right").time) == ("at", "at")


def test_a_join_that_may_lack_a_side_has_nullable_columns() -> None:
    required = [
        pa.table(table.columns, pa.schema([f.with_nullable(nullable=False) for f in table.schema]))
        for table in (LEFT.drop(["tags"]), RIGHT)
    ]
    of = sides(left=required[0], right=required[1])
    nullable = {f.name: f.nullable for f in join(of=of, how="left", within=("0s", "0s")).schema}
    assert not nullable["k"]
    assert not nullable["x"]
    assert nullable["y"]


@pytest.mark.parametrize(
    ("how", "emit", "changes"),
    [("inner", None, "rows"), ("left", None, "rows"), ("left", "final", "rows"), ("full", "changes", "signed")],
)
def test_bounded_outer_joins_are_final_by_default(how: str, emit: str | None, changes: str) -> None:
    assert join(how=how, emit=emit).changes == changes


def test_outer_joins_of_unbounded_input_emit_changes() -> None:
    p = flow.Pipeline()
    left = p.source(op.generate({"id": op.sequence()}), name="endless")
    right = p.source(op.from_arrow(pa.table({"n": [1]})), name="right")
    assert left.join(right, left_on="id", right_on="n", how="left").changes == "signed"


def test_only_the_columns_that_are_used_are_read() -> None:
    left, right = sides()
    joined = left.join(right, on="k", name="join").select("x", "name")
    with joined._pipeline as p:
        joined.sink(op.collect(), name="out")
    from dataflow.planning.physical_plan import make_plan

    schemas = {node.name: node.schema.names for node in make_plan(p.graph).graph}
    assert schemas["join"] == ["k", "x", "name"]
    assert (schemas["left"], schemas["right"]) == (["k", "x", "at"], ["k", "name", "at"])
