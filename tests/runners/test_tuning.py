"""``RunResult.tuning`` says what was chosen and why, as a table and as values."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow.runners.tuning import Tuning

ROWS = 24_000


@pytest.fixture
def folder(tmp_path: Path) -> str:
    table = pa.table(
        {
            "shop": [f"s{i % 20}" for i in range(ROWS)],
            "buyer": [f"b{i}" for i in range(ROWS)],
            "number": [i % 20 for i in range(ROWS)],
            "price": range(ROWS),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=6_000)
    return str(tmp_path)


def counted(folder: str, key: str, **options: object) -> flow.Pipeline:
    with flow.Pipeline("shops") as p:
        rows = p.source(op.read_parquet(folder, **options), name="bids")  # type: ignore[arg-type]
        rows = rows.filter(flow.col("price") >= 6_000, name="dear")
        rows.key_by(key).agg(n=op.count(), name="counts").sink(op.collect(), name="out")
    return p


def test_a_run_says_how_row_groups_became_splits_and_batches(folder: str) -> None:
    tuning = counted(folder, "shop").run().tuning
    (splits,), (batch,) = tuning.of("splits", "bids"), tuning.of("batch")
    assert splits.values == {"splits": 1, "row_groups": 4, "files": 1}
    assert (batch.values["rows"], batch.values["largest_rows"]) == (524_288, 6_000)


def test_batch_rows_of_the_user_is_named_as_the_reason(folder: str) -> None:
    (batch,) = counted(folder, "shop", batch_rows=1_000).run().tuning.of("batch")
    assert (batch.chosen, batch.why) == ("1,000 rows", "batch_rows= is given")


@pytest.mark.parametrize(("key", "chosen", "entries"), [("shop", "dictionary", 20), ("buyer", "text", 6_000)])
def test_each_text_key_has_the_measured_ratio_of_its_dictionary(
    folder: str, key: str, chosen: str, entries: int
) -> None:
    (dictionary,) = counted(folder, key).run().tuning.of("dictionary")
    assert (dictionary.part, dictionary.chosen, dictionary.values["entries"]) == (key, chosen, entries)


def test_a_dictionary_that_the_user_named_is_said_to_be_named(folder: str) -> None:
    (dictionary,) = counted(folder, "shop", dictionary=["shop"]).run().tuning.of("dictionary")
    assert dictionary.why == "dictionary= names it"


def test_conditions_that_prune_row_groups_are_in_the_report_and_the_plan(folder: str) -> None:
    p = counted(folder, "shop")
    (pruning,) = p.run().tuning.of("pruning")
    assert (pruning.where, pruning.part, pruning.chosen) == ("bids", "price", ">= 6000")
    assert "pruning: bids price >= 6000" in str(p.explain())


@pytest.mark.parametrize(("key", "chosen"), [("number", {"on"}), ("price", {"off", "paused"})])
def test_folding_is_on_where_keys_repeat_and_off_where_they_do_not(folder: str, key: str, chosen: set[str]) -> None:
    runner = flow.LocalRunner(step_budget="10s")
    tuning = counted(folder, key).run(runner, parallelism=2).tuning
    active = [choice for choice in tuning.of("folding") if choice.values["last_rows"]]
    assert active
    assert {choice.chosen for choice in active} <= chosen


def test_rows_of_many_batches_are_folded_together() -> None:
    table = pa.table({"k": [n % 50 for n in range(100_000)]})
    with flow.Pipeline() as p:
        rows = p.source(op.from_arrow(table, batch_rows=10_000), name="rows", parallelism=1)
        rows.key_by("k").agg(n=op.count(), emit="final", name="counts").sink(op.collect(), name="out")
    tuning = p.run(flow.LocalRunner(step_budget="10s"), parallelism=2).tuning
    active = [choice for choice in tuning.of("folding") if choice.values["batches"]]
    assert [(c.chosen, c.values["last_rows"], c.values["last_records"]) for c in active] == [("on", 100_000, 50)]


def test_counts_of_subtasks_that_chose_the_same_are_added() -> None:
    with flow.Pipeline() as p:
        p.source(op.from_arrow(pa.table({"k": [1, 2, 3, 4]}), splits=2, batch_rows=1), name="in").sink(op.collect())
    (joining,) = p.run(parallelism=2).tuning.of("joining", "in")
    assert (joining.chosen, joining.values["batches"]) == ("off", 4)
    assert joining.why == "an operator after them sees how they are cut; batches: 4"


def test_small_batches_of_a_source_are_counted_as_joined() -> None:
    with flow.Pipeline() as p:
        rows = p.source(op.from_arrow(pa.table({"k": [7] * 64}), batch_rows=1), name="in")
        rows.key_by("k").agg(n=op.count(), emit="final").sink(op.collect())
    (joining,) = p.run().tuning.of("joining", "in")
    assert joining.values["batches"] == 64
    assert joining.values["joined"] > 0


def test_small_batches_of_signed_changes_are_joined_before_an_aggregate() -> None:
    with flow.Pipeline() as p:
        rows = p.source(op.from_arrow(pa.table({"k": range(64)}), batch_rows=1), name="in")
        counts = rows.key_by("k").agg(n=op.count(), emit="changes", name="counts")
        counts.key_by("n").agg(keys=op.count(), emit="changes", name="again").sink(op.collect(net=True), name="out")
    result = p.run()
    (plain,), (signed,) = (result.tuning.of("joining", name) for name in ("counts", "again"))
    assert (plain.chosen, signed.chosen) == ("off", "up to 8,192 rows")
    assert result.table("out").to_pylist() == [{"n": 1, "keys": 64}]


def test_a_loop_that_is_not_compiled_has_the_rows_that_did_without() -> None:
    with flow.Pipeline() as p:
        rows = p.source(op.from_arrow(pa.table({"x": range(64)})), name="in")
        rows.filter(flow.col("x") > 3, name="f").select(y=flow.col("x") * 2).sink(op.collect())
    (loop,) = p.run().tuning.of("loop", "f")
    assert (loop.chosen, loop.values["interpreted"], loop.values["compiled"]) == ("not used", 64, 0)


def test_the_budget_of_a_step_names_the_interval_it_comes_from(tmp_path: Path) -> None:
    with flow.Pipeline() as p:
        p.source(op.from_arrow(pa.table({"x": [1]})), name="in").sink(op.collect(), name="out")
    (step,) = p.run(checkpoint=flow.Checkpointing(tmp_path / "c", every="500ms")).tuning.of("step")
    assert step.values == {"short_us": 10_000, "long_us": 25_000}
    assert "500" in step.why


def test_the_report_is_a_table_json_and_html(folder: str) -> None:
    result = counted(folder, "shop").run()
    text = str(result.tuning)
    assert text == repr(result.tuning)
    assert "dictionary  bids shop" in text
    assert json.loads(result.to_json())["tuning"] == result.tuning.to_json()
    assert "<th>chosen" in result.tuning._repr_html_()
    assert len(list(result.tuning)) == len(result.tuning) > 0


def test_the_report_can_be_pickled_with_its_source(folder: str) -> None:
    tuning = counted(folder, "shop").run().tuning
    assert pickle.loads(pickle.dumps(tuning)) == tuning


def test_a_report_without_choices_is_an_empty_table() -> None:
    assert str(Tuning()).splitlines() == ["what was chosen", "  kind  where  chosen  why"]


def test_a_simulated_run_reports_its_choices_too(folder: str) -> None:
    tuning = counted(folder, "shop").run(flow.SimulatedRunner(seed=3)).tuning
    assert tuning.of("dictionary")
    assert not tuning.of("step")
