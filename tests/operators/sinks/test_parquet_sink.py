"""The Parquet sink on a healthy disk: what it writes, when it shows, and what it refuses."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.operator import OperatorContext
from dataflow.contracts.sink import Guarantee, Handle, TakenBack
from dataflow.errors import ConfigurationError, OutputExists, SchemaMismatch, StoreError
from operators.sinks.file_writer import FileWriter, RowBuffer
from operators.sinks.parquet import committed_files, read_committed, write_parquet

X = pa.schema({"x": pa.int64()})


class NoOut:
    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        raise AssertionError("a sink emits nothing")


def context(schema: pa.Schema = X, subtask: int = 0) -> OperatorContext:
    return OperatorContext("out", subtask, 2, (schema,), schema, range(128), 128, None, ManualClock(), lambda due: None)


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, pa.int64())})


def fill(writer: FileWriter, *batches: pa.RecordBatch) -> None:
    for batch in batches:
        writer.process(0, batch, NoOut())


def run(sink: Any, batches: Sequence[pa.RecordBatch], schema: pa.Schema, checkpoint: int = 1) -> Sequence[Handle]:
    """One transaction from begin to commit."""
    sink.check(schema)
    sink.begin()
    writer = sink.writer(context(schema))
    fill(writer, *batches)
    handles: Sequence[Handle] = writer.prepare(checkpoint)
    sink.commit(checkpoint, handles)
    writer.close()
    return handles


def visible(path: Path) -> list[int]:
    """What three readers see; they must agree."""
    found = sorted(path.rglob("*.parquet"))
    if not found:
        return []
    glob = str(path / "**" / "*.parquet")
    arrow = pa.concat_tables([pq.ParquetFile(file).read() for file in found])["x"].to_pylist()
    duck = [row[0] for row in duckdb.sql(f"select x from read_parquet('{glob}')").fetchall()]
    polars = pl.read_parquet(glob)["x"].to_list()
    assert sorted(arrow) == sorted(duck) == sorted(polars)
    return sorted(arrow)


def test_rows_show_at_commit_and_not_before(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path / "out", row_group_rows=2)
    sink.begin()
    writer = sink.writer(context())
    fill(writer, rows(1, 2, 3), rows(4))
    assert visible(tmp_path) == []
    handles = writer.prepare(1)
    fill(writer, rows(5, 6))
    assert visible(tmp_path) == []
    sink.commit(1, handles)
    assert visible(tmp_path) == [1, 2, 3, 4]
    assert read_committed(tmp_path / "out")["x"].to_pylist() == [1, 2, 3, 4]
    writer.close()


def test_names_follow_from_checkpoint_and_subtask(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path / "out")
    sink.begin()
    handles: list[Handle] = []
    for subtask in (0, 1):
        writer = sink.writer(context(subtask=subtask))
        fill(writer, rows(subtask))
        handles += writer.prepare(7)
    sink.commit(7, handles)
    assert [path.name for path in sorted((tmp_path / "out").glob("*.parquet"))] == [
        "part-00000007-00000-0000.parquet",
        "part-00000007-00001-0000.parquet",
    ]
    assert json.loads((tmp_path / "out" / "_commits" / "7.json").read_text())["files"][1]["rows"] == 1


def test_committing_and_recovering_twice_changes_nothing(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path)
    handles = run(sink, [rows(1, 2)], X)
    before = listing(tmp_path)
    sink.commit(1, handles)
    for _ in range(2):
        write_parquet(tmp_path).recover(1, handles)
    assert listing(tmp_path) == before
    assert visible(tmp_path) == [1, 2]


def test_handles_survive_json(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path)
    sink.begin()
    writer = sink.writer(context())
    fill(writer, rows(1))
    write_parquet(tmp_path).recover(1, json.loads(json.dumps(writer.prepare(1))))
    assert visible(tmp_path) == [1]


def test_a_transaction_that_missed_its_checkpoint_is_committed_with_the_next(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path)
    sink.begin()
    writer = sink.writer(context())
    fill(writer, rows(1))
    carried = [*writer.prepare(1)]
    fill(writer, rows(2))
    carried += writer.prepare(2)
    sink.commit(2, carried)
    assert visible(tmp_path) == [1, 2]
    assert len(committed_files(tmp_path)) == 2


def test_a_transaction_without_rows_leaves_no_file(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path)
    before = None
    sink.begin()
    before = listing(tmp_path)
    writer = sink.writer(context())
    fill(writer, rows())
    assert writer.prepare(1) == []
    sink.commit(1, [])
    assert listing(tmp_path) == before
    with pytest.raises(StoreError, match="no rows are committed there"):
        read_committed(tmp_path)


def test_recovery_deletes_what_this_sink_staged_and_nothing_else(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path)
    run(sink, [rows(1)], X)
    writer = sink.writer(context())
    fill(writer, rows(2))
    lost = writer.prepare(2)
    mine = [tmp_path / "_staging" / "notes.txt", tmp_path / "theirs.parquet", tmp_path / "_commits" / "readme"]
    for path in mine:
        path.write_bytes(b"mine")
    write_parquet(tmp_path).recover(1, [])
    assert not (tmp_path / "_staging" / str(lost[0]["staged"])).exists()
    assert all(path.read_bytes() == b"mine" for path in mine)
    assert len(committed_files(tmp_path)) == 1


def test_a_lost_staged_file_is_said_and_a_final_one_that_readers_moved_is_not(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path)
    sink.begin()
    writer = sink.writer(context())
    fill(writer, rows(1, 2, 3))
    handles = writer.prepare(1)
    staged = tmp_path / "_staging" / str(handles[0]["staged"])
    content = staged.read_bytes()
    staged.unlink()
    with pytest.raises(StoreError, match=r"3 rows of a completed checkpoint are gone: expected .*staged or .*found ne"):
        sink.commit(1, handles)
    staged.write_bytes(content[:-1])
    with pytest.raises(StoreError, match=r"had \d+ bytes when it was staged, found \d+"):
        sink.commit(1, handles)
    staged.write_bytes(content)
    sink.commit(1, handles)
    committed_files(tmp_path)[0].unlink()
    sink.commit(1, handles)


def test_a_rename_of_which_power_failure_kept_both_names_is_finished(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path)
    sink.begin()
    writer = sink.writer(context())
    fill(writer, rows(1))
    handles = writer.prepare(1)
    (tmp_path / str(handles[0]["file"])).hardlink_to(tmp_path / "_staging" / str(handles[0]["staged"]))
    sink.recover(1, handles)
    assert visible(tmp_path) == [1]
    assert list((tmp_path / "_staging").iterdir()) == []


def test_a_foreign_file_under_our_name_is_not_overwritten(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path)
    sink.begin()
    writer = sink.writer(context())
    fill(writer, rows(1))
    handles = writer.prepare(1)
    (tmp_path / str(handles[0]["file"])).write_bytes(b"theirs")
    with pytest.raises(StoreError, match="already exists and is another file"):
        sink.commit(1, handles)


def test_closing_drops_what_was_not_prepared(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path, row_group_rows=1)
    sink.begin()
    writer = sink.writer(context())
    fill(writer, rows(1, 2))
    handles = writer.prepare(1)
    fill(writer, rows(3, 4))
    writer.close()
    assert [path.name for path in (tmp_path / "_staging").iterdir()] == [handles[0]["staged"]]


def test_restoring_an_older_checkpoint_takes_back_what_later_ones_committed(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path)
    first = run(sink, [rows(1)], X, checkpoint=4)
    writer = sink.writer(context(X))
    fill(writer, rows(2, 3))
    sink.commit(5, writer.prepare(5))
    assert [sink.recover(4, first) for _ in range(2)] == [TakenBack(rows=2, files=1), None]
    assert read_committed(tmp_path)["x"].to_pylist() == [1]
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_half_a_commit_of_a_later_checkpoint_is_taken_back(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path)
    first = run(sink, [rows(1)], X, checkpoint=4)
    writer = sink.writer(context(X))
    fill(writer, rows(2, 3))
    sink.commit(5, writer.prepare(5))
    (tmp_path / "_commits" / "5.json").unlink()
    sink.recover(4, first)
    assert [path.name for path in tmp_path.rglob("*.parquet")] == ["part-00000004-00000-0000.parquet"]


def test_appended_to_output_is_never_taken_back(tmp_path: Path) -> None:
    run(write_parquet(tmp_path), [rows(1)], X, checkpoint=9)
    sink = write_parquet(tmp_path, if_exists="append")
    run(sink, [rows(2)], X, checkpoint=1)
    sink.recover(1, [])
    assert sorted(read_committed(tmp_path)["x"].to_pylist()) == [1, 2]


def test_appending_refuses_files_that_could_pass_for_half_a_commit(tmp_path: Path) -> None:
    run(write_parquet(tmp_path), [rows(1)], X, checkpoint=9)
    (tmp_path / "_commits" / "9.json").unlink()
    with pytest.raises(OutputExists, match=r"1 files \(part-00000009-00000-0000.parquet"):
        write_parquet(tmp_path, if_exists="append").begin()


@pytest.mark.parametrize("name", ["part-x.parquet", "deep/down/other.parquet"])
def test_a_directory_with_parquet_files_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(OutputExists, match=rf"already holds 1 Parquet files \({name}"):
        write_parquet(tmp_path).begin()
    with pytest.raises(OutputExists, match=r"in no commit list .* overwrites only its own"):
        write_parquet(tmp_path, if_exists="overwrite").begin()


def test_appending_twice_with_the_same_checkpoint_ids_keeps_every_row(tmp_path: Path) -> None:
    for i in range(3):
        run(write_parquet(tmp_path, if_exists="append"), [rows(i)], X, checkpoint=1)
    assert visible(tmp_path) == [0, 1, 2]
    assert sorted(read_committed(tmp_path)["x"].to_pylist()) == [0, 1, 2]


def test_overwriting_what_is_not_there_yet_is_a_fresh_start(tmp_path: Path) -> None:
    run(write_parquet(tmp_path / "new", if_exists="overwrite"), [rows(1)], X)
    assert visible(tmp_path / "new") == [1]


def test_overwriting_replaces_our_rows(tmp_path: Path) -> None:
    run(write_parquet(tmp_path), [rows(1)], X)
    with pytest.raises(OutputExists):
        write_parquet(tmp_path).begin()
    run(write_parquet(tmp_path, if_exists="overwrite"), [rows(2)], X)
    assert visible(tmp_path) == [2]


def test_many_small_batches_make_few_row_groups(tmp_path: Path) -> None:
    run(write_parquet(tmp_path, row_group_rows=1000), [rows(i) for i in range(2500)], X)
    metadata = pq.ParquetFile(committed_files(tmp_path)[0]).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [1000, 1000, 500]
    assert visible(tmp_path) == list(range(2500))


def test_a_big_batch_is_cut_into_row_groups_and_its_rest_waits() -> None:
    buffer = RowBuffer(X, rows=10, size=1 << 30)
    buffer.add(rows(*range(25)))
    assert buffer.is_full
    assert buffer.take_full().num_rows == 20
    assert buffer.rows == 5
    assert buffer.take()["x"].to_pylist() == [20, 21, 22, 23, 24]


def test_wide_rows_fill_a_row_group_by_their_bytes() -> None:
    buffer = RowBuffer(X, rows=1_000_000, size=800)
    for i in range(99):
        buffer.add(rows(i))
        assert not buffer.is_full
    buffer.add(rows(99))
    assert buffer.is_full
    assert buffer.take_full().num_rows == 100
    assert buffer.rows == 0


ANYTHING = pa.table(
    {
        "int": pa.array([1, None, -3], pa.int16()),
        "text": pa.array(["a", None, "ü"]),
        "when": pa.array([datetime(2020, 1, 1, tzinfo=UTC), None, datetime(1960, 1, 1, tzinfo=UTC)]).cast(
            pa.timestamp("us", "UTC")
        ),
        "list": pa.array([[1], None, []], pa.list_(pa.int64())),
        "struct": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}]),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "decimal": pa.array([1, None, 2], pa.decimal128(20, 2)),
        "nothing": pa.nulls(3),
        "bool": pa.array([True, None, False]),
        "word": pa.array(["a", "b", None]).dictionary_encode(),
        "wide": pa.array(["a", "b", None], pa.large_string()),
    }
)


def test_nulls_nested_types_and_dictionaries_come_back_as_they_went_in(tmp_path: Path) -> None:
    other = ANYTHING.set_column(9, "word", pa.array(["c", None, "a"]).dictionary_encode())
    batches = [*ANYTHING.to_batches(), *other.to_batches(max_chunksize=1), *ANYTHING.slice(1, 1).to_batches()]
    run(write_parquet(tmp_path, row_group_rows=4), batches, ANYTHING.schema)
    expected = pa.Table.from_batches(batches, ANYTHING.schema)
    assert read_committed(tmp_path).to_pylist() == expected.to_pylist()
    assert read_committed(tmp_path).schema == ANYTHING.schema


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (pa.schema([]), "no columns"),
        (pa.schema([("a", pa.int64()), ("a", pa.int64())]), r"\['a'\] appear more than once"),
        (pa.schema([("u", pa.sparse_union([pa.field("x", pa.int64())]))]), "cannot hold column 'u' of type sparse"),
        (pa.schema([("s", pa.struct([]))]), "cannot hold column 's' of type struct"),
        (pa.schema([("i", pa.month_day_nano_interval())]), "cannot hold column 'i'"),
    ],
)
def test_what_parquet_cannot_hold_is_refused_before_anything_runs(schema: pa.Schema, said: str) -> None:
    with pytest.raises(SchemaMismatch, match=said):
        write_parquet("nowhere").check(schema)


def test_a_batch_of_another_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatch, match="was opened for x: int64"):
        fill(write_parquet(tmp_path).writer(context()), pa.record_batch({"x": pa.array([1.5])}))


@pytest.mark.parametrize("wrong", [{"if_exists": "ignore"}, {"row_group_rows": 0}, {"compression": "rar"}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        write_parquet("nowhere", **wrong)


def test_it_is_exactly_once() -> None:
    assert write_parquet("nowhere").guarantee is Guarantee.EXACTLY_ONCE


def listing(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_sink_that_is_sent_to_another_process_writes_where_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(write_parquet("out"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pickle.loads(sent).target == str(tmp_path / "out")


def test_a_restart_whose_commit_lists_are_gone_is_refused(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path)
    run(sink, [rows(1)], X)
    shutil.rmtree(tmp_path / "_commits")
    with pytest.raises(OutputExists, match=r"1 files \(part-00000001-.*\) of completed checkpoints that no list in"):
        sink.recover(2, [])
