"""Reading stored checkpoints of both formats: state, rows in flight, duplicates, pins and errors."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.operator import Rule
from dataflow.errors import (
    CheckpointDamaged,
    CheckpointDeleted,
    CheckpointIncomplete,
    CheckpointPinned,
    ConfigurationError,
    NoCheckpoint,
    NotInCheckpoint,
)
from dataflow.runners.faults import Faults
from dataflow.runtime.checkpoint_reader.state import state_tables
from dataflow.runtime.task.parts import TaskState
from dataflow.snapshots.processes import Channel
from dataflow.store.folder import CheckpointFolder
from dataflow.store.manifest import encode
from tests.checkpoints import preview
from tests.golden.archives import unpack
from tests.golden.chain import CHAIN, ROWS


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """A directory with checkpoints 15 and 16, which need objects of 10 to 14."""
    return unpack(CHAIN, tmp_path) / "ckpt"


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Directories of jobs that were killed, by their mode."""
    return lambda mode: unpack(mode, tmp_path_factory.mktemp(mode)) / "ckpt"


def newest(directory: Path) -> flow.Checkpoint:
    return flow.Checkpoint(directory, flow.DirectoryStore(directory).checkpoints()[-1])


# --- which checkpoint


def test_a_checkpoint_is_named_by_folder_manifest_or_id(chain: Path) -> None:
    folder = chain / "chk-00000016"
    named = [flow.Checkpoint(folder), flow.Checkpoint(str(folder / "manifest.json")), flow.Checkpoint(str(chain), 16)]
    assert [(c.id, c.kind, c.mode, c.status) for c in named] == [
        (16, "checkpoint", flow.Mode.ALIGNED, flow.CheckpointStatus.WHOLE)
    ] * 3
    assert repr(named[0]) == f"Checkpoint({str(folder)!r}): checkpoint, aligned, whole"
    assert (named[0].pipeline, named[0].guarantee, named[0].finished) == ("chain", flow.Guarantee.EXACTLY_ONCE, False)


@pytest.mark.parametrize(
    ("path", "number", "error", "words"),
    [
        (".", None, NoCheckpoint, r"holds checkpoints \[15, 16\]: name one, as in Checkpoint\("),
        (".", 3, NoCheckpoint, r"no checkpoint 3 in .*; there are \[15, 16\]"),
        ("nowhere", None, NoCheckpoint, "expected a folder with a manifest.json"),
        ("nowhere", 3, NoCheckpoint, r"there are \[\]"),
        (".", "16", ConfigurationError, "expected a checkpoint id from 1, got '16'"),
        (".", 0, ConfigurationError, "from 1, got 0"),
    ],
)
def test_a_checkpoint_that_does_not_exist_is_an_error(
    path: str, number: Any, error: type[Exception], words: str, chain: Path
) -> None:
    with pytest.raises(error, match=words):
        flow.Checkpoint(chain / path, number)


def test_a_renamed_folder_is_refused_by_id(chain: Path) -> None:
    (chain / "chk-00000016").rename(chain / "chk-00000017")
    with pytest.raises(CheckpointDamaged, match="rename the folder back"):
        flow.Checkpoint(chain, 17)


def test_a_folder_without_the_older_objects_it_needs_names_them(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "chk-00000016", tmp_path / "chk-00000016")
    checkpoint = flow.Checkpoint(tmp_path / "chk-00000016")
    assert checkpoint.status is flow.CheckpointStatus.INCOMPLETE
    missing = [one.checkpoint for one in checkpoint.objects if one.status is flow.ObjectStatus.MISSING]
    assert missing == [10, 11, 12, 13, 14, 15]
    with pytest.raises(CheckpointIncomplete, match=r"missing are chk-00000010/out-0-.*copy or restore the whole"):
        checkpoint.state("out")
    assert checkpoint.state("in").num_rows == 1, "the source needs no older object"


# --- state


def test_the_rows_of_a_chain_are_those_of_its_base_and_deltas(chain: Path) -> None:
    taken = flow.Checkpoint(chain, 16).state("out")
    assert taken.equals(ROWS.slice(0, taken.num_rows))
    (split,) = flow.Checkpoint(chain, 16).state("in").to_pylist()
    assert (split["rows"], split["offset"]) == (taken.num_rows, str(taken.num_rows))


