"""Parquet files as a source: offsets, splits, selections, and files that are not what they should be."""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock
from dataflow.contracts.source import END, Json, Source, SourceContext, Split
from dataflow.errors import (
    ConfigurationError,
    InputChanged,
    PartitionKeyWarning,
    SchemaMismatch,
    SourceError,
    UnknownColumn,
)
from operators import read_parquet
from operators.sources import row_groups
from operators.sources.row_groups import GroupSizes, SplitBy
from tests.forcing import Force, forced

CONTEXT = SourceContext("source", 0, 1, ManualClock())


def write(path: Path, rows: int, *, start: int = 0, group: int = 7, **extra: pa.Array) -> Path:
    numbers = range(start, start + rows)
    columns = {"x": pa.array(numbers, pa.int64()), "s": pa.array([f"k{n % 3}" for n in numbers], pa.string()), **extra}
    path.parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def read(source: Source, split: Split, offset: Json = None, cuts: Sequence[int] = (1000,)) -> list[pa.RecordBatch]:
    """Polls with the sizes of ``cuts``, in turn."""
    reader = source.reader(split, offset, CONTEXT)
    batches: list[pa.RecordBatch] = []
    while (batch := reader.poll(cuts[len(batches) % len(cuts)])) is not END:
        assert batch is not None
        assert 0 < batch.num_rows <= cuts[len(batches) % len(cuts)]
        assert batch.schema.equals(source.schema, check_metadata=True)
        batches.append(batch)
    reader.close()
    return batches


def xs(source: Source, offset: Json = None, cuts: Sequence[int] = (1000,)) -> list[int]:
    return [
        x for split in source.splits() for batch in read(source, split, offset, cuts) for x in batch["x"].to_pylist()
    ]


@pytest.mark.parametrize("split_by", ["row_group", "file", "auto"])
@pytest.mark.parametrize("batch_rows", [1, 3, 5, 1000, None])
def test_a_reader_at_any_offset_gives_exactly_the_rest(tmp_path: Path, split_by: str, batch_rows: int | None) -> None:
    source = read_parquet(write(tmp_path / "a.parquet", 17), batch_rows=batch_rows, split_by=split_by)  # type: ignore[arg-type]
    for split in source.splits():
        whole = [x for batch in read(source, split) for x in batch["x"].to_pylist()]
        for offset in range(len(whole) + 1):
            rest = read(source, split, offset, cuts=(2, 1, 4))
            assert [x for batch in rest for x in batch["x"].to_pylist()] == whole[offset:]


def test_a_reader_knows_its_offset(tmp_path: Path) -> None:
    source = read_parquet(write(tmp_path / "a.parquet", 7))
    reader = source.reader(source.splits()[0], 2, CONTEXT)
    offsets = [reader.offset]
    while reader.poll(3) is not END:
        offsets.append(reader.offset)
    assert offsets == [2, 5, 7]


@pytest.mark.filterwarnings("ignore::dataflow.errors.FilesLeftOutWarning")
def test_files_come_in_the_order_of_their_names_however_they_are_given(tmp_path: Path) -> None:
    for index in (2, 0, 1):
        write(tmp_path / "data" / f"{index}.parquet", 3, start=10 * index)
    write(tmp_path / "data" / "_hidden.parquet", 3)
    write(tmp_path / "data" / "_staged" / "x.parquet", 3)
    (tmp_path / "data" / "notes.txt").write_text("not Parquet")
    expected = [0, 1, 2, 10, 11, 12, 20, 21, 22]
    folder = tmp_path / "data"
    several = [folder / "2.parquet", str(folder / "[0-1].parquet"), folder / "1.parquet"]
    for paths in (folder, str(folder / "[0-9].parquet"), several):
        assert xs(read_parquet(paths)) == expected


def test_a_split_is_a_row_group_or_a_file_and_says_what_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 17)
    groups, files = (read_parquet(path, split_by=by).splits() for by in ("row_group", "file"))  # type: ignore[arg-type]
    assert [(split.info["row_group"], split.info["rows"]) for split in groups] == [(0, 7), (1, 7), (2, 3)]
    assert [(split.info["row_group"], split.info["rows"]) for split in files] == [(0, 17)]
    assert groups[0].info["bytes"] == path.stat().st_size
    assert len({split.id for split in groups}) == 3


