"""Functions of text and times against plain Python, over sliced columns of every layout."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dataflow.errors import GraphError, SchemaMismatch
from dataflow.expressions import Expr, col, concat_str, from_epoch
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


def shown(moment: datetime, zone: str | None) -> datetime:
    """What a zone's clock shows."""
    if zone is None:
        return moment
    found = timezone(timedelta(hours=5, minutes=30)) if zone == "+05:30" else ZoneInfo(zone)
    return moment.replace(tzinfo=UTC).astimezone(found).replace(tzinfo=None)


@pytest.mark.parametrize("zone", ZONES)
@given(unit=st.sampled_from(list(UNITS)), drawn=st.lists(moments, max_size=8))
@settings(max_examples=30)
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


@given(unit=st.sampled_from(list(UNITS)), every=lengths, offset=lengths, drawn=st.lists(moments, max_size=8))
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
            text.lstrip("0123456789")
        ]
    )


@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kolkata"])
@given(every=lengths, drawn=st.lists(st.datetimes(datetime(1990, 1, 1), datetime(2030, 1, 1)), min_size=1, max_size=8))
@example(every="1d", drawn=[datetime(2018, 11, 4, 5)])  # in Sao Paulo, this day began at one o'clock
@example(every="1h", drawn=[datetime(2024, 10, 5, 15, 45), datetime(2024, 4, 6, 15, 15)])  # Lord Howe moves by 30 min
@example(every="1h", drawn=[datetime(2024, 11, 3, 5, 30), datetime(2024, 11, 3, 6, 30)])  # the two times 01:30
def test_with_a_zone_truncation_is_by_its_clock(zone: str, every: str, drawn: list[datetime]) -> None:
    made = evaluated(x.dt.truncate(every), pa.array(drawn, pa.timestamp("s")).cast(pa.timestamp("s", zone)))
    for moment, start in zip(drawn, made, strict=True):
        moment = moment.replace(microsecond=0)
        reading = shown(moment, zone)
        floored = reading - (reading - datetime(1970, 1, 1)) % span(every)
        assert start.astimezone(UTC).replace(tzinfo=None) == latest(floored, moment, zone)


def latest(reading: datetime, moment: datetime, zone: str) -> datetime:
    """The latest instant up to ``moment`` at which the clock shows ``reading``, or what follows the gap it is in."""
    both = {reading.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC).replace(tzinfo=None) for fold in (0, 1)}
    real = [instant for instant in both if shown(instant, zone) == reading and instant <= moment]
    if real:
        return max(real)
    before = min(both)  # an instant before the gap and one behind it: the gap ends between them
    steps = (before + timedelta(minutes=minute) for minute in range(-180, 181))
    return next(instant for instant in steps if shown(instant, zone) > reading)


def test_truncation_below_the_earliest_time_overflows() -> None:
    column = pa.array([-(2**63) + 1, None], pa.int64()).cast(pa.timestamp("ns"))
    with pytest.raises(OverflowError, match="earliest"):
        evaluated(x.dt.truncate("1d"), column)
    assert evaluated(x.dt.truncate("1d"), column.slice(1)) == [None]


def test_a_dictionary_entry_that_nobody_uses_does_not_overflow() -> None:
    times = pa.array([-(2**63) + 1, 0, 0, 0], pa.int64()).cast(pa.timestamp("ns")).dictionary_encode().slice(1)
    assert evaluated(x.dt.truncate("1d"), times) == [datetime(1970, 1, 1)] * 3


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
