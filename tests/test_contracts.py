"""Users' operators, sinks and sources are held to their contracts where they break them, and are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import CleanupFailedWarning, ContractViolation, GraphError, SchemaMismatch
from dataflow.expressions import col
from dataflow.source import END, SourceContext, Split, SplitReader

ROWS = pa.table({"a": [1, 2, 3, 4], "b": [10, 20, 30, 40], "w": [7, 7, 8, 8]})
AWB = pa.schema({"a": pa.int64(), "w": pa.int64(), "b": pa.int64()})
RUNNERS = ["local", "simulated"]
everywhere = pytest.mark.parametrize("runner", RUNNERS)


def checkpoints() -> flow.Checkpointing:
    return flow.Checkpointing(flow.MemoryStore(), every="1ms")


def doing(**methods: Callable[..., Any]) -> type[flow.Operator]:
    """An operator class with these methods; it passes rows on where they do not say otherwise."""
    passing = {"process": lambda self, port, batch, out: out.emit(batch)}
    return type("Mine", (flow.Operator,), {**passing, **methods})


def emitting(make: Callable[[pa.RecordBatch], Any], tag: str | None = None) -> type[flow.Operator]:
    return doing(process=lambda self, port, batch, out: out.emit(make(batch), tag))


def run(operator: Any, runner: str = "local", schema: pa.Schema | None = None, **options: Any) -> pa.Table:
    rows = flow.Pipeline().source(op.from_arrow(ROWS, batch_rows=2), name="in")
    return rows.apply(operator, schema=schema, name="mine").collect(runner=runner, **options)


def said(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


# --- columns


@everywhere
def test_columns_that_are_emitted_in_another_order_keep_their_names(runner: str) -> None:
    found = run(emitting(lambda batch: batch), runner, AWB)
    assert found.select(["a", "b", "w"]).equals(ROWS)
    assert found.schema.names == ["a", "w", "b"]


def test_columns_of_another_order_are_right_behind_an_expression_and_a_key() -> None:
    rows = flow.Pipeline().source(op.from_arrow(ROWS), name="in")
    swapped = rows.apply(emitting(lambda batch: batch), schema=AWB)
    kept = swapped.filter(col("w") == 8).key_by("w").agg(total=col("b").sum())
    assert kept.collect(parallelism=2).to_pylist() == [{"w": 8, "total": 70}]


def test_nullability_and_metadata_of_emitted_columns_do_not_matter() -> None:
    odd = pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.int64()), ("w", pa.int64())], {"k": "v"})
    found = run(emitting(lambda batch: pa.record_batch(batch.columns, schema=odd)))
    assert found.equals(ROWS)
    assert found.schema.equals(ROWS.schema, check_metadata=True)


@everywhere
@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda batch: batch.select(["a", "b"]), r"column 'w' \(int64\) is missing"),
        (lambda batch: batch.append_column("x", batch["a"]), r"column 'x' is not in the declared schema"),
        (lambda batch: batch.set_column(1, "b", batch["b"].cast("int32")), "column 'b' should be int64 but is int32"),
        (lambda batch: batch.rename_columns(["a", "b", "b"]), "column 'b' occurs twice"),
        (lambda batch: batch.select(["a"]).slice(0, 0), r"column 'b' \(int64\) is missing"),
    ],
)
def test_an_operator_that_emits_other_columns_is_refused_by_name(runner: str, make: Any, problem: str) -> None:
    with pytest.raises(SchemaMismatch, match=rf"operator 'mine', subtask .*\[0\]: what it emitted.*{problem}"):
        run(emitting(make), runner)


def test_the_error_shows_what_was_declared_and_what_was_found() -> None:
    with pytest.raises(SchemaMismatch) as caught:
        run(emitting(lambda batch: batch.select(["b", "a"])), schema=AWB)
    assert "declared [a: int64, w: int64, b: int64], found [b: int64, a: int64]; change the operator" in str(
        caught.value
    )


def test_dictionaries_of_a_declared_plain_text_are_refused() -> None:
    text = pa.schema({"t": pa.string()})
    coded = emitting(lambda batch: pa.record_batch({"t": pa.array(["x"]).dictionary_encode()}))
    with pytest.raises(SchemaMismatch, match="column 't' should be string but is dictionary"):
        run(coded, schema=text)


@everywhere
def test_what_is_no_batch_is_refused_with_its_operator_and_subtask(runner: str) -> None:
    with pytest.raises(ContractViolation, match=r"operator 'mine' \(Mine\), subtask .*\[0\] emitted a Table"):
        run(emitting(lambda batch: pa.Table.from_batches([batch])), runner)


# --- tags


@everywhere
def test_rows_with_an_undeclared_tag_fail_the_job(runner: str) -> None:
    with pytest.raises(ContractViolation, match=r"operator 'mine' .* emitted with tag 'odd', but it has none"):
        run(emitting(lambda batch: batch, "odd"), runner)


def test_a_side_output_without_a_schema_has_the_columns_of_the_main_one() -> None:
    rows = flow.Pipeline().source(op.from_arrow(ROWS), name="in")
    side = rows.apply(emitting(lambda batch: batch, "odd"), schema=AWB, sides={"odd": None}).side("odd")
    assert side.schema == AWB
    assert side.collect().equals(ROWS.select(AWB.names))


def test_rows_of_a_side_output_are_held_to_its_schema() -> None:
    rows = flow.Pipeline().source(op.from_arrow(ROWS), name="in")
    side = rows.apply(emitting(lambda batch: batch, "odd"), sides={"odd": pa.schema({"z": pa.int64()})}).side("odd")
    with pytest.raises(SchemaMismatch, match=r"emitted with tag 'odd' .*column 'z' \(int64\) is missing"):
        side.collect()


@pytest.mark.parametrize(
    "make", [lambda s: s, lambda s: s.filter("c"), lambda s: s.apply(doing()), lambda s: s.union(s)]
)
def test_a_side_output_that_is_not_declared_is_an_error_of_the_graph(make: Any) -> None:
    stream = flow.Pipeline().source(op.from_arrow(pa.table({"c": [True]})))
    with pytest.raises(GraphError, match="has no side output 'x'; it has none"):
        make(stream).side("x")


def test_a_side_output_called_late_has_no_event_time_but_behind_a_window() -> None:
    times = pa.table({"ts": pa.array([0], pa.timestamp("us"))})
    timed = flow.Pipeline().source(op.from_arrow(times)).with_watermark("ts")
    assert timed.apply(doing(), sides={"late": ROWS.schema}).side("late").time is None


@pytest.mark.parametrize("sides", [["odd"], {"": None}, {3: None}, "odd"])
def test_sides_that_are_no_dict_from_tag_to_schema_are_refused(sides: Any) -> None:
    with pytest.raises(GraphError, match=r"apply\(sides=\): expected a dict from tag"):
        flow.Pipeline().source(op.from_arrow(ROWS)).apply(doing(), sides=sides)


TWICE = pa.schema([("a", pa.int64()), ("a", pa.int64())])


@pytest.mark.parametrize("options", [{"schema": TWICE}, {"sides": {"odd": TWICE}}])
def test_a_schema_with_two_columns_of_one_name_is_refused(options: Any) -> None:
    with pytest.raises(GraphError, match=r"^apply\(.*'a' is declared more than once in \[a: int64, a: int64\]"):
        flow.Pipeline().source(op.from_arrow(ROWS)).apply(doing(), **options)


def test_a_writer_that_emits_rows_is_told_that_nothing_takes_them() -> None:
    with pytest.raises(ContractViolation, match=r"operator 'out' .*emitted rows, but it is the end of a stream"):
        write(emitting(lambda batch: batch))


# --- what methods return


@everywhere
@pytest.mark.parametrize(
    ("method", "returned", "shown"),
    [
        ("process", [1], "a list"),
        ("process", pa.record_batch({"a": [1]}), "a pyarrow.lib.RecordBatch"),
        ("advance", True, "True"),
        ("finish", False, "False"),
    ],
)
def test_a_method_that_returns_no_generator_is_named(runner: str, method: str, returned: Any, shown: str) -> None:
    with pytest.raises(
        ContractViolation, match=rf"operator 'mine' .*: {method}\(\) returns None or .*returned {shown}"
    ):
        run(doing(**{method: lambda self, *_: returned}), runner)


def test_a_timer_that_returns_no_generator_is_named() -> None:
    asks = doing(open=lambda self: self.context.schedule(0), timer=lambda self, due, out: [])
    with pytest.raises(ContractViolation, match=r"timer\(\) returns None or a generator, but returned a list"):
        run(asks)


def test_a_batch_that_is_yielded_and_not_emitted_is_an_error() -> None:
    def process(self: Any, port: int, batch: Any, out: Any) -> Iterator[Any]:
        yield batch

    with pytest.raises(ContractViolation, match=r"it yielded a RecordBatch; send rows with out.emit"):
        run(doing(process=process))


def test_a_plain_iterator_may_be_returned() -> None:
    def process(self: Any, port: int, batch: Any, out: Any) -> Any:
        out.emit(batch)
        return iter([None, None])

    assert run(doing(process=process)).equals(ROWS)


def test_an_open_that_yields_is_an_error_because_it_did_not_run() -> None:
    def opened(self: Any) -> Iterator[None]:
        yield

    with pytest.raises(ContractViolation, match=r"open\(\) is a plain method, but returned a generator"):
        run(doing(open=opened))


@everywhere
@pytest.mark.parametrize(
    ("snapshot", "problem"),
    [
        ({"n": 1}, r"snapshot\(\) returns a Snapshot, but returned a dict"),
        (None, r"snapshot\(\) returns a Snapshot, but returned None"),
        (flow.Snapshot({"n": np.int64(3)}), r"values\['n'\] is a int64, which JSON cannot say.*int\(...\)"),
        (flow.Snapshot({"n": np.float64(3)}), r"values\['n'\] is a float64"),
        (flow.Snapshot({"n": {1}}), r"values\['n'\] is a set"),
        (flow.Snapshot({"n": float("nan")}), r"values\['n'\] is nan"),
        (flow.Snapshot([1]), r"values and tables of a Snapshot are dicts, but are a list"),  # type: ignore[arg-type]
        (flow.Snapshot({}, {"t": pa.record_batch({"a": [1]})}), r"tables\['t'\] is a pyarrow.lib.RecordBatch"),  # type: ignore[dict-item]
    ],
)
def test_a_snapshot_that_no_checkpoint_can_hold_names_its_operator(runner: str, snapshot: Any, problem: str) -> None:
    with pytest.raises(ContractViolation, match=r"operator 'mine' \(Mine\), subtask .*\[0\]: .*" + problem):
        run(doing(snapshot=lambda self: snapshot), runner, checkpoint=checkpoints())


@pytest.mark.parametrize(
    ("process", "makes_time", "problem"),
    [
        (lambda self, port, batch, out: out.watermark(3), False, "does not say makes_time = True"),
        (lambda self, port, batch, out: out.idle(), False, r"calls out.idle\(\), but does not say makes_time = True"),
        (lambda self, port, batch, out: out.watermark("3"), True, "takes microseconds as an int, got '3'"),
        (
            lambda self, port, batch, out: self.context.schedule(None),
            False,
            "takes microseconds of the clock, got None",
        ),
        (
            lambda self, port, batch, out: self.context.schedule(float("nan")),
            False,
            "takes microseconds of the clock, got nan",
        ),
    ],
)
def test_a_time_that_is_none_or_not_announced_is_refused(process: Any, makes_time: object, problem: str) -> None:
    with pytest.raises(ContractViolation, match="operator 'mine'.*" + problem):
        run(type("Timed", (flow.Operator,), {"process": process, "makes_time": makes_time}))


# --- building, opening, closing


def failing(*_: Any) -> Any:
    raise ValueError("no")


@everywhere
@pytest.mark.parametrize("method", ["__init__", "open"])
def test_an_operator_that_cannot_be_built_or_opened_is_named(runner: str, method: str) -> None:
    with pytest.raises(ValueError, match="no") as caught:
        run(doing(**{method: failing}), runner)
    assert "operator 'mine'" in said(caught.value)
    assert "[0]" in said(caught.value)


def test_an_operator_that_cannot_be_closed_is_named_in_a_warning() -> None:
    with pytest.warns(
        CleanupFailedWarning, match=r"no.*raised while operator 'mine' \(Mine\), subtask in\[0\] was closed"
    ):
        assert run(doing(close=failing)).equals(ROWS)


@everywhere
@pytest.mark.parametrize("made", [None, {}, flow.Operator])
def test_a_factory_that_makes_no_operator_is_named(runner: str, made: Any) -> None:
    with pytest.raises(ContractViolation, match=r"operator 'mine', subtask in\[0\]: expected an Operator"):
        run(lambda context: made, runner)


@pytest.mark.parametrize("runner", [*RUNNERS])
def test_an_operator_without_a_constructor_keeps_its_context(runner: str) -> None:
    named = emitting(lambda batch: batch)
    asked = []
    named.open = lambda self: asked.append(self.context.name)  # type: ignore[assignment,method-assign,misc]
    assert run(named, runner).equals(ROWS)
    assert asked == ["mine"]


def test_a_constructor_of_its_own_need_not_call_that_of_operator() -> None:
    assert run(doing(__init__=lambda self, context: None)).equals(ROWS)


# --- sinks


class Kept(flow.Sink):
    """A sink with any writer."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def writer(self, context: flow.OperatorContext) -> Any:
        return self._writer(context)