def test_neighbouring_row_groups_are_put_together_in_splits_and_batches(tmp_path: Path, force: Force) -> None:
    force(row_groups, "MOST_ROWS", 15, calls=GroupSizes._batch_of, giving=lambda rows: rows == 15)
    source = read_parquet(write(tmp_path / "a.parquet", 50))
    described = [(split.id[-2:], split.info["row_groups"], split.info["rows"]) for split in source.splits()]
    assert described == [("#0", 2, 14), ("#2", 2, 14), ("#4", 2, 14), ("#6", 2, 8)]
    assert [batch.num_rows for split in source.splits() for batch in read(source, split)] == [14, 14, 14, 8]
    larger = read_parquet(write(tmp_path / "b.parquet", 50, group=40))
    assert [split.info["rows"] for split in larger.splits()] == [40, 10]
    assert [batch.num_rows for split in larger.splits() for batch in read(larger, split)] == [15, 15, 10, 10]


@given(
    rows=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    size=st.integers(0, 40),
    by=st.sampled_from(["auto", "row_group", "file"]),
    batch_rows=st.none() | st.integers(1, 40),
    most=st.integers(1, 40),
)
def test_every_row_is_in_one_batch_within_the_limits(
    rows: list[int], size: int, by: SplitBy, batch_rows: int | None, most: int
) -> None:
    with (
        forced(row_groups, "MOST_ROWS", most, calls=GroupSizes.layout),
        forced(row_groups, "BATCH_BYTES", 100, calls=GroupSizes.layout),
    ):
        sizes = GroupSizes(rows, [size * n for n in rows])
        splits = sizes.splits(by)
        assert [group for split in splits for group in split] == list(range(len(rows)))
        for split in splits:
            layout, total = sizes.layout(split, batch_rows), sum(rows[group] for group in split)
            assert layout.ends[-1] == total
            lengths = [end - start for start, end in pairwise([0, *layout.ends])]
            assert max(lengths) <= (most if batch_rows is None else batch_rows)
            assert batch_rows is not None or size == 0 or max(lengths) == 1 or max(lengths) * size <= 100
            for row in range(total + 1):
                decoded = sum(rows[group] for piece in layout.after(row) for group in piece.groups)
                assert total - row <= decoded < total - row + max(rows)
                assert layout.is_between(row) == (row in (0, *layout.ends))
                assert layout.end_of_batch(row) == min((end for end in layout.ends if end > row), default=total)


def test_a_cut_within_a_batch_is_not_its_end(tmp_path: Path) -> None:
    source = read_parquet(write(tmp_path / "a.parquet", 17), batch_rows=5)
    reader = source.reader(source.splits()[0], 3, CONTEXT)
    polled = []
    while isinstance(batch := reader.poll(4), pa.RecordBatch):
        polled.append((batch.num_rows, reader.mid_batch))
    assert polled == [(2, False), (4, True), (1, False), (4, True), (1, False), (2, False)]


def test_a_subtask_opens_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    original = pq.ParquetFile

    def spy(path: str, **options: Any) -> pq.ParquetFile:
        opened.append(Path(path).name)
        return original(path, **options)

    for name in "ab":
        write(tmp_path / f"{name}.parquet", 50)
    source = read_parquet(tmp_path, split_by="row_group")
    monkeypatch.setattr(pq, "ParquetFile", spy)
    context = SourceContext("source", 0, 1, ManualClock())
    for split in source.splits():
        reader = source.reader(split, None, context)
        while reader.poll(1000) is not END:
            pass
        reader.close()
    assert opened == ["a.parquet", "b.parquet"]
    (left,) = context.left_open.values()
    left.close()


def test_a_job_over_single_row_groups_is_restored_without_new_input(tmp_path: Path) -> None:
    """Versions before row groups were put together made a split of each."""
    path, checkpoints = write(tmp_path / "a.parquet", 50), flow.Checkpointing(tmp_path / "checkpoints")

    def pipeline(split_by: SplitBy) -> flow.Pipeline:
        p = flow.Pipeline("older")
        p.source(read_parquet(path, split_by=split_by), name="rows").sink(op.collect(), name="out")
        return p

    pipeline("row_group").run(parallelism=2, checkpoint=checkpoints)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pipeline("auto").run(parallelism=2, checkpoint=checkpoints)
    assert again.restore_report is not None
    assert again.restore_report.not_read == ()


