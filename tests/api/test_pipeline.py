"""The user's words: what they build, and what they refuse while the graph is built."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any, get_overloads

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col, lit
from dataflow.errors import ConfigurationError, GraphError, SchemaMismatch, UnknownColumn
from dataflow.planning.aggregate_specs import Emit

BIDS = pa.table({"auction": [1, 2, 1], "price": [5, 7, 9], "note": ["a", None, "c"]})


def bids(p: flow.Pipeline | None = None, **options: Any) -> flow.Stream:
    return (p or flow.Pipeline("bids")).source(op.from_arrow(BIDS), **options)


class Endless(flow.Source):
    """A source that never ends, as far as the graph knows."""

    bounded = False

    @property
    def schema(self) -> pa.Schema:
        return BIDS.schema

    def splits(self) -> list[flow.Split]:
        return []

    def reader(self, split: flow.Split, offset: Any, context: Any) -> flow.SplitReader:
        raise NotImplementedError("never run")


# --- schemas


def test_a_stream_knows_its_schema_while_it_is_built() -> None:
    stream = bids().filter(col("price") > 5).with_columns(double=col("price") * 2).select("auction", "double")
    assert stream.schema == pa.schema([("auction", pa.int64()), ("double", pa.int64())])


def test_select_gives_exactly_these_columns_in_this_order() -> None:
    assert bids().select("note", (col("price") + 1).alias("more"), "auction").schema.names == [
        "note",
        "more",
        "auction",
    ]


def test_with_columns_replaces_in_place_and_adds_at_the_end() -> None:
    stream = bids().with_columns(col("price").cast("float64"), twice=col("price") * 2, auction=lit("x"))
    assert stream.schema.names == ["auction", "price", "note", "twice"]
    assert [str(t) for t in stream.schema.types] == ["string", "double", "string", "int64"]


def test_with_columns_may_swap_two_columns() -> None:
    swapped = bids().with_columns(price=col("auction"), auction=col("price")).collect()
    assert swapped["price"].to_pylist() == [1, 2, 1]
    assert swapped["auction"].to_pylist() == [5, 7, 9]


def test_map_batches_has_the_schema_it_is_given_or_that_of_its_input() -> None:
    assert bids().map_batches(lambda batch: batch).schema == BIDS.schema
    assert bids().map_batches(lambda b: b.select(["note"]), schema=pa.schema([("note", pa.string())])).schema.names == [
        "note"
    ]


def test_agg_gives_the_keys_and_then_the_aggregates() -> None:
    stream = bids().key_by("note").agg(op.count().alias("n"), col("price").max(), top=col("price").mean())
    assert stream.schema.names == ["note", "n", "price_max", "top"]
    assert [str(t) for t in stream.schema.types] == ["string", "int64", "int64", "double"]


def test_key_by_changes_no_column() -> None:
    keyed = bids().key_by("auction", "note")
    assert keyed.schema == BIDS.schema
    assert keyed.keys == ("auction", "note")


# --- columns that are not there


WRONG_COLUMN: dict[str, Callable[[flow.Stream], object]] = {
    "filter": lambda s: s.filter(col("prize") > 0),
    "select": lambda s: s.select("auction", "prize"),
    "with_columns": lambda s: s.with_columns(x=col("prize") + 1),
    "key_by": lambda s: s.key_by("prize"),
    "agg": lambda s: s.key_by("auction").agg(col("prize").sum()),
}


@pytest.mark.parametrize("where", WRONG_COLUMN)
def test_an_unknown_column_is_named_with_a_hint_and_the_valid_ones(where: str) -> None:
    with pytest.raises(UnknownColumn) as caught:
        WRONG_COLUMN[where](bids())
    text = str(caught.value)
    assert text.startswith(where)
    assert "no column 'prize' (did you mean 'price'?)" in text
    assert "'auction', 'price', 'note'" in text


def test_a_column_that_was_dropped_is_unknown_further_down() -> None:
    with pytest.raises(UnknownColumn, match=r"valid columns: \['auction'\]"):
        bids().select("auction").filter(col("price") > 0)


# --- what each word refuses


def test_a_filter_takes_the_name_of_a_boolean_column() -> None:
    flags = flow.Pipeline().source(op.from_arrow(pa.table({"n": [1, 2, 3], "kept": [True, None, False]})))
    assert flags.filter("kept").collect()["n"].to_pylist() == [1]


REFUSED: dict[str, tuple[Callable[[flow.Stream], object], type[Exception], str]] = {
    "a filter by a number": (lambda s: s.filter(col("price") + 1), SchemaMismatch, "boolean .* of type int64"),
    "a filter by a bool": (lambda s: s.filter(True), GraphError, r"filter: expected .* got True \(bool\)"),  # type: ignore[arg-type]  # noqa: FBT003
    "a select of nothing": (lambda s: s.select(), GraphError, "select: no column is given"),
    "a select of a number": (lambda s: s.select(3), GraphError, r"select: expected .* got 3 \(int\)"),  # type: ignore[arg-type]
    "a column twice": (
        lambda s: s.select("price", "price"),
        GraphError,
        r"duplicate column 'price'; .*col\(.*alias",
    ),
    "an alias twice": (
        lambda s: s.with_columns(col("auction").alias("x"), x=col("price")),
        GraphError,
        "duplicate column 'x'",
    ),
    "keys of nothing": (lambda s: s.key_by(), GraphError, "key_by: no key is given"),
    "a key twice": (
        lambda s: s.key_by("price", "price"),
        GraphError,
        "duplicate column 'price'; name each key once",
    ),
    "aggregates of nothing": (lambda s: s.key_by("price").agg(), GraphError, "agg: no aggregate is given"),
    "a column as aggregate": (
        lambda s: s.key_by("note").agg(col("price")),  # type: ignore[arg-type]
        GraphError,
        r"agg: expected aggregates such as .* got col\('price'\)",
    ),
    "an aggregate called as its key": (
        lambda s: s.key_by("note").agg(op.count().alias("note")),
        GraphError,
        "duplicate column 'note'",
    ),
    "two aggregates of one name": (
        lambda s: s.key_by("note").agg(n=op.count()).key_by("n").agg(op.count(), op.count()),
        GraphError,
        "duplicate column 'count'",
    ),
    "a variance of text": (
        lambda s: s.key_by("price").agg(col("note").variance()),
        SchemaMismatch,
        r"variance takes integers, floats or decimals, but col\('note'\) is string",
    ),
    "the row with the least text": (
        lambda s: s.key_by("price").agg(col("price").arg_min("note")),
        SchemaMismatch,
        r"arg_min compares numbers, booleans, dates or times, but col\('note'\) is string",
    ),
    "half a subtask": (lambda s: s.select("price", parallelism=2.5), GraphError, "whole number of at least 1"),  # type: ignore[arg-type]
    "a sum of text": (
        lambda s: s.key_by("price").agg(col("note").sum()),
        SchemaMismatch,
        "sum takes integers, floats, booleans.*string",
    ),
    "a map of no function": (lambda s: s.map_batches("f"), GraphError, "expected a function, got str"),  # type: ignore[arg-type]
    "a map to no schema": (
        lambda s: s.map_batches(lambda b: b, schema={"x": int}),  # type: ignore[arg-type]
        GraphError,
        r"map_batches\(schema=\): expected a pyarrow.Schema, got \{'x'.*\(dict\)",
    ),
    "an operator with no schema": (
        lambda s: s.apply(flow.Operator, schema=["x"]),  # type: ignore[arg-type]
        GraphError,
        r"apply\(schema=\): expected a pyarrow.Schema, got \['x'\] \(list\)",
    ),
    "a sink that is none": (lambda s: s.sink(print), GraphError, "sink: expected a Sink such as .* got builtin"),  # type: ignore[arg-type]
    "a name of nothing": (lambda s: s.filter(col("price") > 1, name=""), GraphError, "must not be empty"),
    "no subtask": (lambda s: s.filter(col("price") > 1, parallelism=0), GraphError, "at least 1, got 0"),
    "an emission that is none": (
        lambda s: s.key_by("note").agg(op.count(), emit="last"),
        ConfigurationError,
        r"agg\(emit=\) must be one of \['updates', 'changes', 'final'\], got 'last'",
    ),
    "final at intervals": (
        lambda s: s.key_by("note").agg(op.count(), emit="final", every="1s"),
        ConfigurationError,
        "needs emit='updates' or 'changes', got emit='final'",
    ),
    "a bare number as time": (
        lambda s: s.key_by("note").agg(op.count(), every=10),  # type: ignore[arg-type]
        ConfigurationError,
        r"agg\(every=\) must be a timedelta or text such as .* got 10 \(int\)",
    ),
    "no time at all": (
        lambda s: s.key_by("note").agg(op.count(), every="0s"),
        ConfigurationError,
        r"agg\(every=\)",
    ),
    "a head of less than nothing": (lambda s: s.head(-1), ConfigurationError, "at least 0, got -1"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_refuses(what: str) -> None:
    build, kind, text = REFUSED[what]
    with pytest.raises(kind, match=text):
        build(bids())


@pytest.mark.parametrize("name", ["a/b", "a[0]", "a\\b", ".hidden", "nul\0", ""])
def test_a_name_that_cannot_be_a_file_is_refused(name: str) -> None:
    with pytest.raises(GraphError, match="becomes part of file names"):
        bids(name=name)


def test_two_operators_of_one_name_are_refused() -> None:
    p = flow.Pipeline()
    bids(p, name="bids")
    with pytest.raises(GraphError, match="two operators are called 'bids'; checkpoints find state by name"):
        bids(p, name="bids")


def test_a_source_that_is_none_is_refused_with_the_way_out() -> None:
    with pytest.raises(GraphError, match=r"expected a Source .* got Table; wrap tables in op.from_arrow"):
        flow.Pipeline().source(BIDS)


def test_a_refusal_leaves_the_graph_as_it_was() -> None:
    p = flow.Pipeline()
    stream, before = bids(p), repr(p)
    for build in WRONG_COLUMN.values():
        with pytest.raises(UnknownColumn):
            build(stream)
    assert repr(p) == before


# --- unions and branches


def test_a_union_of_other_columns_says_both() -> None:
    p = flow.Pipeline()
    with pytest.raises(SchemaMismatch, match=r"'source' has \[auction: int64.* and 'select' has \[price: int64\]"):
        bids(p).union(bids(p, name="more").select("price"))


def test_a_union_of_times_with_and_without_a_zone_says_which_column_to_cast() -> None:
    p = flow.Pipeline()
    tables = {zone: pa.table({"at": pa.array([0], pa.timestamp("s", zone))}) for zone in (None, "UTC")}
    naive, zoned = (p.source(op.from_arrow(table), name=str(zone)) for zone, table in tables.items())
    with pytest.raises(SchemaMismatch, match=r"union: 'at' of 'None' is timestamp\[s\], and 'at' of .*UTC.*cast"):
        zoned.union(naive)


def test_a_union_of_columns_that_may_and_may_not_be_null_says_so() -> None:
    p = flow.Pipeline()
    strict = pa.table([[1]], schema=pa.schema([pa.field("v", pa.int64(), nullable=False)]))
    one = p.source(op.from_arrow(strict), name="one")
    with pytest.raises(SchemaMismatch, match=r"has \[v: int64 not null\] and .* has \[v: int64\]"):
        one.union(p.source(op.from_arrow(pa.table({"v": [1]})), name="other"))


def test_a_union_with_another_pipeline_is_refused() -> None:
    with pytest.raises(GraphError, match=r"'source' belongs to another pipeline \('b', not 'a'\); begin both"):
        bids(flow.Pipeline("a")).union(bids(flow.Pipeline("b")))
    with pytest.raises(GraphError, match="'source' belongs to another pipeline; begin both"):
        bids(flow.Pipeline("a")).union(bids(flow.Pipeline("a")))


def test_a_union_has_the_rows_of_all() -> None:
    p = flow.Pipeline()
    union = bids(p, name="a").union(bids(p, name="b"), bids(p, name="c"))
    assert sorted(union.collect()["price"].to_pylist()) == sorted([5, 7, 9] * 3)


def test_a_stream_used_twice_branches() -> None:
    with flow.Pipeline() as p:
        stream = bids(p)
        stream.filter(col("price") > 5).sink(op.collect(), name="high")
        stream.filter(col("price") <= 5).sink(op.collect(), name="low")
        stream.sink(op.collect(), name="all")
    result = p.run()
    assert {name: table.num_rows for name, table in result.tables.items()} == {"high": 2, "low": 1, "all": 3}


def test_a_branch_may_come_together_again() -> None:
    stream = bids()
    diamond = stream.filter(col("price") > 5).union(stream.filter(col("price") <= 5))
    assert sorted(diamond.collect(parallelism=2)["price"].to_pylist()) == [5, 7, 9]


# --- emissions


def test_bounded_input_emits_final_rows_unless_told_otherwise() -> None:
    stream = bids().key_by("auction")
    assert emission(stream.agg(op.count())) is Emit.FINAL
    assert emission(stream.agg(op.count(), every="1s")) is Emit.UPDATES
    assert emission(stream.agg(op.count(), emit="updates")) is Emit.UPDATES
    assert emission(stream.agg(op.count(), emit=Emit.UPDATES, every=timedelta(seconds=1))) is Emit.UPDATES


def test_unbounded_input_emits_updates() -> None:
    stream = flow.Pipeline().source(Endless()).key_by("auction")
    assert emission(stream.agg(op.count())) is Emit.UPDATES


def emission(stream: flow.Stream) -> Emit:
    found: Emit = stream._node.spec.emit  # type: ignore[union-attr]
    return found


# --- the with-block, and running


def test_forgetting_the_sink_is_found_when_the_block_is_left() -> None:
    with (
        pytest.raises(GraphError, match=r"'filter' has no sink; end the stream with .sink"),
        flow.Pipeline() as p,
    ):
        bids(p).filter(col("price") > 0)


def test_an_empty_pipeline_is_refused() -> None:
    with pytest.raises(GraphError, match=r"add a source with p.source"), flow.Pipeline():
        pass


def test_an_error_in_the_block_is_not_covered_up() -> None:
    with pytest.raises(ZeroDivisionError), flow.Pipeline() as p:
        bids(p, parallelism=1 // 0)


def test_without_a_block_the_check_comes_with_the_run() -> None:
    p = flow.Pipeline()
    bids(p).filter(col("price") > 0)
    with pytest.raises(GraphError, match="has no sink"):
        p.run()


def test_a_pipeline_runs_any_number_of_times() -> None:
    with flow.Pipeline() as p:
        bids(p).key_by("auction").agg(op.count()).sink(op.collect(), name="out")
    assert p.run().table().sort_by("auction") == p.run().table().sort_by("auction")


def test_collect_runs_only_what_the_stream_depends_on() -> None:
    p = flow.Pipeline()
    stream = bids(p)
    stream.map_batches(explode)
    assert stream.filter(col("price") > 5).collect()["price"].to_pylist() == [7, 9]


def test_collect_keeps_the_pipeline_as_it_was() -> None:
    p = flow.Pipeline()
    stream, before = bids(p), repr(p)
    assert stream.collect().equals(stream.collect())
    assert repr(p) == before


def explode(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise RuntimeError("this branch must not run")


@pytest.mark.parametrize("n", [0, 1, 2, 3, 100])
def test_head_gives_at_most_n_rows(n: int) -> None:
    assert bids().head(n).num_rows == min(n, 3)


def test_head_stops_a_job_that_would_go_on() -> None:
    source = op.paced(op.from_arrow(pa.table({"x": range(1_000_000)}), batch_rows=10), 1_000)
    assert flow.Pipeline().source(source).head(3)["x"].to_pylist() == [0, 1, 2]


def test_an_unknown_runner_is_refused_with_a_hint() -> None:
    with flow.Pipeline() as p:
        bids(p).sink(op.collect())
    with pytest.raises(ConfigurationError, match="did you mean 'local'"):
        p.run("locl")


def test_a_pipeline_and_its_streams_describe_themselves() -> None:
    p = flow.Pipeline("bids")
    stream = bids(p).key_by("auction").agg(n=op.count())
    assert repr(stream) == "Stream('agg', [auction: int64, n: int64])"
    assert repr(p).splitlines() == [
        "Pipeline('bids')",
        "  source = read() -> [auction, price, note]",
        "  agg = aggregate(source by auction) -> [auction, n]",
    ]


@pytest.mark.parametrize("method", ["run", "start", "explain"])
@pytest.mark.parametrize(
    ("runner", "option", "problem"),
    [
        (
            "local",
            "parallelsim",
            r"runner 'local' has no option 'parallelsim' \(did you mean 'parallelism'\?\); it takes ",
        ),
        (flow.LocalRunner(), "checkpoints", r"LocalRunner has no option 'checkpoints' \(did you mean 'checkpoint'\?\)"),
        ("spark", "channel_credit", "runner 'spark' has no option 'channel_credit'; it takes parallelism, "),
    ],
    ids=["local", "object", "spark"],
)
def test_an_option_that_a_runner_does_not_have_is_refused_by_name(
    method: str, runner: Any, option: str, problem: str
) -> None:
    with flow.Pipeline("options") as p:
        p.source(op.from_arrow(pa.table({"x": [1]})), name="in").sink(op.collect(), name="out")
    with pytest.raises(ConfigurationError, match=f"^{method}: {problem}"):
        getattr(p, method)(runner, **{option: 1})


def test_a_runner_of_a_user_takes_the_options_that_it_names() -> None:
    class Recorder:
        def start(self, pipeline: flow.Pipeline, colour: str, **others: Any) -> Any:
            return colour, others

    with flow.Pipeline("options") as p:
        p.source(op.from_arrow(pa.table({"x": [1]})), name="in").sink(op.collect(), name="out")
    assert p.start(Recorder(), colour="red", size=3) == ("red", {"size": 3})  # type: ignore[comparison-overlap]


def signature(call: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(call).parameters)


@pytest.mark.parametrize("method", ["run", "start", "explain"])
def test_the_options_that_are_spelt_out_are_those_of_the_runners(method: str) -> None:
    runners = {"local": flow.LocalRunner, "simulated": flow.SimulatedRunner, "spark": flow.SparkRunner}
    seen = []
    for overload in get_overloads(getattr(flow.Pipeline, method)):
        shown = signature(overload)
        name = next((name for name in runners if repr(name) in shown["runner"].annotation), None)
        if name is not None:
            call = getattr(runners[name], "explain" if method == "explain" else "start")
            real = {
                n: p.default for n, p in inspect.signature(call).parameters.items() if n not in ("self", "pipeline")
            }
            spelt = {n: p.default for n, p in shown.items() if n not in ("self", "runner", "timeout")}
            assert spelt == real, name
            seen.append(name)
    assert seen == (["local", "spark"] if method == "explain" else list(runners))


@pytest.mark.parametrize("runner", ["local", "simulated"])
def test_numbers_that_are_none_are_the_runners_own(runner: str) -> None:
    with flow.Pipeline() as p:
        p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
    result = p.run(runner, parallelism=None, max_key_groups=None)
    assert [task.task for task in result.metrics] == [task.task for task in p.run(runner).metrics]
    if runner == "local":
        assert str(p.explain(parallelism=None, max_key_groups=None)) == str(p.explain())
