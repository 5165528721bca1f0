"""Functions of text and times against plain Python, over sliced columns of every layout."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.errors import GraphError, SchemaMismatch
from dataflow.expressions import Expr, coalesce, col, concat_str, from_epoch
from dataflow.expressions.strings import WHITESPACE
from dataflow.expressions.type_names import named_type

LAYOUTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
words = st.one_of(st.none(), st.text(max_size=6), st.text("abAB é😀,.", max_size=8))
rows = st.lists(words, max_size=8)


def laid_out(values: list[str | None], layout: pa.DataType) -> pa.Array:
    """A slice in the middle of its memory; a dictionary with entries nobody uses."""
    padded = pa.array(["unused", *values, "unused"], pa.string())
    encoded = padded.dictionary_encode().cast(layout) if pa.types.is_dictionary(layout) else padded.cast(layout)
    return encoded.slice(1, len(values))


def evaluated(expr: Expr, column: pa.Array) -> list[Any]:
    batch = pa.record_batch({"x": column})
    made = expr.evaluate(batch)
    made.validate(full=True)
    assert made.type == expr.dtype(batch.schema)
    return made.to_pylist()


def each(function: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    return [None if value is None else function(value) for value in values]


def one_for_one(case: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(case(c) if len(case(c)) == 1 else c for c in text)


x = col("x")


@pytest.mark.parametrize(
    ("expr", "model"),
    [
        (x.str.length(), len),
        (x.str.strip(), lambda text: text.strip(WHITESPACE)),
        (x.str.strip("aé"), lambda text: text.strip("aé")),
        (x.str.starts_with("a"), lambda text: text.startswith("a")),
        (x.str.ends_with("é"), lambda text: text.endswith("é")),
        (x.str.contains(".a", literal=True), lambda text: ".a" in text),
        (x.str.replace_all("a", "$\\1", literal=True), lambda text: text.replace("a", "$\\1")),
        (x.str.split(","), lambda text: text.split(",")),
        (x.str.split(",").list.get(-2), lambda text: (["", *text.split(",")] if "," in text else [None, None])[-2]),
        (x.str.slice(2), lambda text: text[2:]),
        (x.str.slice(1, 2), lambda text: text[1:3]),
        (x.str.slice(-3), lambda text: text[-3:]),
        (x.str.slice(-3, 2), lambda text: text[max(len(text) - 3, 0) : max(len(text) - 1, 0)]),
        (x.str.slice(-3, 3), lambda text: text[-3:]),
        (x.str.count("a"), lambda text: text.count("a")),
        (x.str.count("é😀"), lambda text: text.count("é😀")),
        (concat_str([x, "-", x], separator="+"), lambda text: f"{text}+-+{text}"),
    ],
    ids=lambda value: None if callable(value) else str(value),
)
@given(layout=st.sampled_from(LAYOUTS), values=rows)
def test_text_is_pythons(
    expr: Expr, model: Callable[[str], Any], layout: pa.DataType, values: list[str | None]
) -> None:
    assert evaluated(expr, laid_out(values, layout)) == each(model, values)


@given(
    st.sampled_from(LAYOUTS),
    st.lists(st.none() | st.text("abzABZ019 éÉàÀñÑçøØœŒžŽяЯđĐőŐŉİ😀-", max_size=8), max_size=8),
)
def test_case_is_pythons_where_one_character_stays_one(layout: pa.DataType, values: list[str | None]) -> None:
    column = laid_out(values, layout)
    assert evaluated(x.str.upper(), column) == each(one_for_one(str.upper), values)
    lowered = each(lambda text: one_for_one(str.lower)(text).replace("İ", "i"), values)
    assert evaluated(x.str.lower(), column) == lowered


@given(st.lists(st.text(max_size=8), max_size=8))
def test_case_keeps_the_length(values: list[str]) -> None:
    for expr in (x.str.lower(), x.str.upper()):
        assert evaluated(expr.str.length(), laid_out(values, pa.string())) == [len(value) for value in values]


UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
ZONES = [None, "UTC", "+05:30", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo"]
moments = st.one_of(
    st.none(),
    st.datetimes(datetime(1950, 1, 1), datetime(2037, 12, 1)),  # what Arrow knows of zones' clocks
    st.datetimes(datetime(1969, 12, 30), datetime(1970, 1, 2)),
)


def in_zone(moment: datetime, zone: str | None) -> datetime:
    """The moment with its zone."""
    if zone is None:
        return moment
    found = timezone(timedelta(hours=5, minutes=30)) if zone == "+05:30" else ZoneInfo(zone)
    return moment.replace(tzinfo=UTC).astimezone(found)


def shown(moment: datetime, zone: str | None) -> datetime:
    """What a zone's clock shows."""
    return in_zone(moment, zone).replace(tzinfo=None)