class Staged(Kept, flow.TwoPhaseSink):
    def begin(self) -> None: ...

    def commit(self, checkpoint: int, handles: Any) -> None: ...

    def recover(self, checkpoint: int, handles: Any) -> None: ...


def write(writer: Any, sink: type[Kept] = Kept) -> None:
    with flow.Pipeline() as p:
        p.source(op.from_arrow(ROWS, batch_rows=2), name="in").sink(sink(writer), name="out")
    p.run(checkpoint=checkpoints())


def preparing(handles: Any) -> type[flow.TwoPhaseWriter]:
    class Writer(flow.TwoPhaseWriter):
        def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None: ...

        def prepare(self, checkpoint: int) -> Any:
            return handles

    return Writer


@pytest.mark.parametrize(
    ("handles", "problem"),
    [
        (None, r"prepare\(\) returns a sequence of handles, \(\) for none, but returned None"),
        ({"name": "x"}, r"prepare\(\) returns a sequence of handles, .*returned a dict"),
        (["x"], r"a handle is a dict of JSON, but prepare\(\) returned a str"),
        ([{"n": np.int64(1)}], r"handle 0\['n'\] is a int64, which JSON cannot say"),
    ],
)
def test_a_writer_that_prepares_no_handles_is_named(handles: Any, problem: str) -> None:
    with pytest.raises(ContractViolation, match=rf"operator 'out' \(Writer\), subtask .*: .*{problem}"):
        write(preparing(handles), Staged)


