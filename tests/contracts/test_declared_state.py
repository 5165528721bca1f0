"""State that an operator declares comes back as it was, piece by piece, and what does not fit is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.declared_state import Piece
from dataflow.contracts.operator import Rule, Snapshot
from dataflow.errors import CheckpointDamaged, CheckpointMismatch
from dataflow.state.keyed_state import KeyedState
from operators.stateful.row_log import NUMBER, WindowRows
from tests.operators.operating import context_of, made, stored

KEYS = pa.schema({"k": pa.int64()})


class Everything(flow.Stateful):
    """Has a piece of each kind."""

    unit = "us"

    def __init__(self) -> None:
        self.keys = KeyedState(KEYS, pa.schema({"x": pa.int64()}))
        self.slices, self.low = WindowRows(KEYS), None
        self.few = pa.table({"k": pa.array([], pa.int64())})
        self.counts: dict[str, int] = {}
        self.time = flow.Passed()
        self.derived = 0

    def state(self) -> Mapping[str, Piece]:
        return {
            "unit": flow.Fixed(self.unit),
            "time": self.time,
            "keys": flow.Log(self.keys, keys=1),
            "slices": flow.Log(self.slices, keys=1, low=self.low),
            "few": flow.Table(lambda: self.few, self._take, KEYS, keys=1),
            "counts": flow.Value(self, "counts", dict[str, int], "split"),
        }

    def _take(self, rows: pa.Table) -> None:
        self.few = rows

    def restored(self) -> None:
        self.derived = self.few.num_rows + sum(self.counts.values())


def filled() -> Everything:
    full = Everything()
    slots, _ = full.keys.insert([pa.array(range(100))])
    full.keys.write(slots, pa.record_batch({"x": range(100)}))
    full.slices.add(pa.record_batch({"k": [3, 4]}), np.array([3, 4]))
    full.low, full.few = (NUMBER, 4), pa.table({"k": range(50)})
    full.counts, full.time.watermark = {"a": 2}, 7
    return full


def restored(snapshot: Snapshot, groups: range = range(128)) -> Everything:
    return made(Everything(), context_of(KEYS, KEYS, restored=snapshot, groups=groups))


def test_each_piece_comes_back_and_what_follows_is_derived_after_them() -> None:
    again = restored(stored(filled().snapshot()))
    assert again.keys.read(again.keys.slots)["x"].to_pylist() == list(range(100))
    assert again.slices.numbers(9).tolist() == [4], "rows below the bound have left"
    assert (again.counts, again.time.watermark, again.derived) == ({"a": 2}, 7, 52)


def test_rows_of_keys_go_to_the_subtask_that_has_their_key_group() -> None:
    snapshot = stored(filled().snapshot())
    parts = [restored(snapshot, groups) for groups in (range(60), range(60, 128))]
    assert sorted(key for part in parts for key in part.keys.keys(part.keys.slots)[0].to_pylist()) == list(range(100))
    assert sorted(key for part in parts for key in part.few["k"].to_pylist()) == list(range(50))
    assert [part.keys.live for part in parts] != [0, 100]


def test_a_checkpoint_says_by_itself_whose_rows_are_where() -> None:
    assert stored(filled().snapshot()).rules == {
        "unit": Rule("fixed"),
        "time": Rule("passed"),
        "keys": Rule("log", keys=1),
        "slices": Rule("log", keys=1, low=(NUMBER, 4)),
        "few": Rule("table", keys=1),
        "counts": Rule("value", how="split"),
    }


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"values": {"unit": "ns"}}, CheckpointMismatch, "op: unit: the checkpoint has 'ns', the pipeline has 'us'"),
        ({"values": {"counts": {"a": "2"}}}, CheckpointDamaged, "op: counts: its value: Expected `int`, got `str`"),
        ({"values": {"time": 2**63}}, CheckpointDamaged, "op: time: the watermark: "),
        ({"tables": {"few": pa.table({"k": ["a"]})}}, CheckpointMismatch, "op: few: the checkpoint's state has "),
        ({"logs": {"keys": [{"other": pa.table({})}]}}, CheckpointDamaged, "op: keys: it has a table 'other'"),
        (
            {"rules": {"few": Rule("table")}},
            CheckpointMismatch,
            r"op: the checkpoint has Rule\(kind='table'\) for 'few'",
        ),
        ({"rules": {"more": Rule("passed")}}, CheckpointMismatch, "for 'more', the operator declares no state"),
        ({"rules": {"slices": Rule("log", keys=1, low=("k2", 1))}}, CheckpointDamaged, "op: slices: its bound is for "),
        ({"values": {"more": 1}}, CheckpointDamaged, r"op: the checkpoint lacks nothing .*, and has .*'more'"),
    ],
)
def test_what_does_not_fit_is_refused_with_operator_and_piece(
    change: Mapping[str, Any], error: type[Exception], message: str
) -> None:
    snapshot = stored(filled().snapshot())
    changed: Any = {field: {**getattr(snapshot, field), **values} for field, values in change.items()}
    with pytest.raises(error, match=message):
        restored(replace(snapshot, **changed))


def test_a_piece_that_has_a_rule_and_is_not_there_is_damage() -> None:
    snapshot = stored(filled().snapshot())
    with pytest.raises(CheckpointDamaged, match=r"op: the checkpoint lacks .*'few'"):
        restored(replace(snapshot, tables={}))


def test_an_operator_of_a_user_goes_on_with_its_state_and_is_refused_if_it_declares_another() -> None:
    class Count(flow.Stateful):
        rows, kind = 0, int

        def state(self) -> Mapping[str, Piece]:
            return {self.name: flow.Value(self, "rows", int, "greatest")}

        name = "rows"

        def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
            self.rows += batch.num_rows
            out.emit(pa.record_batch({"rows": [self.rows]}))

    def run(rows: int) -> list[int]:
        numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": range(rows)}), batch_rows=4), name="in")
        counted = numbers.apply(Count, schema=pa.schema({"rows": pa.int64()}), name="count")
        found: list[int] = counted.collect(checkpoint=flow.Checkpointing(store))["rows"].to_pylist()
        return found

    store = flow.MemoryStore()
    assert run(8) == [4, 8]
    Count.name = "lines"
    with pytest.raises(
        CheckpointMismatch, match=r"count: the checkpoint has .* for 'rows', the operator declares no state"
    ):
        run(8)


class Sums(flow.Stateful):
    """Sums per key, in a column and by key columns that a test sets."""

    column, keys = "total", 1

    def __init__(self, context: flow.OperatorContext) -> None:
        self.sums = KeyedState(KEYS, pa.schema({self.column: pa.int64()}))

    def state(self) -> Mapping[str, Piece]:
        return {"sums": flow.Log(self.sums, self.keys)}

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        slots, _ = self.sums.insert([batch["k"]])
        self.sums.write(slots, pa.record_batch({self.column: batch["k"]}))
        out.emit(batch)


def sums_of(operator: type[Sums], target: Path, *, keyed: bool = True) -> flow.Pipeline:
    with flow.Pipeline("sums") as p:
        rows = p.source(op.from_arrow(pa.table({"k": range(40)}), batch_rows=4, splits=2), name="in")
        (rows.key_by("k") if keyed else rows.rebalance()).apply(operator, schema=KEYS, name="sums").sink(
            op.write_parquet(target), name="out"
        )
    return p


def test_what_a_users_operator_declares_is_compared_before_a_sink_changes_its_output(tmp_path: Path) -> None:
    settings = flow.Checkpointing(tmp_path / "ckpt", every="1ms")
    sums_of(Sums, tmp_path / "out").run(parallelism=2, checkpoint=settings)
    before = sorted((tmp_path / "out").rglob("*"))
    other = type("Sums", (Sums,), {"column": "rows"})
    with pytest.raises(CheckpointMismatch, match=r"sums: sums: the checkpoint has the columns .*'total'.* declares"):
        sums_of(other, tmp_path / "out").run(parallelism=2, checkpoint=settings, restore="auto")
    assert sorted((tmp_path / "out").rglob("*")) == before


def test_rows_of_other_subtasks_are_refused_and_not_dropped(tmp_path: Path) -> None:
    settings = flow.Checkpointing(tmp_path / "ckpt", every="1ms")
    sums_of(Sums, tmp_path / "out", keyed=False).run(parallelism=2, checkpoint=settings)
    with pytest.raises(CheckpointMismatch, match="stored rows belong to other subtasks, so keys=1 does not say"):
        sums_of(Sums, tmp_path / "out", keyed=False).run(parallelism=2, checkpoint=settings, restore="auto")


def test_a_window_of_a_users_that_is_no_dataclass_is_the_same_in_every_process() -> None:
    class Chunks(flow.Window):
        def __init__(self, length: int) -> None:
            self.length = length

        def assign(self, times: Any, batch: Any) -> flow.Assigned:
            return flow.Assigned(times, times + self.length)

    assert repr(Chunks(5)).endswith("Chunks(length=5)")