def test_operators_without_tables_have_their_values(golden: Callable[[str], Path]) -> None:
    checkpoint = newest(golden("aligned"))
    (row,) = checkpoint.state("tally").to_pylist()
    assert (row["subtask"], row["name"]) == (0, "counts")
    assert sum(json.loads(row["value"]).values()) == sum(checkpoint.state("arrow")["rows"].to_pylist())
    assert {row["name"] for row in checkpoint.state("totals", "values").to_pylist()} == {"emitted"}
    handle = json.loads(checkpoint.state("rows")["transaction"][0].as_py())
    assert handle["file"].startswith(f"part-{checkpoint.id:08d}-")


def keyed(path: Path) -> flow.Checkpoint:
    """Run a job with keyed state that is updated and deleted, and return its last periodic checkpoint."""
    rows = pa.table({"k": [f"key {i % 50}" for i in range(2_000)], "x": range(2_000), "at": timestamps(2_000)})
    with flow.Pipeline("keyed") as p:
        source = p.source(op.from_arrow(rows, batch_rows=50), name="in").with_watermark("at")
        sums = source.key_by("k").agg(col("x").sum().alias("total"), emit="updates", ttl="1h", name="sums")
        sums.sink(op.collect(), name="out")
    settings = flow.Checkpointing(path, every="1ms", keep=50)
    p.run(flow.SimulatedRunner(5), parallelism=2, checkpoint=settings)
    store = flow.DirectoryStore(path)
    deltas = [n for n in store.checkpoints() if sum(part.checkpoint > 0 for part in store.manifest(n).parts) > 2]
    return flow.Checkpoint(path, deltas[-1])


def timestamps(rows: int) -> pa.Array:
    return pa.array(np.arange(rows) * 1_000_000, pa.timestamp("us"))


def test_keyed_state_of_deltas_has_the_newest_row_of_each_key(tmp_path: Path) -> None:
    checkpoint = keyed(tmp_path / "ckpt")
    (split,) = checkpoint.state("in").to_pylist()
    taken = [(f"key {i % 50}", i) for i in range(split["rows"])]
    expected: Counter[str] = Counter()
    for key, x in taken:
        expected[key] += x
    flying = checkpoint.channel("with_watermark", "sums")
    assert flying.num_rows == 0
    sums = checkpoint.state("sums")
    assert sums.column_names == ["k", "col('x').sum()/sum", "last_written"]
    assert dict(zip(sums["k"].to_pylist(), sums["col('x').sum()/sum"].to_pylist(), strict=True)) == expected
    newest = {key: x * 1_000_000 for key, x in taken}
    assert dict(zip(sums["k"].to_pylist(), sums["last_written"].to_pylist(), strict=True)) == newest


def test_rows_below_the_bound_of_a_log_have_left_the_state_though_an_older_delta_holds_them() -> None:
    log = flow.KeyedState(pa.schema({"k": pa.string(), "n": pa.int64()}), pa.schema([]))
    log.insert([pa.array(["a"] * 5), pa.array(range(5))])
    part = {"keys": log.freeze(1, None)["keys"].read_all()}
    snapshot = flow.Snapshot(logs={"state": [part]}, rules={"state": Rule("log", keys=1, low=("n", 3))})
    tables = state_tables("counts", {"counts[0]": TaskState("counts[0]", operators={"counts": snapshot})}, ())
    assert tables["keys"].to_pylist() == [{"k": "a", "n": 3}, {"k": "a", "n": 4}]