def test_columns_are_selected_in_the_files_order(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 5, z=pa.array([1.0] * 5))
    assert read_parquet(path, columns=["z", "x"]).schema.names == ["x", "z"]
    assert read_parquet(path).select(["s"]).schema.names == ["s"]
    for wrong in (lambda: read_parquet(path, columns=["xx"]), lambda: read_parquet(path).select(["xx"])):
        with pytest.raises(UnknownColumn, match="did you mean 'x'"):
            wrong()


def test_no_columns_still_count_the_rows(tmp_path: Path) -> None:
    source = read_parquet(write(tmp_path / "a.parquet", 17)).select([])
    counted = [sum(batch.num_rows for batch in read(source, split, 2, cuts=(2,))) for split in source.splits()]
    assert counted == [15]


def test_nested_columns_and_names_with_dots_are_read_whole(tmp_path: Path) -> None:
    nested = pa.array([{"p": n, "q": [n]} for n in range(5)])
    path = write(tmp_path / "a.parquet", 5, **{"st": nested, "st.p": pa.array(range(5))})
    for names in (["st"], ["st.p"], ["st", "st.p"]):
        source = read_parquet(path, columns=names)
        (batch,) = read(source, source.splits()[0])
        assert batch.schema.names == names
        assert batch.column(0).equals(nested if names[0] == "st" else pa.array(range(5)))


def test_text_is_read_as_dictionary_where_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 17)
    source = read_parquet(path, dictionary=["s"])
    assert source.schema.field("s").type == pa.dictionary(pa.int32(), pa.string())
    values = [v for split in source.splits() for b in read(source, split, cuts=(2,)) for v in b["s"].to_pylist()]
    assert values == [f"k{n % 3}" for n in range(17)]
    with pytest.raises(SchemaMismatch, match="'x' is int64"):
        read_parquet(path, dictionary=["x"])
    with pytest.raises(UnknownColumn, match="'ss'"):
        read_parquet(path, dictionary=["ss"])


def test_files_without_rows_are_fine(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0)
    assert read_parquet(tmp_path).splits() == ()
    write(tmp_path / "b.parquet", 3)
    assert xs(read_parquet(tmp_path)) == [0, 1, 2]
    assert xs(read_parquet(tmp_path, split_by="file")) == [0, 1, 2]


@pytest.mark.parametrize("missing", ["nothing.parquet", "*.parquet", "."])
def test_a_path_without_files_is_named(tmp_path: Path, missing: str) -> None:
    pattern = os.path.join(tmp_path, missing)
    with pytest.raises(SourceError) as caught:
        read_parquet(pattern)
    assert repr(pattern) in str(caught.value)


def test_settings_out_of_range_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 1)
    with pytest.raises(ConfigurationError, match="batch_rows"):
        read_parquet(path, batch_rows=0)
    with pytest.raises(ConfigurationError, match="'row'"):
        read_parquet(path, split_by="row")  # type: ignore[arg-type]
    with pytest.raises(SourceError, match="empty list"):
        read_parquet([])


@pytest.mark.parametrize("content", [b"", b"PAR1", b"a,b\n1,2\n" * 9])
def test_a_file_that_is_not_parquet_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(SourceError, match=r"a\.parquet' as Parquet"):
        read_parquet(tmp_path)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 100)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SourceError, match=r"a\.parquet' as Parquet"):
        read_parquet(path)


def test_a_file_without_permission_is_named() -> None:
    with as_an_ordinary_user(), tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "a.parquet", 1)
        path.chmod(0)
        with pytest.raises(SourceError, match=r"a\.parquet.*Permission"):
            read_parquet(path)


