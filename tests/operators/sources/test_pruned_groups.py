"""Row groups that no row of which passes a filter: nothing but the work changes if they are not decoded."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

import dataflow as flow
import operators as op
from dataflow.contracts.source import END, Condition, Json, Source, Split
from dataflow.expressions import Expr, col, lit
from dataflow.expressions.safety import never_raises
from dataflow.expressions.typing import resolve
from dataflow.planning.prune_rows import conditions_of
from operators.sources.pruned_groups import pruned_groups
from tests.operators.reading import CONTEXT

BERLIN = ZoneInfo("Europe/Berlin")
TIMES = st.datetimes(datetime.datetime(1960, 1, 1), datetime.datetime(2100, 1, 1))
SECONDS = TIMES.map(lambda t: t.replace(microsecond=0))
FLOATS = st.sampled_from([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.5, -1.5, 2.0**53, 5e-324])
TEXTS = st.text("ab\x00é😀", max_size=3) | st.sampled_from(["a" * 5_000, "a" * 5_000 + "b"])


def ints(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.sampled_from([low, low + 1, high - 1, high]) | st.integers(max(low, -5), min(high, 5))


def decimals(scale: int) -> st.SearchStrategy[Decimal]:
    return st.integers(-(10**4), 10**4).map(lambda unscaled: Decimal(unscaled).scaleb(-scale))


NUMBERS = st.integers(-5, 5) | FLOATS | ints(64)
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any], st.SearchStrategy[Any]]] = [
    (pa.int8(), ints(8), NUMBERS),
    (pa.int64(), ints(64), NUMBERS),
    (pa.uint32(), ints(32, signed=False), NUMBERS),
    (pa.uint64(), ints(64, signed=False), ints(64, signed=False) | FLOATS),
    (pa.float32(), FLOATS, NUMBERS),
    (pa.float64(), FLOATS | st.floats(width=64), NUMBERS | st.floats(width=64)),
    (pa.date32(), st.dates(), st.dates()),
    (pa.timestamp("ms"), SECONDS, SECONDS),
    (pa.timestamp("us", "Europe/Berlin"), TIMES.map(lambda t: t.replace(tzinfo=BERLIN)),
     TIMES.map(lambda t: t.replace(tzinfo=datetime.UTC))),
    (pa.timestamp("ns", "UTC"), TIMES.map(lambda t: t.replace(tzinfo=datetime.UTC)),
     TIMES.map(lambda t: t.replace(tzinfo=BERLIN))),
    (pa.decimal128(9, 2), decimals(2), decimals(2) | decimals(3)),
    (pa.decimal128(38, 3), decimals(3), decimals(3) | st.integers(-5, 5)),
    (pa.string(), TEXTS, TEXTS),
    (pa.dictionary(pa.int32(), pa.string()), TEXTS, TEXTS),
    (pa.binary(), st.binary(max_size=2), st.binary(max_size=2)),
    (pa.bool_(), st.booleans(), st.booleans()),
]  # fmt: skip


@st.composite
def filtered_files(draw: st.DrawFn) -> tuple[pa.Table, dict[str, Any], int | None, Expr]:
    """A table with row numbers ``n``, how it is written, the rows of a batch, and a predicate on its column ``v``."""
    type_, values, literals = draw(st.sampled_from(KINDS))
    if draw(st.booleans()):  # so that row groups have few values, as in a file that is sorted
        drawn = draw(st.lists(values | st.none(), min_size=1, max_size=5))
        values_of_rows = [value for value in drawn for _ in range(draw(st.integers(1, 5)))]
    else:
        values_of_rows = draw(st.lists(values | st.none(), min_size=1, max_size=20))
    table = pa.table({"n": range(len(values_of_rows)), "v": pa.array(values_of_rows, type_)})
    how = {
        "row_group_size": draw(st.integers(1, 6)),
        "write_statistics": draw(st.sampled_from([True, True, True, False, ["n"]])),
        "store_decimal_as_integer": draw(st.booleans()),
    }
    return table, how, draw(st.none() | st.integers(1, 7)), draw(predicates(literals))


@st.composite
def predicates(draw: st.DrawFn, literals: st.SearchStrategy[Any]) -> Expr:
    def one() -> Expr:
        left, right = col("v"), lit(draw(literals))
        if draw(st.booleans()):
            left, right = right, left
        word = draw(st.sampled_from(["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]))
        compared: Expr = getattr(left, word)(right)
        return compared

    return one() & one() if draw(st.booleans()) else one()


def polls(source: Source, split: Split, offset: Json, cut: int) -> Iterator[tuple[pa.RecordBatch, int, int, int]]:
    """Each poll: its rows, the offset and the pruned rows after it, and the number of the batch that they belong to."""
    reader, number = source.reader(split, offset, CONTEXT), 0
    while (batch := reader.poll(cut)) is not END:
        assert batch is not None
        assert batch.num_rows <= cut
        assert batch.schema.equals(source.schema)
        assert isinstance(reader.offset, int)
        yield batch, reader.offset, reader.rows_pruned, number
        number += not reader.mid_batch
    reader.close()


def passing(source: Source, split: Split, offset: Json, cut: int, predicate: Expr) -> list[tuple[int, int]]:
    """The numbers of the rows that pass the predicate, each with the number of its batch."""
    found = []
    for batch, _, _, number in polls(source, split, offset, cut):
        passed = batch.filter(predicate.evaluate(batch))
        found += [(row, number) for row in passed["n"].to_pylist()]
    return found


@given(filtered_files(), st.integers(1, 9))
def test_the_rows_that_pass_and_their_batches_do_not_depend_on_pruning_from_any_offset(
    drawn: tuple[pa.Table, dict[str, Any], int | None, Expr], cut: int
) -> None:
    table, how, batch_rows, predicate = drawn
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(table, f"{folder}/a.parquet", version="2.6", **how)
        source = op.read_parquet(folder, batch_rows=batch_rows, split_by="file")
        try:
            assume(never_raises(resolve(predicate, source.schema, "filter")))
        except flow.errors.SchemaMismatch:
            reject()
        skipping = source.skipping(conditions_of(predicate, source.schema))
        (split,) = source.splits()
        for offset in (None, *range(table.num_rows + 1)):
            expected = passing(source, split, offset, cut, predicate)
            assert passing(skipping, split, offset, cut, predicate) == expected
        whole = list(polls(skipping, split, None, cut))
        assert all(row < offset for batch, offset, _, _ in whole for row in batch["n"].to_pylist())
        _, offset, pruned, _ = whole[-1]
        assert (offset, sum(batch.num_rows for batch, *_ in whole) + pruned) == (table.num_rows, table.num_rows)


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """Rows 0 to 99 in ten row groups; ``v`` is as ``n``, ``text`` is some text, ``missing`` is null in two groups."""
    rows = pa.array(range(100))
    missing = [None if row < 20 else row for row in range(100)]
    table = pa.table({"n": rows, "v": rows, "text": [f"{row:02}" for row in range(100)], "missing": missing})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    return tmp_path / "a.parquet"


@pytest.mark.parametrize(
    ("predicate", "kept"),
    [
        (col("v") > 89, [9]),
        (col("v") >= 89, [8, 9]),
        (lit(10) > col("v"), [0]),
        (col("v") <= 10, [0, 1]),
        (col("v") == 35, [3]),
        (col("v") == 35.5, [3]),
        (col("v") == -1, []),
        ((col("v") > 25) & (col("text") < "40"), [2, 3]),
        ((col("v") > 25) & ((col("n") == 1) | (col("n") == 99)), [2, 3, 4, 5, 6, 7, 8, 9]),
        (col("v").between(30, 39), [3]),
        (col("missing") >= 0, [2, 3, 4, 5, 6, 7, 8, 9]),
        (col("missing") != 0, [2, 3, 4, 5, 6, 7, 8, 9]),
        (col("text") > "99", [9]),
        ((col("v") > 89) | (col("v") < 0), list(range(10))),
        (col("v") > float("nan"), list(range(10))),
        (col("v") > lit(None), list(range(10))),
        (~(col("v") > 89), list(range(10))),
    ],
)
def test_row_groups_that_a_filter_leaves_nothing_of_are_known_by_their_statistics(
    numbers: Path, predicate: Expr, kept: list[int]
) -> None:
    metadata, schema = pq.read_metadata(numbers), op.read_parquet(numbers).schema
    pruned = pruned_groups(metadata, range(10), types_of(schema), schema, conditions_of(predicate, schema))
    assert sorted(set(range(10)) - pruned) == kept


def types_of(schema: pa.Schema) -> dict[str, pa.DataType]:
    return dict(zip(schema.names, schema.types, strict=True))


TIME = datetime.datetime(2024, 3, 31, tzinfo=BERLIN)
DAY = datetime.timedelta(days=1)
INF = float("inf")
ORDERED: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, -1, 0, 1, 127]),
    (pa.int64(), [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1]),
    (pa.uint8(), [0, 1, 127, 128, 255]),
    (pa.uint32(), [0, 1, 2**31 - 1, 2**31, 2**32 - 1]),
    (pa.uint64(), [0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
    (pa.float32(), [-INF, -1.5, 0.0, 1.5, INF]),
    (pa.float64(), [-INF, -1.5, 0.0, 5e-324, INF]),
    (pa.date32(), [datetime.date(1960, 1, 1), datetime.date(1970, 1, 1), datetime.date(2024, 2, 29)]),
    (pa.timestamp("ms"), [TIME.replace(tzinfo=None, year=year) for year in (1960, 1970, 2024)]),
    (pa.timestamp("us", "Europe/Berlin"), [TIME - DAY, TIME, TIME + DAY / 7]),
    (pa.timestamp("ns", "UTC"), [TIME - DAY, TIME, TIME + DAY / 7]),
    (pa.decimal128(9, 2), [Decimal("-3.40"), Decimal("-0.01"), Decimal("0.00"), Decimal("1.20")]),
    (pa.decimal128(38, 3), [Decimal("-" + "9" * 35), Decimal("0.001"), Decimal("9" * 34 + ".001")]),
]


@pytest.mark.parametrize("how", [{}, {"store_decimal_as_integer": True}], ids=str)
@pytest.mark.parametrize(
    ("type_", "values"), ORDERED, ids=lambda value: str(value) if isinstance(value, pa.DataType) else ""
)
def test_bounds_are_ordered_as_values_are_compared(
    tmp_path: Path, type_: pa.DataType, values: list[Any], how: dict[str, Any]
) -> None:
    """A row group of two values is pruned if, and only if, no value between them would pass."""
    pairs = [(low, high) for place, low in enumerate(values) for high in values[place:]]
    column = pa.array([value for pair in pairs for value in pair], type_)
    pq.write_table(pa.table({"v": column}), tmp_path / "a.parquet", row_group_size=2, **how)
    metadata, schema = pq.read_metadata(tmp_path / "a.parquet"), op.read_parquet(tmp_path).schema
    for literal in values:
        possible: dict[Expr, Callable[[Any, Any], bool]] = {
            col("v") < literal: lambda low, high, x=literal: low < x,
            col("v") <= literal: lambda low, high, x=literal: low <= x,
            col("v") > literal: lambda low, high, x=literal: high > x,
            col("v") >= literal: lambda low, high, x=literal: high >= x,
            col("v") == literal: lambda low, high, x=literal: low <= x <= high,
        }
        for predicate, may_pass in possible.items():
            conditions = conditions_of(predicate, schema)
            assert len(conditions) == 1
            pruned = pruned_groups(metadata, range(len(pairs)), types_of(schema), schema, conditions)
            assert pruned == {place for place, pair in enumerate(pairs) if not may_pass(*pair)}, predicate


def one_group(column: pa.Array, operator: str, value: pa.Scalar, **how: Any) -> bool:
    """Whether a file of one row group is pruned by a condition on its only column."""
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(pa.table({"v": column}), f"{folder}/a.parquet", **how)
        metadata, schema = pq.read_metadata(f"{folder}/a.parquet"), op.read_parquet(folder).schema
        return bool(pruned_groups(metadata, range(1), types_of(schema), schema, [Condition("v", operator, value)]))  # type: ignore[arg-type]


def test_zeros_of_either_sign_are_equal_and_nan_passes_an_inequality() -> None:
    for zero, other in ((0.0, -0.0), (-0.0, 0.0)):
        assert not one_group(pa.array([zero]), "==", pa.scalar(other))
        assert not one_group(pa.array([zero]), ">=", pa.scalar(other))
        assert one_group(pa.array([zero]), ">", pa.scalar(other))
    assert not one_group(pa.array([1.0, float("nan")]), "!=", pa.scalar(1.0))
    assert not one_group(pa.array([float("nan")]), ">", pa.scalar(1.0))  # without bounds
    assert one_group(pa.array([1, 1]), "!=", pa.scalar(1))


def test_an_upper_bound_of_text_may_have_been_cut() -> None:
    assert not one_group(pa.array(["ab"]), "==", pa.scalar("abc"))
    assert not one_group(pa.array(["ab"]), ">", pa.scalar("ab"))
    assert one_group(pa.array(["ab"]), "==", pa.scalar("ac"))
    assert one_group(pa.array(["ab"]), "<", pa.scalar("ab"))


def test_a_field_of_a_struct_is_not_the_column_whose_name_reads_the_same(tmp_path: Path) -> None:
    table = pa.table({"s": pa.array([{"v": 1}, {"v": 9}]), "s.v": [9, 1]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    schema = op.read_parquet(tmp_path).schema
    conditions = conditions_of(col("s.v") > 5, schema)
    assert not pruned_groups(pq.read_metadata(tmp_path / "a.parquet"), range(2), types_of(schema), schema, conditions)


def trace(source: Source, rows: int) -> list[tuple[Sequence[int], int, int, int]]:
    (split,) = source.splits()
    return [(batch["n"].to_pylist(), *rest) for batch, *rest in polls(source, split, None, rows)]  # type: ignore[misc]


def test_a_batch_without_rows_is_polled_as_an_empty_one_and_ends_where_it_did(numbers: Path) -> None:
    source = op.read_parquet(numbers, batch_rows=25, split_by="file").select(["n", "v"])
    skipping = source.skipping(conditions_of((col("v") >= 20) & (col("v") < 40), source.schema))
    assert trace(skipping, 1000) == [
        (list(range(20, 25)), 25, 20, 0),
        (list(range(25, 40)), 50, 30, 1),
        ([], 75, 55, 2),
        ([], 100, 80, 3),
    ]
    assert [(offset, number) for _, offset, _, number in trace(skipping, 4)][:3] == [(24, 0), (25, 0), (29, 1)]


def test_a_reader_within_a_batch_whose_rest_is_pruned_ends_that_batch_first(numbers: Path) -> None:
    source = op.read_parquet(numbers, batch_rows=25, split_by="file")
    reader = source.skipping(conditions_of(col("v") >= 60, source.schema)).reader(source.splits()[0], 12, CONTEXT)
    batch = reader.poll(1000)
    assert isinstance(batch, pa.RecordBatch)
    assert (batch.num_rows, reader.offset, reader.mid_batch, reader.rows_pruned) == (0, 25, False, 13)


def test_a_file_without_row_groups_is_at_its_end(tmp_path: Path) -> None:
    pq.ParquetWriter(tmp_path / "a.parquet", pa.schema({"n": pa.int64()})).close()
    source = op.read_parquet(tmp_path, split_by="file")
    assert not source.splits()
    (whole,) = source._splits_of(next(iter(source._files.values())))
    reader = source.reader(whole, None, CONTEXT)
    assert (reader.poll(10), reader.mid_batch, reader.offset) == (END, False, 0)


def damaged(path: Path, column: str, groups: Sequence[int]) -> Path:
    """Overwrite the pages of a column in some row groups."""
    metadata, content = pq.read_metadata(path), bytearray(path.read_bytes())
    place = metadata.schema.to_arrow_schema().get_field_index(column)
    for group in groups:
        chunk = metadata.row_group(group).column(place)
        start = chunk.data_page_offset if chunk.dictionary_page_offset is None else chunk.dictionary_page_offset
        content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(content)
    return path


def results(path: Path, predicate: Expr) -> list[int]:
    rows = flow.Pipeline().source(op.read_parquet(path)).filter(predicate).select("n")
    return list(rows.collect()["n"].to_pylist())


def test_pruned_row_groups_and_columns_that_are_not_used_are_never_decoded(numbers: Path) -> None:
    damaged(numbers, "text", range(10))
    damaged(numbers, "v", range(9))
    assert results(numbers, col("v") >= 90) == list(range(90, 100))
    with pytest.raises(flow.errors.SourceError, match="is damaged somewhere"):
        results(numbers, col("v") >= 89)
    with pytest.raises(flow.errors.SourceError, match="is damaged somewhere"):
        results(numbers, (col("v") >= 90) & (col("text") != ""))


def test_a_watched_directory_prunes_the_files_that_it_reads(tmp_path: Path) -> None:
    for number in range(3):
        rows = range(10 * number, 10 * number + 10)
        pq.write_table(pa.table({"n": rows, "v": rows}), tmp_path / f"{number}.parquet", row_group_size=5)
    source = op.watch(tmp_path, op.read_parquet, pattern="*.parquet", every="1us")
    skipping = source.skipping(conditions_of(col("v") >= 15, source.schema))
    reader, rows_read = skipping.reader(skipping.splits()[0], None, CONTEXT), list[int]()
    while (batch := reader.poll(1000)) is not None:
        assert batch is not END
        rows_read += batch["n"].to_pylist()
    assert (rows_read, reader.rows_pruned) == (list(range(15, 30)), 15)