def test_deleted_keys_are_left_out_and_timers_are_a_table_of_their_own(tmp_path: Path) -> None:
    class Last(flow.Operator):
        """Keeps the last x of a key, and deletes the key if x is negative."""

        def __init__(self, context: flow.OperatorContext) -> None:
            self.state = flow.KeyedState(pa.schema({"k": pa.string()}), pa.schema({"x": pa.int64()}))

        def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
            slots, _ = self.state.insert([batch["k"]])
            self.state.write(slots, batch.select(["x"]))
            self.state.delete(slots[np.asarray(batch["x"]) < 0])

        def snapshot(self) -> flow.Snapshot:
            return flow.Snapshot({"note": "mine"}, logs={"last": self.state})

    rows = pa.table({"k": ["a", "b", "c", "b"] * 100, "x": [1, 2, 3, -1] * 100})
    with flow.Pipeline("last") as p:
        keys = p.source(op.from_arrow(rows, batch_rows=4), name="in").key_by("k")
        keys.apply(Last, schema=pa.schema({"k": pa.string()}), name="last").sink(op.collect(), name="out")
    p.run(flow.SimulatedRunner(2), checkpoint=flow.Checkpointing(tmp_path / "ckpt", every="1ms", keep=9))
    checkpoint = flow.Checkpoint(tmp_path / "ckpt", flow.DirectoryStore(tmp_path / "ckpt").checkpoints()[-1])
    assert checkpoint.state("last").sort_by("k").to_pylist() == [{"k": "a", "x": 1}, {"k": "c", "x": 3}]
    assert checkpoint.state("last", "values")["value"].to_pylist() == ['"mine"']
    with pytest.raises(NotInCheckpoint, match="has no table 'timers'; tables: keys, values"):
        checkpoint.state("last", "timers")


def test_unknown_operators_and_operators_without_state_name_the_others(golden: Callable[[str], Path]) -> None:
    checkpoint = newest(golden("aligned"))
    with pytest.raises(NotInCheckpoint, match=r"no operator 'total' \(did you mean 'totals'\?\); operators: csv,"):
        checkpoint.state("total")
    with pytest.raises(NotInCheckpoint, match=r"'filter' .* has no state; operators with state: csv, json"):
        checkpoint.state("filter")


# --- rows in flight and duplicates


def test_rows_in_flight_are_those_that_a_restore_puts_back(golden: Callable[[str], Path]) -> None:
    directory = golden("unaligned-persisted")
    checkpoint = newest(directory)
    report = preview(flow.DirectoryStore(directory), checkpoint.id)
    tables = {channel: checkpoint.channel(channel.source, channel.target) for channel in checkpoint.channels}
    assert sum(table.num_rows for table in tables.values()) == report.in_flight_rows > 0
    assert tables[Channel("with_watermark", "windows")].equals(report.in_flight_rows_of("windows"))
    assert tables[Channel("filter", "totals")].num_rows > 0
    assert checkpoint.duplicates().num_rows == 0


def test_a_channel_without_rows_has_the_columns_of_its_sender(golden: Callable[[str], Path]) -> None:
    checkpoint = newest(golden("aligned"))
    assert [checkpoint.channel(c.source, c.target).num_rows for c in checkpoint.channels] == [0] * 10
    assert checkpoint.channel("with_watermark", "windows").schema == pa.schema(
        {"user": pa.string(), "value": pa.int64(), "at": pa.timestamp("us")}
    )


def two_sources(p: flow.Pipeline) -> tuple[flow.Stream, flow.Stream]:
    rows = [pa.table({"id": range(first, 600, 2)}) for first in range(2)]
    even, odd = [p.source(op.from_arrow(table, batch_rows=3, splits=2), name=f"in {n}") for n, table in enumerate(rows)]
    return even.filter(col("id") >= 0, name="even"), odd.filter(col("id") >= 0, name="odd")


def one_source(p: flow.Pipeline) -> tuple[flow.Stream, flow.Stream]:
    """Return two streams of one task, so their channels differ in the number of the input only."""
    rows = p.source(op.from_arrow(pa.table({"id": range(600)}), batch_rows=3, splits=2), name="in")
    return rows.filter(col("id") % 2 == 0, name="even"), rows.filter(col("id") % 2 == 1, name="odd")