@pytest.mark.parametrize("zone", ZONES)
@given(unit=st.sampled_from(list(UNITS)), drawn=st.lists(moments, max_size=8))
def test_parts_of_timestamps_are_those_of_the_zones_clock(zone: str | None, unit: str, drawn: list[Any]) -> None:
    values = each(lambda moment: moment.replace(microsecond=moment.microsecond // UNITS[unit] * UNITS[unit]), drawn)
    column = pa.array([None, *values], pa.timestamp(unit)).cast(pa.timestamp(unit, zone)).slice(1)
    local = each(lambda moment: shown(moment, zone), values)
    models: list[tuple[Expr, Callable[[datetime], Any]]] = [
        (x.dt.year(), lambda t: t.year),
        (x.dt.month(), lambda t: t.month),
        (x.dt.day(), lambda t: t.day),
        (x.dt.hour(), lambda t: t.hour),
        (x.dt.minute(), lambda t: t.minute),
        (x.dt.second(), lambda t: t.second),
        (x.dt.millisecond(), lambda t: t.microsecond // 1000),
        (x.dt.microsecond(), lambda t: t.microsecond),
        (x.dt.weekday(), lambda t: t.isoweekday()),
        (x.dt.ordinal_day(), lambda t: t.timetuple().tm_yday),
        (x.dt.date(), lambda t: t.date()),
    ]
    for expr, model in models:
        assert evaluated(expr, column) == each(model, local)


@pytest.mark.parametrize("dtype", [pa.date32(), pa.date64()])
@given(st.lists(st.none() | st.dates(date(1, 1, 1), date(9999, 12, 31)), max_size=8))
def test_parts_of_dates_are_pythons(dtype: pa.DataType, values: list[date | None]) -> None:
    column = pa.array(values, dtype)
    assert evaluated(x.dt.year(), column) == each(lambda day: day.year, values)
    assert evaluated(x.dt.weekday(), column) == each(lambda day: day.isoweekday(), values)
    assert evaluated(x.dt.ordinal_day(), column) == each(lambda day: day.timetuple().tm_yday, values)
    assert evaluated(x.dt.date(), column) == values


lengths = st.sampled_from(["1s", "7s", "90s", "15min", "1h", "6h", "1d", "7d"])


@given(
    unit=st.sampled_from(list(UNITS)),
    every=lengths,
    offset=lengths | lengths.map("-{}".format),
    drawn=st.lists(moments, max_size=8),
)
def test_truncation_goes_down_to_a_multiple(unit: str, every: str, offset: str, drawn: list[Any]) -> None:
    values = each(lambda moment: moment.replace(microsecond=moment.microsecond // UNITS[unit] * UNITS[unit]), drawn)
    assert evaluated(x.dt.truncate(every, offset=offset), pa.array(values, pa.timestamp(unit))) == each(
        lambda moment: moment - (moment - datetime(1970, 1, 1) - span(offset)) % span(every), values
    )


def span(text: str) -> timedelta:
    number = int("".join(filter(str.isdigit, text)))
    return (
        number
        * {"s": timedelta(seconds=1), "min": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}[
            text.lstrip("-0123456789")
        ]
        * (-1 if text.startswith("-") else 1)
    )


def test_truncation_below_the_earliest_time_overflows() -> None:
    column = pa.array([-(2**63) + 1, None], pa.int64()).cast(pa.timestamp("ns"))
    with pytest.raises(OverflowError, match="earliest"):
        evaluated(x.dt.truncate("1d"), column)
    assert evaluated(x.dt.truncate("1d"), column.slice(1)) == [None]


def test_a_dictionary_entry_that_nobody_uses_does_not_overflow() -> None:
    times = pa.array([-(2**63) + 1, 0, 0, 0], pa.int64()).cast(pa.timestamp("ns")).dictionary_encode().slice(1)
    assert evaluated(x.dt.truncate("1d"), times) == [datetime(1970, 1, 1)] * 3


def test_a_dictionary_entry_that_nobody_uses_is_neither_written_nor_rounded() -> None:
    times = pa.array([2**62, 0, 0, 0], pa.int64()).cast(pa.timestamp("us")).dictionary_encode().slice(1)
    assert evaluated(x.dt.strftime("%Y"), times) == ["1970"] * 3
    ints = pa.array([2**63 - 1, 15, 15, 15], pa.int64()).dictionary_encode().slice(1)
    assert evaluated(x.round(-1), ints) == [20] * 3


@pytest.mark.parametrize("dtype", [pa.float64(), pa.string(), pa.bool_(), pa.timestamp("us"), pa.decimal128(9, 0)])
def test_from_epoch_takes_integers_only(dtype: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match=r"from_epoch\(col\('x'\), 's'\) cannot be computed.*takes integers"):
        from_epoch("x", "s").dtype(pa.schema({"x": dtype}))


def test_from_epoch_knows_four_units() -> None:
    with pytest.raises(GraphError, match="unit must be 's', 'ms', 'us' or 'ns', got 'm'"):
        from_epoch("x", "m")
    for unit in ("s", "ms", "us", "ns"):
        assert from_epoch("x", unit).dtype(pa.schema({"x": pa.int16()})) == pa.timestamp(unit, "UTC")


NAMED = {
    "float64": pa.float64(),
    "double": pa.float64(),
    "float32": pa.float32(),
    "timestamp[us]": pa.timestamp("us"),
    "timestamp[us, tz=UTC]": pa.timestamp("us", "UTC"),
    "timestamp[ms, tz=Europe/Berlin]": pa.timestamp("ms", "Europe/Berlin"),
    "timestamp[s, tz=+05:30]": pa.timestamp("s", "+05:30"),
    "decimal128(9, 2)": pa.decimal128(9, 2),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_type_is_known_by_the_name_it_is_printed_with(name: str) -> None:
    assert named_type(name, "cast") == NAMED[name]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("float", "32 bits in one place and 64 in another; write 'float64' or 'float32'"),
        ("FLOAT", "write 'float64' or 'float32'"),
        ("i8", "write 'int64' for numpy's"),
        ("F4", "write 'float32' for numpy's"),
        ("int", "no type 'int'; write 'int64' or 'int32'"),
        ("long", "write 'int64'"),
        ("timestamp", r"write 'timestamp\[us\]' or"),
        ("timestamp[us, tz=Mars]", "no such time zone"),
        ("decimal128(99, 2)", "no type 'decimal128"),
    ],
)
def test_a_type_name_with_two_meanings_or_none_is_refused(name: str, said: str) -> None:
    with pytest.raises(GraphError, match=f"^cast: .*{said}"):
        x.cast(name)


CODES = "%Y %y %m %d %j %H %I %M %S %f %u %w %G %V %U %W %% é %a %A %b %B %p %c %x %X %z"


@pytest.mark.parametrize("zone", [None, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
@given(unit=st.sampled_from(list(UNITS)), drawn=st.lists(moments, max_size=8))
def test_times_are_written_as_python_writes_them(zone: str | None, unit: str, drawn: list[Any]) -> None:
    values = each(lambda moment: moment.replace(microsecond=moment.microsecond // UNITS[unit] * UNITS[unit]), drawn)
    column = pa.array([None, *values], pa.timestamp(unit)).cast(pa.timestamp(unit, zone)).slice(1)
    assert evaluated(x.dt.strftime(CODES), column) == each(lambda moment: in_zone(moment, zone).strftime(CODES), values)


@given(st.lists(st.none() | st.dates(date(1000, 1, 1), date(9999, 12, 31)), max_size=8))
def test_dates_are_written_as_python_writes_them(values: list[date | None]) -> None:
    assert evaluated(x.dt.strftime(CODES), pa.array(values, pa.date32())) == each(
        lambda day: day.strftime(CODES), values
    )


def test_nanoseconds_are_cut_off_as_python_would() -> None:
    times = pa.array([-1, 1_999], pa.timestamp("ns"))
    assert evaluated(x.dt.strftime("%S.%f"), times) == ["59.999999", "00.000001"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("at %Z", "'%Z' is a name that Spark and Python have from different lists; use %z"),
        ("%H%:z", "'%:' is not one that every version of Python has; use %z"),
        ("%e", "'%e' is not one of %Y %y"),
        ("%F", "'%F' is not one of %Y %y"),
        ("%-d", "'%-' is not one of"),
        ("100%", "'%' is not one of"),
    ],
)
def test_a_code_that_is_not_the_same_everywhere_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(GraphError, match=f"^strftime: {said}"):
        x.dt.strftime(text)


LISTS = [pa.list_(pa.string()), pa.large_list(pa.string()), pa.list_(pa.string_view()), pa.list_(pa.string(), 3)]


@pytest.mark.parametrize("layout", LISTS, ids=str)
@pytest.mark.parametrize("index", [0, 2, 3, -1, -3, -4, 2**31 - 2, -(2**31) + 1])
@given(drawn=st.lists(st.none() | st.lists(words, min_size=3, max_size=3), max_size=5), start=st.integers(0, 5))
@settings(max_examples=10)
def test_an_element_is_pythons_or_null(layout: pa.DataType, index: int, drawn: list[Any], start: int) -> None:
    column = pa.array(drawn, layout).slice(start)
    inside = -3 <= index < 3
    assert evaluated(x.list.get(index), column) == each(lambda items: items[index] if inside else None, drawn[start:])


def test_elements_below_a_null_list_are_not_read() -> None:
    column = pa.ListArray.from_arrays(pa.array([0, 1, 2]), pa.array([7, 8]), mask=pa.array([True, False]))
    assert evaluated(x.list.get(0), column) == [None, 8]


def test_a_dictionary_in_a_list_or_a_struct_stays_encoded() -> None:
    encoded = pa.array(["a", "b", None]).dictionary_encode()
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3]), encoded)
    assert evaluated(x.list.get(-1), lists) == ["b", None, None]
    structs = pa.StructArray.from_arrays([encoded], ["k"])
    assert evaluated(x.struct.field("k").str.upper(), structs) == ["A", "B", None]


def test_a_field_is_found_by_its_whole_name_and_gives_the_column_its_name() -> None:
    structs = pa.array([{".a": 1, "a.b": 2}, None])
    assert evaluated(x.struct.field(".a"), structs) == [1, None]
    assert evaluated(x.struct.field("a.b"), structs) == [2, None]
    assert x.struct.field("a.b").name == "a.b"


@pytest.mark.parametrize(
    ("expr", "dtype", "said"),
    [
        (x.struct.field("ab"), pa.struct({"abc": pa.int8()}), r"has no field 'ab' \(did you mean 'abc'\?\).*\['abc'\]"),
        (x.struct.field("a"), pa.struct([("a", pa.int8()), ("a", pa.int8())]), "has 2 fields 'a'"),
        (x.struct.field("a"), pa.int8(), "it takes structs"),
        (x.list.get(0), pa.string(), "it takes lists"),
        (x.round(), pa.bool_(), "it takes integers, floats and decimals"),
        (x.str.count("a"), pa.int8(), "it takes text"),
        (x.dt.strftime("%H"), pa.time64("us"), "strftime takes timestamps and dates"),
    ],
    ids=str,
)
def test_what_a_function_does_not_take_is_refused_before_a_row_is_read(
    expr: Expr, dtype: pa.DataType, said: str
) -> None:
    with pytest.raises(SchemaMismatch, match=said):
        expr.dtype(pa.schema({"x": dtype}), "select")


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda: x.round(1.0), TypeError),
        (lambda: x.round(309), GraphError),
        (lambda: x.list.get("0"), TypeError),
        (lambda: x.list.get(2**31), GraphError),
        (lambda: x.str.slice(0, -1), GraphError),
        (lambda: x.str.slice(-(2**31)), GraphError),
        (lambda: x.str.slice(None), TypeError),
        (lambda: x.str.count(""), GraphError),
        (lambda: x.struct.field(0), TypeError),
        (lambda: x.dt.strftime(5), TypeError),
        (lambda: coalesce(), TypeError),
        (lambda: coalesce("a", "b"), TypeError),
    ],
)
def test_a_parameter_that_means_nothing_is_refused_when_the_expression_is_built(
    build: Callable[[], Expr], error: type[Exception]
) -> None:
    with pytest.raises(error):
        build()


@given(st.lists(st.none() | st.integers(-(2**53), 2**53), max_size=8), st.integers(-16, 0))
def test_ints_are_rounded_as_decimals_are(values: list[int | None], digits: int) -> None:
    rounded = each(lambda n: int(Decimal(n).scaleb(digits).to_integral_value(ROUND_HALF_UP).scaleb(-digits)), values)
    assert evaluated(x.round(digits), pa.array(values, pa.int64())) == rounded


@given(st.lists(st.none() | st.decimals(-9999, 9999, places=3), max_size=8), st.integers(-5, 4))
def test_decimals_are_rounded_to_a_scale_that_stays(values: list[Decimal | None], digits: int) -> None:
    unit = Decimal(1).scaleb(-min(digits, 3))
    rounded = each(lambda n: (n / unit).to_integral_value(ROUND_HALF_UP) * unit, values)
    assert evaluated(x.round(digits), pa.array(values, pa.decimal128(7, 3))) == rounded


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_years_beyond_those_that_arrow_counts_are_the_ones_of_the_calendar(unit: str) -> None:
    per_day = 86_400 * {"s": 1, "ms": 1_000, "us": 1_000_000}[unit]
    days = np.random.default_rng(1).integers(-100_000_000, 100_000_000, 500)
    found = pa.array([None, *(days * per_day + per_day - 1).tolist()], pa.int64()).cast(pa.timestamp(unit))
    batch = pa.record_batch({"t": found})
    shown = [col("t").dt.year(), col("t").dt.month(), col("t").dt.day(), col("t").dt.ordinal_day()]
    read = [expression.evaluate(batch).to_pylist() for expression in shown]
    assert list(zip(*read, strict=True)) == [(None,) * 4, *(in_calendar(int(day)) for day in days)]


def in_calendar(days: int) -> tuple[int, int, int, int]:
    """Return year, month, day and day of the year, from a year of the same kind that Python knows."""
    cycles, day = divmod(days, 146_097)
    shown = date(1970, 1, 1) + timedelta(day)
    return shown.year + 400 * cycles, shown.month, shown.day, shown.timetuple().tm_yday
