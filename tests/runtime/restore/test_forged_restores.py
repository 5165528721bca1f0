"""Restores of forged checkpoints: their parts and manifests are checked before state is made of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.clock import ManualClock
from dataflow.contracts.operator import Operator, OperatorContext, Snapshot
from dataflow.contracts.source import SourceContext, Split
from dataflow.errors import (
    CheckpointDamaged,
    CheckpointSkippedWarning,
    ConfigurationError,
    InputChanged,
    RowsTakenBackWarning,
)
from dataflow.observe.checkpoints import list_checkpoints, table
from dataflow.planning.physical_plan import make_plan
from dataflow.protocol.events import Data, EndOfInput
from dataflow.runners.binding import LIBRARY
from dataflow.runtime.restore.find_checkpoint import _check_states
from dataflow.runtime.restore.in_flight import check_carried
from dataflow.runtime.task.parts import ChannelState, TaskState
from dataflow.store.directory import DirectoryStore
from dataflow.store.manifest import LOG, STATE, Manifest, encode
from operators.stateful.columns import RECORD
from tests.checkpoints import Change, copied, forged_object, handle_of


class Remembers(Operator):
    def __init__(self, context: OperatorContext) -> None:
        self.rows = 0 if context.restored is None else context.restored.values["rows"]

    def process(self, port: int, batch: pa.RecordBatch, out: Any) -> None:
        out.emit(batch)

    def snapshot(self) -> Snapshot:
        return Snapshot({"rows": 7})


def pipeline() -> flow.Pipeline:
    with flow.Pipeline("p") as p:
        rows = p.source(op.read_csv("in/*.csv", batch_rows=5), name="in").apply(Remembers, name="user")
        rows.key_by("k").agg(col("x").sum(), col("k").min().alias("least"), name="sums").sink(op.collect(), name="out")
    return p


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the middle of a job over a file, and a file that the job may not read."""
    path = tmp_path_factory.mktemp("original")
    (path / "in").mkdir()
    (path / "in" / "a.csv").write_text("k,x\n" + "".join(f"k{n % 7},{n}\n" for n in range(200)))
    (path / "secret.csv").write_text("k,x\nsecret,1\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        pipeline().run(flow.SimulatedRunner(1), checkpoint=flow.Checkpointing("ckpt", every="1ms", keep=100))
    with DirectoryStore(path / "ckpt") as store:
        middle = store.checkpoints()[2]
        for checkpoint in store.checkpoints():
            if checkpoint != middle:
                store.retire(checkpoint)
    return path


@pytest.fixture
def directory(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(original, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def forge(directory: Path, task: str, change: Change, part: int = STATE) -> None:
    """Change the part of ``task`` in the newest checkpoint, or its logs, and the checksums with it."""
    store = DirectoryStore(directory / "ckpt")
    checkpoint = store.checkpoints()[-1]
    forged_object(store.folder(checkpoint).path, handle_of(store, checkpoint, task, part), change)


def restore(directory: Path, **options: Any) -> flow.RunResult:
    checkpoint = flow.Checkpointing(directory / "ckpt", **options)
    return pipeline().run(flow.SimulatedRunner(1), checkpoint=checkpoint)


def second(directory: Path) -> tuple[int, int]:
    """Copy the checkpoint to the next id; return both ids."""
    with DirectoryStore(directory / "ckpt") as store:
        (first,) = store.checkpoints()
        return first, copied(store, first, whole=True)


SUMS = "/logs/0/keys"


def with_a_key_twice(values: object, tables: dict[str, pa.Table]) -> None:
    tables[SUMS] = pa.concat_tables([tables[SUMS], tables[SUMS].slice(0, 1)])


def with_another_position(values: Any, tables: object) -> None:
    values["inlet"]["splits"][0]["info"]["bytes"] = "many"


def with_another_table_of_the_sink(values: Any, tables: dict[str, pa.Table]) -> None:
    values["logs"][1]["tables"] = ["more"]
    tables["/logs/1/more"] = tables.pop("/logs/1/rows")


def without_the_state_of_the_sink(values: Any, tables: object) -> None:
    values["operators"]["out"]["rules"] = {}
    values["logs"] = [log for log in values["logs"] if log["operator"] != "out"]


def without_an_operator(values: Any, tables: object) -> None:
    del values["operators"]["user"]


@pytest.mark.parametrize(
    ("task", "change", "part"),
    [
        ("sums[0]", with_a_key_twice, LOG),
        ("in[0]", with_another_position, STATE),
        ("sums[0]", with_another_table_of_the_sink, LOG),
        ("sums[0]", without_the_state_of_the_sink, STATE),
        ("in[0]", without_an_operator, STATE),
    ],
)
def test_damage_that_only_an_operator_or_a_source_sees_is_passed_over(
    directory: Path, task: str, change: Any, part: int
) -> None:
    older, newer = second(directory)
    forge(directory, task, change, part)
    with pytest.warns(CheckpointSkippedWarning, match=f"checkpoint {newer} in .* is damaged"):
        result = restore(directory)
    assert result.restore_report is not None
    assert result.restore_report.checkpoint == older
    assert sum(result.table("out")["x_sum"].to_pylist()) == sum(range(200))


def test_a_forged_handle_of_a_file_sink_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with flow.Pipeline("p") as p:
        p.source(op.generate({"x": op.sequence()}, rows=200, batch_rows=5), name="in").sink(
            op.write_csv("out"), name="out"
        )
    checkpoint = flow.Checkpointing("ckpt", every="1ms", keep=100)
    p.run(flow.SimulatedRunner(1), checkpoint=checkpoint)
    with DirectoryStore("ckpt") as store:
        *_, older, newest = store.checkpoints()
        manifest = store.manifest(newest)
        forged = {"out": [{"staged": "../../a.staged", "file": "../a", "rows": 1, "size": 1, "xxh3": "", "run": ""}]}
        (store.folder(newest).path / "manifest.json").write_bytes(
            encode(msgspec.structs.replace(manifest, transactions=forged))
        )
    with pytest.warns(CheckpointSkippedWarning, match=f"checkpoint {newest} in"), pytest.warns(RowsTakenBackWarning):
        result = p.run(flow.SimulatedRunner(1), checkpoint=checkpoint)
    assert result.restore_report is not None
    assert result.restore_report.checkpoint == older
    assert sorted(op.read_committed("out")["x"].to_pylist()) == list(range(200))


def test_damage_in_a_checkpoint_that_was_asked_for_changes_nothing(directory: Path) -> None:
    forge(directory, "sums[0]", with_a_key_twice, LOG)
    ids = second(directory)
    with pytest.raises(CheckpointDamaged, match="sums"):
        pipeline().run(flow.SimulatedRunner(1), checkpoint=flow.Checkpointing("ckpt"), restore=ids[0])
    assert DirectoryStore(directory / "ckpt").checkpoints() == list(ids)


def forge_manifest(directory: Path, change: Callable[[dict[str, Any]], object]) -> int:
    with DirectoryStore(directory / "ckpt") as store:
        (checkpoint,) = store.checkpoints()
        manifest = msgspec.to_builtins(store.manifest(checkpoint))
        change(manifest)
        (store.folder(checkpoint).path / "manifest.json").write_bytes(encode(msgspec.convert(manifest, Manifest)))
    return checkpoint


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["nodes"][1].update(inputs=[{"a": 1}]),
        lambda manifest: manifest["nodes"][1].update(inputs=["another"]),
        lambda manifest: manifest["nodes"][1].pop("inputs"),
        lambda manifest: manifest.update(mode="other"),
    ],
)
def test_a_manifest_that_describes_no_graph_is_damage(directory: Path, change: Any) -> None:
    forge_manifest(directory, change)
    with pytest.raises(CheckpointDamaged):
        restore(directory)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["summary"].update(in_flight_rows="many"),
        lambda manifest: manifest["summary"].update(duplicated=[1]),
        lambda manifest: manifest["summary"].update(duplicated={"sums": None}),
        lambda manifest: manifest.update(kind="\x1b]0;title\x07"),
    ],
)
def test_a_list_of_checkpoints_shows_forged_summaries_as_damage(directory: Path, change: Any) -> None:
    forge_manifest(directory, change)
    (line,) = list_checkpoints(directory / "ckpt")
    assert "summary" in str(line.reason) or "expected printable text" in str(line.reason)
    table([line], now=0.0)


