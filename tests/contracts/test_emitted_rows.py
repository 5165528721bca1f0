"""Rows that a user's operator emits are checked against its declared schema and tags, and the operator is named."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import ContractViolation, GraphError, SchemaMismatch
from dataflow.expressions import col
from tests.contracts.user_classes import AWB, ROWS, TWICE, doing, emitting, everywhere, run

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
    with pytest.raises(GraphError, match=r"has no side output 'x'; (it has none|declare it: apply\(\.\.\., sides=)"):
        make(stream).side("x")


def test_a_side_output_called_late_has_no_event_time_but_behind_a_window() -> None:
    times = pa.table({"ts": pa.array([0], pa.timestamp("us"))})
    timed = flow.Pipeline().source(op.from_arrow(times)).with_watermark("ts")
    assert timed.apply(doing(), sides={"late": ROWS.schema}).side("late").time is None


@pytest.mark.parametrize("sides", [["odd"], {"": None}, {3: None}, "odd"])
def test_sides_that_are_no_dict_from_tag_to_schema_are_refused(sides: Any) -> None:
    with pytest.raises(GraphError, match=r"apply\(sides=\): expected a dict from tag"):
        flow.Pipeline().source(op.from_arrow(ROWS)).apply(doing(), sides=sides)


@pytest.mark.parametrize("options", [{"schema": TWICE}, {"sides": {"odd": TWICE}}])
def test_a_schema_with_two_columns_of_one_name_is_refused(options: Any) -> None:
    with pytest.raises(GraphError, match=r"^apply\(.*'a' is declared more than once in \[a: int64, a: int64\]"):
        flow.Pipeline().source(op.from_arrow(ROWS)).apply(doing(), **options)