def test_a_writer_that_prepares_handles_of_json_is_taken() -> None:
    write(preparing([{"n": [1, None, "x"]}]), Staged)


@pytest.mark.parametrize(("sink", "writer"), [(Kept, preparing(())), (Staged, doing())])
def test_a_writer_in_two_phases_belongs_to_such_a_sink_or_nothing_is_committed(sink: Any, writer: Any) -> None:
    with pytest.raises(ContractViolation, match=r"operator 'out', subtask .*its rows would never be committed"):
        write(writer, sink)


def test_a_sink_without_a_writer_is_named() -> None:
    with pytest.raises(ContractViolation, match=r"operator 'out', subtask .*: expected an Operator, .*returned None"):
        write(lambda context: None)


# --- sources


class Once(SplitReader):
    """Gives one batch and ends."""

    def __init__(self, polled: Any, at: Any = 1, aside: Any = None) -> None:
        self.polled, self.at, self.aside, self.left = polled, at, aside, [polled]

    def poll(self, max_rows: int) -> Any:
        return self.left.pop() if self.left else END

    def rejected(self) -> Any:
        return self.aside

    @property
    def offset(self) -> Any:
        return self.at


class Given(flow.Source):
    """A source with any reader and any splits."""

    schema = AWB

    def __init__(self, reader: Any = None, splits: Any = None, selected: Any = None) -> None:
        self.made, self.parts, self.selected = reader, splits or [Split("one")], selected

    def splits(self) -> Any:
        return self.parts

    def reader(self, split: Split, offset: Any, context: SourceContext) -> Any:
        if isinstance(self.made, Once):
            return Once(self.made.polled, self.made.at, self.made.aside)
        return self.made

    def select(self, columns: Any) -> Any:
        return self.selected or self


