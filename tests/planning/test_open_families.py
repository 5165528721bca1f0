"""A kind of operator from outside the library: a spec, its operator, and a call of ``register``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.compare.claims import AnyRows, LastRowsOfKeys, claims
from dataflow.errors import CheckpointMismatch, ConfigurationError, EndlessInputWarning, GraphError, SchemaMismatch
from dataflow.planning.encode_columns import encode_columns
from dataflow.planning.prune_columns import prune_columns
from dataflow.runners.endless_input import warn_of_endless_input
from dataflow.runners.faults import Faults
from tests.planning.toy_family import Ordinals, OrdinalsOperator, SplitOdd, ordinals
from tests.seeds import each_once_with_seeds

TABLE = pa.table({"k": ["abcdefg"[i * i % 7] for i in range(300)], "x": range(300), "unused": [None] * 300})
LEFT = Counter((k, n) for k, total in Counter(TABLE["k"].to_pylist()).items() for n in range(total))


def pipeline(**options: Any) -> flow.Pipeline:
    with flow.Pipeline("ordinals") as p:
        rows = p.source(op.from_arrow(TABLE, splits=2, batch_rows=7), name="in")
        ordinals(rows, "k").select("k", "ordinal").sink(op.collect(), name="out")
    return p


def check(result: flow.RunResult) -> None:
    """Which row of a key has which ordinal depends on the order in which they came; that each has one does not."""
    out = result.table("out")
    assert Counter(zip(out["k"].to_pylist(), out["ordinal"].to_pylist(), strict=True)) == LEFT


@pytest.mark.parametrize("parallelism", [1, 3])
def test_it_runs_on_threads(parallelism: int) -> None:
    check(pipeline().run(parallelism=parallelism, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms")))


@pytest.mark.parametrize(("seed", "mode"), each_once_with_seeds(60, ["aligned", "unaligned-persisted"]))
def test_it_restores_its_state_after_crashes_in_any_schedule(seed: int, mode: str) -> None:
    runner = flow.SimulatedRunner(seed, Faults(crashes=2, crash_after=(1, 2), skew=0.2))
    check(
        pipeline().run(runner, parallelism=2, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms", mode=mode))
    )


def test_predicates_see_its_state_as_it_shows_it() -> None:
    sums = []

    def look(state: flow.CheckpointState) -> bool:
        sums.append(sum(state.table("ordinals")["n"].to_pylist()))
        return True

    store = flow.Checkpointing(flow.MemoryStore(), every="1h")
    with pipeline().start(parallelism=2, checkpoint=store) as job:
        job.on_checkpoint(look)
        check(job.wait())
    assert sums == [300]


def test_columns_that_nobody_uses_are_not_read_through_it() -> None:
    pruned = prune_columns(pipeline().graph)
    assert [node.schema.names for node in pruned if node.name in ("in", "ordinals")] == [["k"], ["k", "ordinal"]]


RUNNERS = [flow.LocalRunner(), flow.SimulatedRunner(3)]
ORDINALS = TABLE.schema.append(pa.field("ordinal", pa.int64()))


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_side_output_that_is_not_read_keeps_its_columns(runner: Any) -> None:
    with flow.Pipeline() as p:
        rows = p.source(op.from_arrow(TABLE, batch_rows=7))
        rows.then(SplitOdd("x"), sides={"odd": None}).select("k").sink(op.collect(), name="even")
    assert p.run(runner).table("even")["k"].to_pylist() == TABLE["k"].to_pylist()[::2]


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_side_output_that_is_read_keeps_its_columns(runner: Any) -> None:
    with flow.Pipeline() as p:
        split = p.source(op.from_arrow(TABLE, batch_rows=7)).then(SplitOdd("x"), sides={"odd": None})
        split.select("x").sink(op.collect(), name="even")
        split.side("odd").then(Ordinals("k"), schema=ORDINALS).select("k").sink(op.collect(), name="odd")
    result = p.run(runner)
    assert result.table("even")["x"].to_pylist() == list(range(0, 300, 2))
    assert result.table("odd")["k"].to_pylist() == TABLE["k"].to_pylist()[1::2]


@dataclass(frozen=True)
class PlainOrdinals(Ordinals):
    """Does not tell which of its columns are columns of the input."""

    def origin_of(self, column: str) -> None:
        return None


flow.register(PlainOrdinals, OrdinalsOperator)


@pytest.mark.parametrize("runner", RUNNERS)
def test_columns_without_an_origin_stay_in_the_output_so_they_are_read(runner: Any) -> None:
    rows = flow.Pipeline().source(op.from_arrow(TABLE, batch_rows=7)).key_by("k")
    out = rows.then(PlainOrdinals("k"), schema=ORDINALS).select("k", "ordinal").collect(runner=runner)
    assert Counter(zip(out["k"].to_pylist(), out["ordinal"].to_pylist(), strict=True)) == LEFT


@dataclass(frozen=True)
class Both(flow.Spec):
    """Passes the rows of two inputs on, and reads the columns that its output needs."""

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return used

    def origin_of(self, column: str) -> str:
        return column


flow.register(Both, f"{__name__}:PassingOperator")


@pytest.mark.parametrize("runner", RUNNERS)
def test_the_columns_of_an_operator_with_two_inputs_are_read(runner: Any) -> None:
    p = flow.Pipeline()
    one, other = (p.source(op.from_arrow(TABLE, batch_rows=50)) for _ in range(2))
    assert one.then(Both(), other).select("x").collect(runner=runner).num_rows == 600


def test_event_time_is_followed_through_it() -> None:
    times = TABLE.set_column(1, "t", pa.array(range(300), pa.timestamp("s")))
    stream = ordinals(flow.Pipeline().source(op.from_arrow(times)).with_watermark("t"), "k")
    assert stream.key_by("k").window(op.tumbling("1m")).agg(op.count().alias("n")).collect().num_rows


def test_rows_that_it_emits_are_compared_with_the_declared_schema() -> None:
    rows = flow.Pipeline().source(op.from_arrow(TABLE))
    schema = rows.schema.append(pa.field("ordinal", pa.int32()))
    with pytest.raises(SchemaMismatch, match=r"column 'ordinal' should be int32 but is int64.* of its then\(\.\.\.\)"):
        rows.key_by("k").then(Ordinals("k"), schema=schema).collect()


def test_updates_are_refused_unless_it_says_otherwise() -> None:
    counts = flow.Pipeline().source(op.from_arrow(TABLE)).key_by("k").agg(op.count().alias("n"), emit="updates")
    with pytest.raises(GraphError, match=r"^then: it would count rows that a later row replaces.*before \.then\("):
        ordinals(counts, "k")


def test_a_comparison_knows_that_its_output_depends_on_state() -> None:
    assert claims(pipeline().graph) == {"out": AnyRows()}


@dataclass(frozen=True)
class Totals(flow.Spec):
    """Emits a row for each key at the end."""

    key: str
    emits_at_end = "its totals"
    emits_sooner = "ask for each one"

    @property
    def groups_by(self) -> Sequence[str]:  # type: ignore[override]
        return [self.key]

    @property
    def row_keys(self) -> tuple[str, ...]:
        return (self.key,)

    def takes_encoded(self, column: str) -> bool:
        return True


def test_it_may_tell_what_the_engine_knows_of_the_kinds_of_the_library(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    with flow.Pipeline() as p:
        p.source(op.read_parquet(tmp_path)).key_by("k").then(Totals("k"), name="totals").sink(op.collect(), name="out")
        endless = p.source(op.generate({"k": op.sequence()})).key_by("k").then(Totals("k"), name="more")
        endless.sink(op.collect(), name="none")
    assert claims(p.graph)["out"] == LastRowsOfKeys(("k",), ("k",), "totals", updates=False, first=True)
    assert encode_columns(p.graph).nodes[0].encoded == ("k",)
    with pytest.warns(EndlessInputWarning, match="'more' has no end, so its totals never come; ask for each one"):
        warn_of_endless_input("p", p.graph)


def test_a_checkpoint_of_other_settings_is_named() -> None:
    store = flow.Checkpointing(flow.MemoryStore())
    pipeline().run(checkpoint=store)
    with flow.Pipeline("ordinals") as p:
        rows = p.source(op.from_arrow(TABLE, splits=2, batch_rows=7), name="in")
        rows.filter(col("x") >= 0, name="ordinals").select("k", "x").sink(op.collect(), name="out")
    with pytest.raises(CheckpointMismatch, match="ordinals"):
        p.run(checkpoint=store)


@dataclass(frozen=True)
class Unknown(flow.Spec):
    """Nobody has registered an operator for it."""


@dataclass(frozen=True)
class Passing(flow.Spec):
    """Changes nothing."""

    stateful = False
    row_wise = True

    def origin_of(self, column: str) -> str:
        return column


class PassingOperator(flow.Operator):
    stateless = True

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(batch)


def test_a_class_may_be_registered_itself_and_again() -> None:
    for _ in range(2):
        flow.register(Passing, PassingOperator)
    made = flow.Pipeline().source(op.from_arrow(TABLE)).then(Passing()).select("x").collect()
    assert made["x"].to_pylist() == TABLE["x"].to_pylist()


@dataclass(frozen=True)
class Lost(flow.Spec):
    """The operator that is registered for it is not there."""


def test_a_spec_without_an_operator_says_what_to_call() -> None:
    rows = flow.Pipeline().source(op.from_arrow(TABLE))
    with pytest.raises(ConfigurationError, match=r"call dataflow\.register\(Unknown, \.\.\.\) in module .*families"):
        rows.then(Unknown()).collect()


def test_an_operator_that_cannot_be_imported_is_named_with_its_spec() -> None:
    flow.register(Lost, "tests.planning.toy_family:Nowhere")
    rows = flow.Pipeline().source(op.from_arrow(TABLE))
    with pytest.raises(ConfigurationError, match=r"tests\.planning\.toy_family:Nowhere of .*Lost cannot be imported"):
        rows.then(Lost()).collect()


@pytest.mark.parametrize(
    ("spec", "operator", "problem"),
    [
        (int, "a:B", "expected a subclass of dataflow.Spec"),
        (Ordinals("k"), "a:B", "expected a subclass of dataflow.Spec"),
        (Unknown, "B", "expected an Operator class, or 'module:class'"),
        (Unknown, "a:", "expected an Operator class, or 'module:class'"),
        (Unknown, flow.Operator(), "expected an Operator class"),
        (Unknown, 7, "expected an Operator class"),
        (Ordinals, "a:B", "Ordinals already has the operator tests.planning.toy_family:OrdinalsOperator"),
    ],
)
def test_registering_something_else_is_refused(spec: Any, operator: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        flow.register(spec, operator)


def test_an_operator_class_in_the_place_of_a_spec_is_refused() -> None:
    rows = flow.Pipeline().source(op.from_arrow(TABLE))
    with pytest.raises(GraphError, match=r"pass an Operator class to apply\(\.\.\.\)"):
        rows.then(flow.Operator())  # type: ignore[arg-type]