@contextlib.contextmanager
def as_an_ordinary_user() -> Iterator[None]:
    """Root may read every file, so root steps down for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_damaged_page_is_an_error_that_names_the_split(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 100)
    content = bytearray(path.read_bytes())
    content[4:60] = b"\xff" * 56
    path.write_bytes(content)
    source = read_parquet(path)
    with pytest.raises(SourceError, match=r"a\.parquet#0' is damaged somewhere after row 0"):
        xs(source)


def test_files_that_differ_in_schema_are_both_named_with_the_columns(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 1, y=pa.array([1]))
    pq.write_table(pa.table({"x": ["1"], "s": ["k"], "z": [1]}), tmp_path / "b.parquet")
    with pytest.raises(SchemaMismatch) as caught:
        read_parquet(tmp_path)
    for part in ("a.parquet", "b.parquet", "'x' is int64 in the first and string in the second", "'y'", "'z'"):
        assert part in str(caught.value)
    assert read_parquet(tmp_path, columns=["s"]).schema.names == ["s"]


def test_files_may_order_their_columns_differently(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1], "s": ["a"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"s": ["b"], "x": [2]}), tmp_path / "b.parquet")
    assert xs(read_parquet(tmp_path)) == [1, 2]


def test_an_unchanged_file_passes_the_check_even_when_touched(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 5)
    source = read_parquet(path)
    os.utime(path, (1, 1))
    source.check(source.splits()[0])
    assert xs(source) == list(range(5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: write(path, 6), "bytes"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"parquet-cpp", b"parquet-CPP")), "content had hash"),
        (lambda path: path.unlink(), "cannot be read any more"),
        (lambda path: path.write_bytes(b"short"), r"it had \d+ bytes and has 5"),
    ],
)
def test_a_changed_file_is_found_by_check_and_by_a_reader(tmp_path: Path, change: object, message: str) -> None:
    path = write(tmp_path / "a.parquet", 5)
    source = read_parquet(path)
    (split,) = source.splits()
    change(path)  # type: ignore[operator]
    os.utime(path, (1, 1)) if path.exists() else None
    for use in (lambda: source.check(split), lambda: source.reader(split, 1, CONTEXT)):
        with pytest.raises(InputChanged, match=message) as caught:
            use()
        assert "a.parquet" in str(caught.value)


def test_a_source_pickles(tmp_path: Path) -> None:
    source = read_parquet(write(tmp_path / "a.parquet", 17), columns=["x"])
    assert xs(pickle.loads(pickle.dumps(source))) == list(range(17))


def test_columns_of_one_name_are_refused_and_named(tmp_path: Path) -> None:
    pq.write_table(pa.table([[1], [2], [3]], names=["x", "y", "x"]), tmp_path / "a.parquet")
    with pytest.raises(SchemaMismatch, match=r"a\.parquet.*\['x'\] occur more than once"):
        read_parquet(tmp_path)


def test_a_key_in_the_names_of_folders_comes_with_a_warning(tmp_path: Path) -> None:
    write(tmp_path / "y=1" / "a.parquet", 5)
    write(tmp_path / "y=2" / "a.parquet", 5)
    with pytest.warns(PartitionKeyWarning, match=r"named by \['y'\], which are not columns") as caught:
        assert read_parquet(tmp_path).schema.names == ["x", "s"]
    assert caught[0].filename == __file__


def test_a_key_that_the_files_have_too_needs_no_warning(tmp_path: Path) -> None:
    write(tmp_path / "y=1" / "a.parquet", 5, y=pa.array([1] * 5))
    assert read_parquet(tmp_path).schema.names == ["x", "s", "y"]


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("dictionary", [(), ("text",)])
def test_view_columns_are_read_as_plain_ones_and_may_be_keys(
    tmp_path: Path, dictionary: tuple[str, ...], parallelism: int
) -> None:
    columns = {"text": pa.array(["a", None, "a"], pa.string_view()), "bytes": pa.array([b"x"] * 3, pa.binary_view())}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=2)
    with flow.Pipeline("views") as p:
        rows = p.source(read_parquet(tmp_path / "a.parquet", dictionary=dictionary), name="rows")
        rows.key_by("text").agg(op.count(), name="n").sink(op.collect(), name="out")
    assert rows.schema.field("bytes").type == pa.large_binary()
    found = p.run(parallelism=parallelism).table("out").to_pylist()
    assert sorted((str(row["text"]), row["count"]) for row in found) == [("None", 1), ("a", 2)]