def read(source: Given, runner: str = "local") -> pa.Table:
    return flow.Pipeline().source(source, name="given").collect(runner=runner)


BATCH = ROWS.to_batches()[0]


@everywhere
def test_columns_that_a_reader_gives_in_another_order_keep_their_names(runner: str) -> None:
    assert read(Given(Once(BATCH)), runner).equals(ROWS.select(AWB.names))


@everywhere
@pytest.mark.parametrize(
    ("reader", "problem"),
    [
        (Once(BATCH.select(["a", "b"])), r"a batch of its reader does not have .*column 'w' \(int64\) is missing"),
        (Once(ROWS), r"split 'one': poll\(\) returns a pa.RecordBatch, None or .*returned a pyarrow.lib.Table"),
        (Once([BATCH]), r"poll\(\) returns .*returned a list"),
        (Once(BATCH, np.int64(4)), r"split 'one': offset is a int64, which JSON cannot say"),
        (Once(BATCH, {"at": {1}}), r"offset\['at'\] is a set"),
        (Once(BATCH, aside=BATCH), r"rejected\(\) returned 4 rows, but the source has no side output 'errors'"),
        (Once(BATCH, aside=[1]), r"rejected\(\) returns a pa.RecordBatch or None, but returned a list"),
        (None, r"split 'one': reader\(\) returns a SplitReader, but returned None"),
        (iter([BATCH]), r"reader\(\) returns a SplitReader, but returned a list_iterator"),
    ],
)
def test_a_reader_that_gives_something_else_is_named(runner: str, reader: Any, problem: str) -> None:
    with pytest.raises(
        (ContractViolation, SchemaMismatch), match=rf"source 'given' \(Given\), .*given\[0\].*{problem}"
    ):
        read(Given(reader), runner)