@pytest.mark.parametrize("streams", [two_sources, one_source])
def test_rows_of_two_inputs_are_told_apart(
    streams: Callable[[flow.Pipeline], tuple[flow.Stream, flow.Stream]], tmp_path: Path
) -> None:
    with flow.Pipeline("two") as p:
        even, odd = streams(p)
        even.rebalance().union(odd.rebalance(), name="both").sink(op.collect(), name="out")
    settings = flow.Checkpointing(tmp_path / "ckpt", every="1ms", keep=99, mode="unaligned-persisted")
    p.run(flow.SimulatedRunner(3), checkpoint=settings, parallelism=2)
    store, found = flow.DirectoryStore(tmp_path / "ckpt"), Counter[int]()
    for n in store.checkpoints():
        checkpoint = flow.Checkpoint(tmp_path / "ckpt", n)
        assert checkpoint.channels == (Channel("even", "both"), Channel("odd", "both"))
        rows = [checkpoint.channel(name, "both")["id"].to_pylist() for name in ("even", "odd")]
        assert [{x % 2 for x in ids} <= {remainder} for remainder, ids in enumerate(rows)] == [True, True]
        assert sum(map(len, rows)) == preview(store, n).in_flight_rows
        found.update({remainder: len(ids) for remainder, ids in enumerate(rows)})
    assert min(found[0], found[1]) > 0


def test_an_unknown_channel_names_those_that_exist(golden: Callable[[str], Path]) -> None:
    checkpoint = newest(golden("aligned"))
    with pytest.raises(NotInCheckpoint, match=r"no channel texts -> totals; channels: .*filter -> totals"):
        checkpoint.channel("texts", "totals")
    with pytest.raises(NotInCheckpoint, match="'filter' runs in the task of 'texts', without a channel"):
        checkpoint.channel("texts", "filter")


def test_duplicates_are_those_of_the_report_of_a_restore(golden: Callable[[str], Path]) -> None:
    directory = golden("unaligned")
    checkpoint = flow.DirectoryStore(directory).checkpoints()[-1]
    table = flow.Checkpoint(directory, checkpoint).duplicates()
    report = preview(flow.DirectoryStore(directory), checkpoint)
    assert dict(zip(table["operator"].to_pylist(), table["rows"].to_pylist(), strict=True)) == dict(
        report.duplicated_by_operator
    )
    assert table.num_rows > 0
    assert set(table["precision"].to_pylist()) <= {precision.value for precision in flow.Precision}


# --- pins, deletion and forgery


def test_in_a_with_block_a_checkpoint_is_not_deleted(chain: Path) -> None:
    with flow.DirectoryStore(chain) as store:
        with flow.Checkpoint(chain, 15) as checkpoint, pytest.raises(CheckpointPinned):
            store.retire(15)
        assert checkpoint.state("out").num_rows > 0
        store.retire(15)
        with pytest.raises(CheckpointDeleted, match=r"checkpoint 15 in .* was deleted: a job replaced it"):
            checkpoint.state("out")
        with pytest.raises(CheckpointDeleted), checkpoint:
            pass


def test_while_a_method_reads_the_checkpoint_is_pinned(chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, refused = CheckpointFolder.read, []

    def read_beside_a_clean_up(folder: CheckpointFolder, handle: Any) -> bytes:
        with pytest.raises(CheckpointPinned):
            store.retire(15)
        refused.append(handle)
        return read(folder, handle)

    monkeypatch.setattr(CheckpointFolder, "read", read_beside_a_clean_up)
    with flow.DirectoryStore(chain) as store:
        flow.Checkpoint(chain, 15).state("out")
    assert len(refused) > 3


@pytest.mark.parametrize(
    "reading", [lambda c: c.state("out"), lambda c: c.duplicates(), lambda c: c.channel("in", "out")]
)
def test_a_checkpoint_that_is_deleted_while_it_is_read_says_so(
    reading: Callable[[flow.Checkpoint], object], chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = CheckpointFolder.read

    def read_beside_a_restore(folder: CheckpointFolder, handle: Any) -> bytes:
        store.abandon(16)
        return read(folder, handle)

    monkeypatch.setattr(CheckpointFolder, "read", read_beside_a_restore)
    checkpoint = flow.Checkpoint(chain, 16)
    with flow.DirectoryStore(chain) as store, pytest.raises(CheckpointDeleted, match="or restored an older one"):
        reading(checkpoint)


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "sideways"},
        {"guarantee": "perhaps"},
        {"nodes": ({"name": "in"},)},
        {"nodes": ({"name": "in", "inputs": 3},)},
        {"nodes": ({"name": "in", "inputs": "out"},)},
        {"nodes": ({"name": "in", "inputs": [["out"]]},)},
        {"nodes": ({"name": "other", "inputs": ["in"]},)},
    ],
)
def test_a_forged_manifest_is_damage(change: dict[str, Any], chain: Path) -> None:
    forge(chain, change)
    with pytest.raises(CheckpointDamaged):
        flow.Checkpoint(chain, 16)