def test_a_split_is_read_as_the_source_describes_it_not_as_the_checkpoint_does(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("x\n1\n")
    context = SourceContext("in", 0, 1, ManualClock())
    generated = op.generate({"x": op.sequence()}, rows=3)
    asked: list[object] = []
    schema = pa.schema({"x": pa.int64()})
    items = op.from_generator(lambda value, _: asked.append(value) or iter(()), schema=schema, splits={"one": 1})
    for source, forged in (
        (generated, {"part": 0.0}),
        (op.watch(tmp_path, op.read_csv), {"part": 0.0}),
        (items, {"value": True}),
    ):
        split = source.splits()[0]
        forged_split = Split(split.id, {**split.info, **forged})
        source.check(forged_split)
        source.reader(forged_split, None, context).close()
    assert [type(value) for value in asked] == [int]


def test_a_forgery_that_changes_nothing_is_restored(directory: Path) -> None:
    forge(directory, "in[0]", lambda values, tables: None)
    assert sum(restore(directory).table("out")["x_sum"].to_pylist()) == sum(range(200))


@pytest.mark.parametrize("path", ["secret.csv", "in/../secret.csv", "in/a\0.csv", 7, None])
def test_a_split_outside_of_the_sources_own_files_is_refused(directory: Path, path: Any) -> None:
    def change(values: Any, tables: object) -> None:
        text = (directory / "secret.csv").read_bytes()
        values["inlet"]["splits"][0] |= {"offset": None, "id": "a"}
        info = {"path": path, "bytes": len(text)}
        values["inlet"]["splits"][0]["info"] |= info

    forge(directory, "in[0]", change)
    with pytest.raises(InputChanged, match="not among the files that read_csv finds"):
        restore(directory)


@pytest.mark.parametrize(
    "change",
    [
        lambda values, tables: values.pop("operators"),
        lambda values, tables: values.pop("inlet"),
        lambda values, tables: values.update(task="in[1]"),
        lambda values, tables: values.update(inlet={}),
        lambda values, tables: values.update(ended=True),
        lambda values, tables: values["inlet"].update(splits=[1]),
        lambda values, tables: values["inlet"].update(splits=values["inlet"]["splits"] * 2),
        lambda values, tables: values["inlet"]["splits"][0].update(offset={"byte": -1, "line": 1}),
        lambda values, tables: values["inlet"]["splits"][0].update(offset={"byte": 4, "line": 2, "rows": 3, "end": 1}),
        lambda values, tables: values["inlet"]["splits"][0].update(offset="1"),
        lambda values, tables: values["inlet"]["splits"][0].update(rows=-1),
        lambda values, tables: values.update(in_flight=[{"operator": "in"}]),
        lambda values, tables: values.update(duplicates=[{"operator": "in", "channel": "c", "rows": 1}]),
    ],
)
def test_a_part_of_a_source_that_says_something_else_is_damage(directory: Path, change: Any) -> None:
    forge(directory, "in[0]", change)
    with pytest.raises(CheckpointDamaged):
        restore(directory)


def replaced(name: str, column: int, values: Callable[[pa.ChunkedArray], pa.Array]) -> Any:
    def change(_: object, tables: dict[str, pa.Table]) -> None:
        table = tables[name]
        place = column % table.num_columns
        tables[name] = table.set_column(place, table.schema.names[place], values(table.column(place)))

    return change


def without_a_part(values: Any, tables: object) -> None:
    values["logs"][0]["tables"] = []


@pytest.mark.parametrize(
    "change",
    [
        replaced(SUMS, 0, lambda c: pa.array(["same"] * len(c))),
        replaced(SUMS, 0, lambda c: pa.array(range(len(c)), pa.int8())),
        replaced(SUMS, 1, lambda c: pa.array([0.5] * len(c))),
        replaced(SUMS, -1, lambda c: pa.array([None] * len(c), pa.bool_())),
        with_a_key_twice,
        without_a_part,
        lambda values, tables: tables.update({SUMS: tables[SUMS].replace_schema_metadata(None)}),
        lambda values, tables: tables.pop(SUMS),
        lambda values, tables: values["logs"].clear(),
        lambda values, tables: values["logs"].append({"operator": "others", "log": "state", "tables": ["keys"]}),
        lambda values, tables: values.update(after=1),
        lambda values, tables: values.update(task="other"),
    ],
)
def test_logs_that_an_aggregate_cannot_take_over_are_damage(directory: Path, change: Any) -> None:
    forge(directory, "sums[0]", change, LOG)
    with pytest.raises(flow.errors.CheckpointError, match="sums"):
        restore(directory)


@pytest.mark.parametrize(
    "change",
    [
        lambda values, tables: values["logs"].clear(),
        lambda values, tables: values["operators"]["sums"].update(tables=["keys"]),
        lambda values, tables: values["operators"]["sums"].update(tables={}),
        lambda values, tables: values["inlet"].update(watermarks=[1, 2, 3]),
        lambda values, tables: values["inlet"].update(watermarks=[2**63]),
    ],
)
def test_state_that_an_aggregate_cannot_take_over_is_damage(directory: Path, change: Any) -> None:
    forge(directory, "sums[0]", change)
    with pytest.raises(flow.errors.CheckpointError, match="sums"):
        restore(directory)


def test_what_a_users_operator_raises_over_its_state_stays_its_own_and_names_the_operator(directory: Path) -> None:
    forge(directory, "in[0]", lambda values, tables: values["operators"]["user"].update(values={"other": 1}))
    with pytest.raises(KeyError, match="rows") as raised:
        restore(directory)
    assert any("operator 'user' was built, subtask in[0]" in note for note in raised.value.__notes__)


def test_a_checkpoint_above_the_limit_is_refused_with_both_figures(directory: Path) -> None:
    store = DirectoryStore(directory / "ckpt")
    (checkpoint,) = store.checkpoints()
    size = store.manifest_size(checkpoint) + sum(part.size for part in store.manifest(checkpoint).parts)
    with pytest.raises(ConfigurationError, match=rf"has at least .* bytes, more than max_restore_bytes={size - 1:,}"):
        restore(directory, max_restore_bytes=size - 1)
    with pytest.raises(ConfigurationError, match="max_restore_bytes=10"):
        restore(directory, max_restore_bytes=10)
    assert restore(directory, max_restore_bytes=size, keep=100).restore_report is not None


def test_a_limit_is_a_whole_number() -> None:
    with pytest.raises(ConfigurationError, match="max_restore_bytes"):
        flow.Checkpointing("ckpt", max_restore_bytes=0)


# --- positions


@pytest.mark.parametrize("name", ["../secret.csv", "/etc/passwd", ".hidden.csv", "other.txt", "a\0b", "x/../a.csv", 7])
def test_a_watched_file_is_a_plain_name_that_is_wanted(directory: Path, name: Any) -> None:
    from dataflow.clock import ManualClock
    from dataflow.contracts.source import SourceContext

    source = op.watch(directory / "in", op.read_csv, pattern="*.csv")
    split, context = source.splits()[0], SourceContext("watch", 0, 1, ManualClock())
    reader = source.reader(split, None, context)
    reader.poll(3)
    offset: Any = reader.offset
    offset = {**offset, "file": {**offset["file"], "name": name}}
    reader.close()
    with pytest.raises(CheckpointDamaged):
        source.reader(split, offset, context)


# --- rows in flight


@pytest.mark.parametrize(
    "rows",
    [
        pa.record_batch({"k": pa.array(["a"]), "x": pa.array([1], pa.int8())}),
        pa.record_batch({"x": pa.array([1]), "k": pa.array(["a"])}),
        pa.record_batch({"k": pa.array(["a"])}),
        pa.record_batch({"k": pa.array(["a"]), RECORD: pa.array([b"12345678"], pa.binary(8))}),
        pa.record_batch({"k": pa.array(["a"]), RECORD: pa.array([None], pa.binary(16))}),
    ],
)
def test_rows_in_flight_that_the_channel_does_not_carry_are_damage(rows: pa.RecordBatch) -> None:
    with flow.Pipeline("p") as p:
        made = p.source(op.from_arrow(pa.table({"k": ["a"], "x": [1]})), name="in").key_by("k")
        made.agg(op.count().alias("n"), col("x").sum(), name="sums").sink(op.collect(), name="out")
    plan = make_plan(p.graph, parallelism=2)
    captured = ChannelState("sums", "sums[0]", "in[0] -> sums[0]", [Data(rows)])
    with pytest.raises(CheckpointDamaged, match=r"in\[0\] -> sums\[0\]"):
        check_carried(captured, plan, plan.vertices["sums"].head, 0, LIBRARY)


@pytest.mark.parametrize("column", ["at", "change", "id"])
def test_rows_in_flight_without_a_time_or_a_sign_are_damage(column: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("s")), ("k", pa.string())])
    table = pa.table({"id": [1], "at": pa.array([1], pa.timestamp("s")), "k": ["a"]}).cast(schema)
    with flow.Pipeline("p") as p:
        rows = p.source(op.from_arrow(table), name="in").with_watermark("at")
        if column == "change":
            rows = rows.key_by("k").agg(id=col("id").sum(), emit="changes", name="sums")
        rows.rebalance().filter(col("k").is_not_null(), name="to").sink(op.collect(net=column == "change"), name="out")
    plan = make_plan(p.graph, parallelism=2)
    carried = plan.graph.schema_of(plan.vertices["to"].head.inputs[0])
    batch = pa.RecordBatch.from_pylist([dict.fromkeys(carried.names)], schema=carried)
    values = {"at": 1, "change": 1, "id": 1, "k": "a"}
    for name in carried.names:
        if name != column:
            place = carried.get_field_index(name)
            batch = batch.set_column(place, carried.field(name), pa.array([values[name]], carried.field(name).type))
    captured = ChannelState("to", "to[0]", "in[0] -> to[0]", [Data(batch)])
    with pytest.raises(CheckpointDamaged, match=rf"1 rows in flight on .* have no '{column}', which is never null"):
        check_carried(captured, plan, plan.vertices["to"].head, 0, LIBRARY)


def test_the_end_of_a_task_that_continues_is_damage_whatever_its_name() -> None:
    p = flow.Pipeline()
    read = p.source(op.from_arrow(pa.table({"x": [1]})), name="in -> put")
    read.rebalance().sink(op.collect(), name="out")
    end = ChannelState("out", "out[0]", "in -> put[0] -> out[0]", [EndOfInput()])
    states = {
        "in -> put[0]": TaskState("in -> put[0]", inlet={"splits": []}),
        "out[0]": TaskState("out[0]", inlet={"watermarks": [None]}, in_flight=[end]),
    }
    with pytest.raises(CheckpointDamaged, match=r"holds the end of input of task 'in -> put\[0\]'"):
        _check_states(states, make_plan(p.graph))