@pytest.mark.parametrize(
    ("splits", "problem"),
    [
        ([Split("a"), Split("a")], "two splits are called 'a'"),
        (["a"], "a string and a dict of JSON, but has a str"),
        ([Split(3)], "but has a dataflow.source.Split"),  # type: ignore[arg-type]
        ([Split("a", {"n": np.int64(1)})], r"split 'a': info\['n'\] is a int64"),
        ("ab", r"splits\(\) returns a sequence of Split, but returned a str"),
    ],
)
def test_splits_that_cannot_be_found_again_are_refused(splits: Any, problem: str) -> None:
    with pytest.raises(ContractViolation, match=rf"source 'given' \(Given\): .*{problem}"):
        read(Given(Once(BATCH), splits))


def test_a_source_that_cannot_list_its_splits_is_named() -> None:
    bad = Given(Once(BATCH))
    bad.splits = failing  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="no") as caught:
        read(bad)
    assert "raised while source 'given' (Given) listed its splits" in said(caught.value)


def test_a_source_with_two_columns_of_one_name_is_refused() -> None:
    bad = Given(Once(BATCH))
    bad.schema = TWICE
    with pytest.raises(GraphError, match=r"^p.source\(Given\): 'a' is declared more than once"):
        read(bad)


def test_a_source_without_a_schema_or_a_selection_is_named() -> None:
    bad = Given(Once(BATCH))
    bad.schema = {"a": pa.int64()}  # type: ignore[assignment]
    with pytest.raises(GraphError, match=r"p.source\(Given\): its schema is a pyarrow.Schema"):
        read(bad)
    with pytest.raises(GraphError, match=r"source 'given' .*: select\(.*\) returns a Source, but returned a int"):
        read(Given(Once(BATCH), selected=3))