@pytest.mark.parametrize("schema", [3, [["x"]], [[1, 2]], None])
def test_a_forged_schema_is_damage(schema: Any, chain: Path) -> None:
    nodes = [dict(node) for node in CheckpointFolder(chain / "chk-00000016").manifest().nodes]
    nodes[0]["schema"] = schema
    forge(chain, {"nodes": tuple(nodes)})
    with pytest.raises(CheckpointDamaged, match="the rows from 'in' to 'out': its columns: expected a list"):
        flow.Checkpoint(chain, 16).channel("in", "out")


def forge(chain: Path, change: dict[str, Any]) -> None:
    path = chain / "chk-00000016" / "manifest.json"
    path.write_bytes(encode(msgspec.structs.replace(CheckpointFolder(path).manifest(), **change)))


def test_the_simulated_checkpoints_of_crashes_are_read_as_they_are_restored(tmp_path: Path) -> None:
    rows = pa.table({"k": [f"key {i % 7}" for i in range(600)], "x": range(600)})
    with flow.Pipeline("sums") as p:
        source = p.source(op.from_arrow(rows, batch_rows=5), name="in")
        sums = source.key_by("k").agg(col("x").sum().alias("total"), emit="updates", name="sums")
        sums.sink(op.collect(), name="out")
    seen: dict[int, pa.Table] = {}
    settings = flow.Checkpointing(tmp_path / "ckpt", every="1ms", keep=99)
    job = p.start(flow.SimulatedRunner(7, Faults(crashes=1)), checkpoint=settings, parallelism=2)
    job.on_checkpoint(lambda state: seen.update({state.snapshot: state.table("sums")}) is None)
    job.wait()
    for n in sorted(seen.keys() & set(flow.DirectoryStore(tmp_path / "ckpt").checkpoints())):
        stored = flow.Checkpoint(tmp_path / "ckpt", n).state("sums").select(["k", "col('x').sum()/sum"])
        assert stored.rename_columns(["k", "total"]).sort_by("k").equals(seen[n].sort_by("k").combine_chunks()), n
    assert len(seen) > 3


def test_windows_that_are_complete_are_left_out_as_a_restore_does(tmp_path: Path) -> None:
    """The tables of a checkpoint hold them until the next base; no predicate and no reader may count them again."""
    rows = pa.table({"k": [f"key {i % 7}" for i in range(600)], "at": timestamps(600)})
    with flow.Pipeline("windows") as p:
        source = p.source(op.from_arrow(rows, batch_rows=5), name="in").with_watermark("at", delay="3s")
        counts = source.key_by("k").window(op.tumbling("10s"), lateness="5s").agg(n=op.count(), name="counts")
        counts.sink(op.collect(), name="out")
    seen: dict[int, pa.Table] = {}
    job = p.start(flow.SimulatedRunner(7), checkpoint=flow.Checkpointing(tmp_path, every="1ms", keep=99), parallelism=2)
    job.on_checkpoint(lambda state: seen.update({state.snapshot: state.table("counts")}) is None)
    job.wait()
    deltas, widest = 0, 0
    for n in sorted(seen):
        shown = zip(seen[n]["k"].to_pylist(), seen[n]["window_start"].cast("int64").to_pylist(), strict=True)
        expected = sorted((key, start // 10_000_000) for key, start in shown)
        checkpoint = flow.Checkpoint(tmp_path, n)
        stored = checkpoint.state("counts")
        assert sorted(zip(stored["k"].to_pylist(), stored["window"].to_pylist(), strict=True)) == expected, n
        windows = [window for _, window in expected] or [0]
        widest = max(widest, max(windows) - min(windows))
        deltas += any(one.checkpoint < n for one in checkpoint.objects)
    assert deltas > 3
    assert widest in (1, 2)
