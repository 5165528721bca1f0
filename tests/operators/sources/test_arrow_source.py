"""Arrow data in memory, and streams of it, as a source; and sources at a pace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import feather, parquet

import dataflow as flow
import operators
from dataflow.clock import ManualClock
from dataflow.contracts.source import END, Json, Source, SourceContext, Split, SplitReader
from dataflow.errors import ConfigurationError, InputChanged, SchemaMismatch, SourceError, UnknownColumn
from operators import from_arrow, paced
from operators.sources.arrow import ArrowSource

CONTEXT = SourceContext("source", 0, 1, ManualClock())
TABLE = pa.table({"x": range(10), "s": [f"k{n % 3}" for n in range(10)]})
CHUNKED = pa.concat_tables([TABLE.slice(0, 3), TABLE.slice(3, 0), TABLE.slice(3, 7)])


def polled(reader: SplitReader, rows: int = 4) -> list[pa.RecordBatch]:
    batches = []
    while (batch := reader.poll(rows)) is not END:
        assert batch is not None
        assert 0 < batch.num_rows <= rows
        batches.append(batch)
    return batches


def rows(source: Source, offset: Json = None) -> list[dict[str, Any]]:
    readers = [source.reader(split, offset, CONTEXT) for split in source.splits()]
    return [row for reader in readers for batch in polled(reader) for row in batch.to_pylist()]


def pandas_frame() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"x": range(10), "s": [f"k{n % 3}" for n in range(10)]})


@pytest.mark.parametrize(
    "make",
    [
        lambda: TABLE,
        lambda: CHUNKED,
        lambda: TABLE.to_batches()[0],
        lambda: CHUNKED.to_batches(),
        lambda: TABLE.to_reader(),
        lambda: polars.DataFrame({"x": range(10), "s": [f"k{n % 3}" for n in range(10)]}),
        lambda: duckdb.sql("select i as x, 'k' || (i % 3)::varchar as s from range(10) t(i)"),
        pandas_frame,
        lambda: pa.StructArray.from_arrays([TABLE["x"].chunk(0), TABLE["s"].chunk(0)], ["x", "s"]),
    ],
)
def test_whatever_speaks_arrow_is_a_source(make: Any) -> None:
    source = from_arrow(make())
    assert rows(source) == TABLE.to_pylist()
    assert source.schema.field("s").type in (pa.string(), pa.large_string())


@pytest.mark.parametrize("what", [[], [1], {"x": [1]}, "text", None])
def test_what_is_not_arrow_is_refused_with_a_hint(what: object) -> None:
    with pytest.raises(TypeError, match="from_arrow takes Arrow data"):
        from_arrow(what)


@pytest.mark.parametrize("splits", [1, 2, 3, 12])
def test_a_reader_at_any_offset_gives_exactly_the_rest(splits: int) -> None:
    source = from_arrow(CHUNKED, splits=splits, batch_rows=3)
    whole = [
        [row for b in polled(source.reader(split, None, CONTEXT)) for row in b.to_pylist()] for split in source.splits()
    ]
    assert [row for part in whole for row in part] == TABLE.to_pylist()
    for split, part in zip(source.splits(), whole, strict=True):
        for offset in range(len(part) + 1):
            reader = source.reader(split, offset, CONTEXT)
            assert [row for batch in polled(reader, 2) for row in batch.to_pylist()] == part[offset:]
            assert reader.offset == len(part)


def test_batches_are_slices_of_the_data() -> None:
    source = from_arrow(TABLE)
    batch = polled(source.reader(source.splits()[0], 2, CONTEXT))[0]
    assert batch["x"].buffers()[1].address == TABLE["x"].chunk(0).buffers()[1].address


def test_the_content_hash_sees_values_and_not_chunks() -> None:
    whole = from_arrow(TABLE).splits()
    assert from_arrow(CHUNKED).splits() == whole
    assert from_arrow(TABLE).select(["x"]).splits() == whole
    encoded = TABLE.set_column(1, "s", TABLE["s"].dictionary_encode())
    chunked = pa.concat_tables([encoded.slice(0, 2), encoded.slice(2)])
    assert from_arrow(chunked).splits() == from_arrow(encoded).splits()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (TABLE.set_column(0, "x", pa.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 10])), "content"),
        (TABLE.set_column(1, "s", pa.array(["k"] * 9 + [None])), "content"),
        (TABLE.rename_columns(["y", "s"]), "schema"),
        (TABLE.slice(1), "now cut into"),
    ],
)
def test_a_restore_over_other_data_is_refused(other: pa.Table, message: str) -> None:
    with pytest.raises(InputChanged, match=message):
        from_arrow(other).check(from_arrow(TABLE).splits()[0])


def test_a_selection_keeps_the_order_and_knows_its_columns() -> None:
    for source in (from_arrow(TABLE), from_arrow(TABLE.to_reader())):
        assert source.select(["s", "x"]).schema.names == ["x", "s"]
        with pytest.raises(UnknownColumn, match="'xx'"):
            source.select(["xx"])
        assert rows(source.select(["s"])) == TABLE.select(["s"]).to_pylist()


def test_no_columns_still_count_the_rows() -> None:
    for data in (TABLE, TABLE.to_reader()):
        source = from_arrow(data).select([])
        reader = source.reader(source.splits()[0], None, CONTEXT)
        assert [batch.num_rows for batch in polled(reader)] == [4, 4, 2]


def test_a_stream_is_read_once() -> None:
    source = from_arrow(TABLE.to_reader())
    assert (source.replayable, source.blocking, from_arrow(TABLE).replayable) == (False, True, True)
    assert len(rows(source)) == 10
    for again in (source, source.select(["x"])):
        with pytest.raises(SourceError, match="cannot be read twice"):
            rows(again)


def test_a_stream_can_be_read_into_memory_to_be_replayable() -> None:
    source = from_arrow(TABLE.to_reader(), replayable=True, splits=2)
    assert (source.replayable, rows(source), rows(source)) == (True, TABLE.to_pylist(), TABLE.to_pylist())
    assert from_arrow(TABLE, replayable=False).replayable is False


def test_a_stream_that_breaks_says_where() -> None:
    def broken() -> Any:
        yield from TABLE.to_batches()
        raise OSError("the link is down")

    source = from_arrow(pa.RecordBatchReader.from_batches(TABLE.schema, broken()))
    with pytest.raises(SourceError, match="after row 10"):
        rows(source)


def test_a_stream_is_checked_by_its_schema() -> None:
    (split,) = from_arrow(TABLE.to_reader()).splits()
    from_arrow(TABLE.to_reader()).check(split)
    with pytest.raises(InputChanged):
        from_arrow(TABLE.select(["x"]).to_reader()).check(split)


def test_an_empty_table_has_a_split_and_no_rows() -> None:
    assert rows(from_arrow(TABLE.slice(0, 0))) == []
    assert rows(from_arrow(TABLE.slice(0, 0), splits=3)) == []


def test_settings_out_of_range_are_refused() -> None:
    for make in (
        lambda: from_arrow(TABLE, splits=0),
        lambda: from_arrow(TABLE, batch_rows=0),
        lambda: from_arrow(TABLE.to_reader(), splits=2),
        lambda: paced(from_arrow(TABLE), 0),
        lambda: paced(from_arrow(TABLE), []),
    ):
        with pytest.raises(ConfigurationError):
            make()


def arrivals(source: Source, split: Split, step: int, polls: int) -> list[int]:
    """Rows given at each poll, ``step`` microseconds apart; -1 for the end."""
    clock = ManualClock()
    reader = source.reader(split, None, SourceContext("source", 0, 1, clock))
    given = []
    for _ in range(polls):
        batch = reader.poll(1000)
        given.append(-1 if batch is END else 0 if batch is None else batch.num_rows)
        clock.advance(step)
    return given


def test_a_small_rate_gives_rows_one_by_one() -> None:
    source = paced(from_arrow(TABLE), 4)
    assert arrivals(source, source.splits()[0], 125_000, 7) == [0, 0, 1, 0, 1, 0, 1]


def test_a_large_rate_gives_a_batch_every_ten_milliseconds() -> None:
    source = paced(from_arrow(pa.table({"x": range(10_000)})), 50_000)
    assert arrivals(source, source.splits()[0], 5_000, 6) == [0, 0, 500, 0, 500, 0]


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_a_table_of_fewer_rows_than_splits_names_no_split_twice(rows: int) -> None:
    made = from_arrow(pa.table({"x": pa.array(range(rows), pa.int64())}), splits=4).splits()
    assert len({split.id for split in made}) == len(made) == rows + 1
    assert sum(int(str(split.info["rows"])) for split in made) == rows


def test_every_split_has_its_own_rate() -> None:
    source = paced(from_arrow(pa.table({"x": range(3000)}), splits=3), [10, 1000])
    sums = [sum(arrivals(source, split, 100_000, 6)) for split in source.splits()]
    assert sums == [5, 500, 5]


def test_a_paced_source_ends_and_is_its_inner_source_in_all_else() -> None:
    inner = from_arrow(TABLE.to_reader())
    source = paced(inner, 1e6).select(["x"])
    assert (source.bounded, source.replayable, source.blocking) == (True, False, True)
    assert (source.schema.names, source.splits()) == (["x"], inner.splits())
    source.check(inner.splits()[0])
    assert arrivals(source, source.splits()[0], 1_000_000, 4) == [0, 10, -1, -1]


def test_a_paced_reader_polled_for_few_rows_at_a_time_catches_up() -> None:
    clock = ManualClock()
    source = paced(from_arrow(TABLE), 1000)
    reader = source.reader(source.splits()[0], 4, SourceContext("source", 0, 1, clock))
    assert reader.poll(2) is None
    clock.advance(1_000_000)
    batches = polled(reader, 2)
    assert ([batch.num_rows for batch in batches], reader.offset) == ([2, 2, 2], 10)


def test_public_names_are_resolved_on_first_use() -> None:
    assert set(operators.__all__) <= set(dir(operators))
    assert all(callable(getattr(operators, name)) for name in operators.__all__)
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = operators.nothing


@pytest.mark.parametrize("make", [lambda table: table, lambda table: table.to_reader(), lambda table: [table, table]])
def test_columns_of_one_name_are_refused_and_named(make: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"\['x'\] occur more than once among \['x', 'y', 'x'\]"):
        from_arrow(make(pa.table([[1], [2], [3]], names=["x", "y", "x"])))


def test_the_hash_of_a_split_knows_neither_chunks_nor_the_rows_around_it() -> None:
    table = pa.table({"s": [f"k{n % 3}" for n in range(10)], "x": [1, None, 3, 4, 5, 6, 7, 8, 9, 10]})
    chunked = pa.concat_tables([table.slice(0, 3), table.slice(3)])
    other = pa.concat_tables([table.slice(0, 9), table.slice(0, 1)])
    splits = from_arrow(table, splits=3).splits()
    assert from_arrow(chunked, splits=3).splits() == splits
    assert [a == b for a, b in zip(from_arrow(other, splits=3).splits(), splits, strict=True)] == [True, True, False]


def test_a_paced_source_sets_aside_what_the_inner_one_does() -> None:
    class Rejecting(SplitReader):
        offset = 0

        def poll(self, max_rows: int) -> pa.RecordBatch:
            return TABLE.to_batches()[0].slice(0, max_rows)

        def rejected(self) -> pa.RecordBatch:
            return pa.record_batch({"row": ["bad"]})

    class Sorting(ArrowSource):
        @property
        def sides(self) -> dict[str, pa.Schema]:
            return {"errors": pa.schema({"row": pa.string()})}

        def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
            return Rejecting()

    inner = Sorting(TABLE, 100, 1)
    slow = paced(inner, 1_000)
    assert slow.sides == inner.sides
    assert slow.reader(slow.splits()[0], None, CONTEXT).rejected() == pa.record_batch({"row": ["bad"]})


def test_what_a_pace_cuts_are_whole_batches() -> None:
    clock = ManualClock()
    slow = paced(from_arrow(pa.table({"x": range(1_000)}), batch_rows=500), 1_000)
    reader = slow.reader(slow.splits()[0], None, SourceContext("source", 0, 1, clock))
    reader.poll(100)
    clock.advance(20_000)
    assert [(len(reader.poll(rows)), reader.mid_batch) for rows in (8, 100)] == [(8, True), (12, False)]


@pytest.mark.parametrize("values", [["a", None], [1.5, 2.5], [b"x", b"y"]])
@pytest.mark.parametrize("reader", [False, True], ids=["table", "reader"])
def test_run_end_encoded_columns_are_decoded(values: list[Any], reader: bool) -> None:  # noqa: FBT001
    runs = pa.RunEndEncodedArray.from_arrays([2, 3, 5], pa.array([*values, values[0]]))
    batches = [pa.record_batch({"k": runs}), pa.record_batch({"k": runs.slice(1, 3)}), pa.record_batch({"k": runs[:0]})]
    table = pa.Table.from_batches(batches)
    source = from_arrow(table.to_reader() if reader else table)
    assert source.schema.field("k").type == pa.array(values).type
    made = flow.Pipeline().source(source).collect()
    assert made["k"].to_pylist() == [value for batch in batches for value in batch["k"].to_pylist()]


VIEWS = pa.array(["a", None, "c"], pa.string_view())
ENDS = pa.array([0, 1, 2, 3], pa.int32())


def wrapped(values: pa.Array) -> dict[str, pa.Array]:
    lists = pa.ListArray.from_arrays(ENDS, values)
    return {
        "struct": pa.StructArray.from_arrays([values], ["v"]),
        "list": lists,
        "fixed": pa.FixedSizeListArray.from_arrays(values, 1),
        "map": pa.MapArray.from_arrays(ENDS, pa.array(["x", "y", "z"]), values),
        "deep": pa.StructArray.from_arrays([lists], ["l"]),
    }


def test_views_inside_other_types_become_plain_text_so_that_rows_can_be_filtered(tmp_path: Path) -> None:
    table = pa.table({**wrapped(VIEWS), "x": [1, 2, 3]})
    feather.write_feather(table, tmp_path / "a.arrow", compression="uncompressed")
    parquet.write_table(table, tmp_path / "a.parquet")
    for source in (
        from_arrow(table),
        from_arrow(table.to_reader()),
        operators.read_ipc(tmp_path / "a.arrow"),
        operators.read_parquet(tmp_path / "a.parquet"),
    ):
        made = flow.Pipeline().source(source).filter(flow.col("x") > 1).collect()
        assert made.to_pylist() == table.to_pylist()[1:]
        assert made.schema.field("struct").type == pa.struct({"v": pa.large_string()})


@pytest.mark.parametrize("reader", [False, True], ids=["table", "reader"])
def test_run_end_encoded_views_are_decoded(reader: bool) -> None:  # noqa: FBT001
    table = pa.table({"k": pa.RunEndEncodedArray.from_arrays([1, 3, 4], VIEWS)})
    made = flow.Pipeline().source(from_arrow(table.to_reader() if reader else table)).collect()
    assert made.to_pydict() == {"k": ["a", None, None, "c"]}
    assert made.schema.field("k").type == pa.large_string()


@pytest.mark.parametrize("shape", [None, *wrapped(VIEWS)])
def test_list_views_of_views_are_refused_by_name_wherever_they_are(shape: str | None) -> None:
    column = pa.array([["a"], None, []], pa.list_view(pa.string_view()))
    table = pa.table({"odd": column if shape is None else wrapped(column)[shape]})
    with pytest.raises(SchemaMismatch, match=r"column 'odd' has type .*cast a list view to a list"):
        from_arrow(table)


def test_nested_text_of_polars_is_read() -> None:
    frame = polars.DataFrame({"l": [["a"], ["b", None]], "s": [{"x": "u"}, {"x": None}], "n": [1, 2]})
    made = flow.Pipeline().source(from_arrow(frame)).filter(flow.col("n") > 1).collect()
    assert made.to_pylist() == frame.to_dicts()[1:]


@pytest.mark.parametrize("shape", wrapped(VIEWS))
def test_run_end_encoded_values_inside_other_types_are_refused_by_name(shape: str, tmp_path: Path) -> None:
    column = wrapped(pc.run_end_encode(pa.array([1, 1, 2])))[shape]
    table = pa.table({"odd": column, "x": [1, 2, 3]})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table)
    reads: list[Callable[[], Source]] = [
        lambda: from_arrow(table),
        lambda: from_arrow(table.to_reader()),
        lambda: operators.read_ipc(tmp_path / "a.arrow"),
        lambda: operators.read_csv(tmp_path / "a.csv", schema=table.schema),
    ]
    (tmp_path / "a.csv").write_text("odd,x\n")
    for read in reads:
        with pytest.raises(SchemaMismatch, match=r"column 'odd' has type .*run_end_decode.*leave the column out"):
            flow.Pipeline().source(read())
    left = operators.read_ipc(tmp_path / "a.arrow", columns=["x"])
    assert flow.Pipeline().source(left).collect()["x"].to_pylist() == [1, 2, 3]


def test_nulls_in_a_column_that_says_it_has_none_are_refused() -> None:
    strict = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(SchemaMismatch, match=r"column 'x' is declared not null, but 2 of its values are null"):
        from_arrow(pa.table([[1, None, None]], schema=strict))


@pytest.mark.parametrize("around", [lambda a: a, lambda a: pa.ListArray.from_arrays(pa.array([0, 2, 3]), a)])
def test_nested_nulls_where_none_are_declared_are_refused_with_their_path(around: Callable[[Any], Any]) -> None:
    strict = pa.field("x", pa.int64(), nullable=False)
    column = around(pa.StructArray.from_arrays([pa.array([1, None, 3])], fields=[strict]))
    with pytest.raises(
        SchemaMismatch, match=r"column 's(\.item)?\.x' is declared not null, but 1 of its values are null"
    ):
        from_arrow(pa.table({"s": column}))


STRICT = pa.field("x", pa.int64(), nullable=False)
VIEWED = pa.struct([STRICT, pa.field("v", pa.string_view())])


@pytest.mark.parametrize(
    "column",
    [
        pa.StructArray.from_arrays([pa.array([1, None, 3])], fields=[STRICT]).slice(2),
        pa.array([{"x": 1, "v": "a"}, None], VIEWED),
        pa.array([[{"x": 1, "v": "a"}], None], pa.list_(VIEWED)),
    ],
    ids=["outside of a slice", "beside a view", "beside a view in a list"],
)
def test_columns_without_misplaced_nulls_are_taken(column: pa.Array) -> None:
    assert flow.Pipeline().source(from_arrow(pa.table({"s": column}))).collect()["s"].to_pylist() == column.to_pylist()
