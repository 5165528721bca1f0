"""Times in formats of users: what was read is what the time has, or the value is an error of its row."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as flow
import operators as op
from dataflow.contracts.source import Source
from dataflow.errors import ConfigurationError, SourceError
from operators import read_csv
from operators.sources.time_parsers import parse_by_formats
from tests.operators.reading import check_every_position, rejected_of, rows_of, table_of

NAIVE, ZONED, NANOS = pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns")
DATE_TIME = "%d.%m.%Y %H:%M:%S"


def read(format: str, texts: list[str], type_: pa.DataType = NAIVE) -> list[str | None]:
    """Return the times as Arrow writes them, None for a text that does not fit."""
    times, _ = parse_by_formats([format], pa.array([text.encode() for text in texts], pa.binary()), type_)
    return times.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]


def fits(format: str, text: str, type_: pa.DataType = NAIVE) -> str | None:
    (time,) = read(format, [text], type_)
    return None if time is None else time.removesuffix(".000000").removesuffix(" 00:00:00")


@pytest.mark.parametrize("format", ["%d.%m.%Y", "%Y-%m-%d", "%b %d %Y", None])
def test_white_space_around_a_value_is_ignored_in_dates_and_refused_in_timestamps_in_every_format(
    tmp_path: Path, format: str | None
) -> None:
    plain = dt.date(2024, 2, 1).strftime(format or "%Y-%m-%d")
    texts = [plain, f" {plain}", f"{plain} ", f"\t{plain}", f"{plain}\t", f"   {plain}  "]
    path = tmp_path / "a.csv"
    path.write_text("t,n\n" + "".join(f"{text},1\n" for text in texts))
    parsers = ["%d/%m/%Y" if format is None else format]
    for type_, count in (("date32", len(texts)), ("date64", len(texts)), ("timestamp[us]", 1)):
        for formats in (parsers, ()) if format in (None, "%Y-%m-%d") else (parsers,):
            source = read_csv(path, schema={"t": type_}, timestamp_parsers=formats, on_error="side")
            assert (len(rows_of(source)), len(rejected_of(source))) == (count, len(texts) - count)
            assert {str(row["t"])[:10] for row in rows_of(source)} == {"2024-02-01"}


def test_a_format_may_have_white_space_around_a_time() -> None:
    assert read(" %d.%m.%Y%n", ["01.02.2024", "  01.02.2024 "]) == ["2024-02-01 00:00:00.000000"] * 2
    assert read("%d.%m.%Y", [" 1.02.2024", "  1.02.2024", " 01.02.2024"]) == ["2024-02-01 00:00:00.000000", None, None]


@pytest.mark.parametrize(
    ("format", "text", "time"),
    [
        ("%d.%m.%Y", "1.3.2024", "2024-03-01"),
        ("%d.%m.%Y", " 1. 3.2024", "2024-03-01"),
        ("%d.%m.%Y", "29.02.2024", "2024-02-29"),
        ("%d.%m.%Y", "1.3.0000", "0000-03-01"),
        ("%-d.%_m.%Y", "01.03.2024", "2024-03-01"),
        ("%d %b %Y", "2 jan 2024", "2024-01-02"),
        ("%d %h %Y", "2 JANUARY 2024", "2024-01-02"),
        ("%d-%B-%Y", "2-may-2024", "2024-05-02"),
        ("%A, %d %b %y", "tue, 02 Jan 24", "2024-01-02"),
        ("%m/%d/%y", "12/31/69", "1969-12-31"),
        ("%D %R", "12/31/68 7:05", "2068-12-31 07:05:00"),
        ("%F %I:%M %p", "2024-01-02 1:30 pm", "2024-01-02 13:30:00"),
        ("%F %l:%M%p", "2024-01-02 12:30AM", "2024-01-02 00:30:00"),
        ("%F %r", "2024-01-02 12:30:01 PM", "2024-01-02 12:30:01"),
        ("%F %k:%M %p", "2024-01-02 13:30 PM", "2024-01-02 13:30:00"),
        ("%d/%b/%Y:%T", "02/Jan/2024:10:00:00", "2024-01-02 10:00:00"),
        ("%c", "Wed Dec 31 23:59:59 1969", "1969-12-31 23:59:59"),
        ("%x%t%X", "01/02/24 \t10:00:00", "2024-01-02 10:00:00"),
        ("%Y-%j", "2024-366", "2024-12-31"),
        ("%Y-W%W-%u", "2024-W01-1", "2024-01-01"),
        ("%U/%w/%Y", "00/6/2024", "2024-01-06"),
        ("%Y%m%d%H%M%S", "20240102030405", "2024-01-02 03:04:05"),
        ("%Y%m%d%H%M%S%f", "202401020304059", "2024-01-02 03:04:05.900000"),
        ("%F %T.%f", "2024-01-02 10:00:00.1", "2024-01-02 10:00:00.100000"),
        ("%F %T,%f", "2024-01-02 10:00:00,000000000", "2024-01-02 10:00:00"),
        ("%Y", "2024", "2024-01-01"),
        ("%Y-%m", "2024-5", "2024-05-01"),
        ("100%% on %F", "100% on 2024-01-02", "2024-01-02"),
        ("le %F à %H h", "le 2024-01-02 à 7 h", "2024-01-02 07:00:00"),
    ],
)
def test_a_text_that_fits_is_the_time_it_says(format: str, text: str, time: str) -> None:
    assert fits(format, text) == time


@pytest.mark.parametrize(
    ("format", "texts"),
    [
        ("%d.%m.%Y", ["30.02.2024", "29.02.2023", "31.04.2024", "0.1.2024", "1.0.2024", "32.1.2024", "1.13.2024"]),
        ("%d.%m.%Y", ["1.1.24", "1.1.024", "1.1.12024", "1.1.-024", "1.1.+2024", "1.1.", "", "1.1.2024x", "x1.1.2024"]),
        ("%d.%m.%Y", ["001.1.2024", "1.1.2024 ", "-1.1.2024", "1.1.2024\0", "1 .1.2024"]),
        ("%d.%m.%y", ["1.1.4", "1.1.2024", "1.1.124"]),
        (DATE_TIME, ["1.1.2024 10:00:60", "1.1.2024 10:60:00", "1.1.2024 24:00:00", "1.1.12024 10:00:00"]),
        ("%d.%m.%Y %H", ["1.1.202410", "1.1.12024"]),
        ("%d.%m.%Y", ["1.1. 024", "1.1.   9"]),
        ("%Y-%m-%d", [" 024-01-01", "   9-01-01"]),
        ("%Y%m%d", ["2024111", " 0240101", "24111", "202401011", "20241301", "20240230"]),
        ("%F %I:%M %p", ["2024-01-02 13:00 PM", "2024-01-02 0:30 AM", "2024-01-02 1:30", "2024-01-02 1:30 XM"]),
        ("%F %H:%M %p", ["2024-01-02 01:30 PM", "2024-01-02 13:30 AM"]),
        ("%a %F", ["Mon 2024-01-02", "Foo 2024-01-02", "Tues 2024-01-02"]),
        ("%Y-%j", ["2023-366", "2024-0", "2024-367"]),
        ("%j %F", ["1 2024-01-02"]),
        ("%Y-W%W-%u", ["2024-W53-7", "2024-W00-1", "2024-W54-1", "2024-W01-0", "2024-W01-8"]),
        ("%F %y", ["2024-01-02 23"]),
        ("%F %T.%f", ["2024-01-02 10:00:00.", "2024-01-02 10:00:00.0000001", "2024-01-02 10:00:00.0000000000"]),
        ("%d %b %Y", ["2 Janu 2024", "2 Ja 2024", "2 Sept 2024"]),
    ],
)
def test_a_text_that_does_not_fit_is_no_time(format: str, texts: list[str]) -> None:
    assert read(format, texts) == [None] * len(texts)


def test_offsets_are_for_columns_with_a_zone() -> None:
    format = "%F %H:%M%z"
    offsets = ["+02:00", " +0200", "Z", "-08", "+00:00:30", "-000030", "+23:59"]
    times = ["08:00:00", "08:00:00", "10:00:00", "18:00:00", "09:59:30", "10:00:30"]
    expected = [*[f"2024-01-02 {time}.000000Z" for time in times], "2024-01-01 10:01:00.000000Z"]
    assert read(format, [f"2024-01-02 10:00{offset}" for offset in offsets], ZONED) == expected
    for wrong in ("", "+2", "+24", "+0260", "+02:", "+020", "+02:0", "+02:0000", "+0200:00", "z", "02:00", "UTC", "+"):
        assert fits(format, f"2024-01-02 10:00{wrong}", ZONED) is None, wrong
    assert fits(format, "2024-01-02 10:00Z", NAIVE) is None
    assert fits("%F", "2024-01-02", ZONED) is None


def test_a_time_without_an_offset_names_the_way_to_give_a_zone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("at\n1.3.2024 10:00\n")
    zoned, naive = pa.timestamp("us", "Europe/Berlin"), "timestamp[us]"
    for formats in ([], ["%d.%m.%Y %H:%M"]):
        text = "2024-03-01 10:00" if not formats else "1.3.2024 10:00"
        (tmp_path / "a.csv").write_text(f"at\n{text}\n")
        advice = rf"a\.csv:2: .*'{text}' has no offset.* timestamp\[us\], .*\.dt\.localize\('Europe/Berlin'\)"
        with pytest.raises(SourceError, match=advice):
            rows_of(read_csv(tmp_path, schema={"at": zoned}, timestamp_parsers=formats))
        rows = flow.Pipeline().source(read_csv(tmp_path, schema={"at": naive}, timestamp_parsers=formats), name="in")
        table = rows.select(at=flow.col("at").dt.localize("Europe/Berlin")).collect()
        assert table["at"].to_pylist() == [dt.datetime(2024, 3, 1, 9, tzinfo=dt.UTC)]


def test_a_time_that_the_unit_does_not_hold_does_not_fit() -> None:
    format = "%F %T.%f"
    ends = ["1677-09-21 00:12:43.145224193", "2262-04-11 23:47:16.854775807"]
    beyond = ["1677-09-21 00:12:43.145224191", "2262-04-11 23:47:16.854775808", "3000-01-01 00:00:00.0"]
    assert read(format, [*ends, *beyond], NANOS) == [*ends, None, None, None]
    for unit, digits in (("s", 0), ("ms", 3), ("us", 6), ("ns", 9)):
        most = f"2024-01-02 10:00:00.{'9' * digits or '0'}"
        assert fits(format, most, pa.timestamp(unit)) == most.removesuffix(".0")
        assert fits(format, f"2024-01-02 10:00:00.{'0' * digits}1", pa.timestamp(unit)) is None
    assert read("%F %H:%M", ["2024-01-02 00:00", "2024-01-02 00:01"], pa.date32()) == ["2024-01-02", None]
    assert fits("%d.%m.%Y", "1.3.2024", pa.date64()) == "2024-03-01"


WHOLE = ["%Y-%j %H:%M:%S.%f", "%U %w %X,%f %Y", "%Y %W %u %I:%M:%S.%f%p", "%Y%m%d%H%M%S%f"]


@given(st.datetimes(dt.datetime(1969, 1, 1), dt.datetime(2068, 12, 31)), st.sampled_from(WHOLE))
def test_each_time_fits_what_strftime_writes(time: dt.datetime, format: str) -> None:
    assert read(format, [time.strftime(format)]) == [time.isoformat(" ", "microseconds")]


@pytest.mark.parametrize(
    ("format", "reason"),
    [
        ("%G-W%V-%u", "%G numbers weeks of another year"),
        ("%Y-W%V", "%V numbers weeks of another year"),
        ("%F %H:%M %Z", "%Z is a name that several zones have.*%z"),
        ("%s", r"%s counts seconds; .*int64.*from_epoch\(\)"),
        ("%C%y-%m-%d", "%C is a century; use %Y"),
        ("%Ey-%m-%d", "%Ey depends on the locale; use the code without E"),
        ("%Y-%Om-%d", "%Om depends on the locale"),
        ("%F %I:%M %P", "%P is only for writing; use %p"),
        ("%F %T.%L", "%L .*; use %f"),
        ("%q", "%q is not one of %Y %y "),
        ("%4Y", "%4 is not one of"),
        ("%Y-%", "% is not one of"),
        ("%H:%M", "no year"),
        ("%d.%m. %H:%M", "no year"),
        ("noon", "no year"),
        ("%Y-%d", "no whole date"),
        ("%Y %H:%M", "no whole date"),
        ("%Y %U", "no whole date"),
        ("%F %I:%M", "%I is an hour of the morning or of the afternoon"),
        ("%F %p", "no %I"),
        ("%F %M:%S", "no %H"),
        ("%F %H:%S", "no %M"),
        ("%F %H:%M.%f", "no %S"),
        ("%F %T.%f%j", "%f has 1 to 9 digits"),
        ("", "must be formats of strptime"),
    ],
)
def test_a_format_that_cannot_be_read_rightly_is_refused_where_the_source_is_made(
    tmp_path: Path, format: str, reason: str
) -> None:
    (tmp_path / "a.csv").write_text("t\nx\n")
    with pytest.raises(ConfigurationError, match=f"read_csv: timestamp_parsers .*{reason}"):
        read_csv(tmp_path, timestamp_parsers=["%Y", format])


def csv_of(folder: Path, *texts: str, **options: Any) -> Source:
    path = folder / "a.csv"
    path.write_text("t,n\n" + "".join(f'"{text}",1\n' for text in texts))
    return read_csv(path, **options)


FORMATS = ["%d.%m.%Y %H:%M", "%d.%m.%Y", "%m/%d/%Y"]


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_formats_are_tried_in_their_order_and_iso_8601_last(tmp_path: Path, block_bytes: int) -> None:
    texts = ["31.12.2023 10:00", "", "1.2.2024", "30.02.2024", "1/2/2024", "2024-01-01T11:00:00", "1.1.24", "soon"]
    schema = {"t": NAIVE}
    source = csv_of(
        tmp_path, *texts, schema=schema, timestamp_parsers=FORMATS, on_error="side", block_bytes=block_bytes
    )
    times = ["2023-12-31 10:00:00", None, "2024-02-01 00:00:00", "2024-01-02 00:00:00", "2024-01-01 11:00:00"]
    assert [row["t"] and str(row["t"]) for row in rows_of(source)] == times
    rejected = rejected_of(source)
    assert [str(row["where"]).rpartition(":")[2] for row in rejected] == ["5", "8", "9"]
    message = (
        "column 't': invalid value '30.02.2024' for timestamp[us], nor a time in timestamp_parsers=['%d.%m.%Y %H:%M'"
    )
    assert message in str(rejected[0]["error"])
    check_every_position(source)


@pytest.mark.parametrize(
    ("texts", "formats", "kind"),
    [
        (["31.12.2023", "1.1.2024 10:00"], FORMATS, NAIVE),
        (["31.12.2023", "2024-01-01"], FORMATS, NAIVE),
        (["31.12.2023", ""], FORMATS, NAIVE),
        (["01022024", "11022024"], ["%d%m%Y"], NAIVE),
        (["31.12.2023", "30.02.2024"], FORMATS, pa.string()),
        (["1.1.2024 10:00 +0100", "2024-01-01T10:00Z"], ["%d.%m.%Y %H:%M %z"], ZONED),
        (["1.1.2024 10:00 +0100", "2024-01-01T10:00"], ["%d.%m.%Y %H:%M %z"], pa.string()),
        (["1.1.2024 10:00:00.5"], ["%d.%m.%Y %H:%M:%S.%f"], NANOS),
        (["1.1.2024 10:00:00.0"], ["%d.%m.%Y %H:%M:%S.%f"], NAIVE),
        (["1.1.3024 10:00:00.5"], ["%d.%m.%Y %H:%M:%S.%f"], pa.string()),
        (["2024-01-01", "2024-01-02"], FORMATS, pa.date32()),
        (["20240101", "20240102"], ["%Y%m%d"], pa.int64()),
        (["", ""], FORMATS, pa.string()),
    ],
)
def test_a_column_is_times_if_all_its_first_values_are(
    tmp_path: Path, texts: list[str], formats: list[str], kind: pa.DataType
) -> None:
    source = csv_of(tmp_path, *texts, timestamp_parsers=formats)
    assert source.schema.field("t").type == kind
    assert table_of(source).num_rows == len(texts)
    assert table_of(source)["t"].null_count == (texts.count("") if kind != pa.string() else 0)


def test_dates_have_the_formats_too(tmp_path: Path) -> None:
    source = csv_of(tmp_path, "31.12.2023", "2024-01-01", schema={"t": "date32"}, timestamp_parsers=FORMATS)
    assert [str(row["t"]) for row in rows_of(source)] == ["2023-12-31", "2024-01-01"]
    late = csv_of(tmp_path, *["2024-01-01"] * 9, "31.04.2024", timestamp_parsers=FORMATS, block_bytes=30)
    with pytest.raises(SourceError, match=r"a\.csv:11: column 't': invalid value '31.04.2024' for date32.*schema="):
        rows_of(late)


def test_kernels_of_times_are_named_if_there_are_formats(tmp_path: Path) -> None:
    times = "operators.kernels.time_fields"
    assert times not in csv_of(tmp_path, "x").kernels
    assert times in csv_of(tmp_path, "x", timestamp_parsers=FORMATS).kernels
    assert times in op.watch(tmp_path, read_csv, timestamp_parsers=FORMATS).kernels
    assert times not in op.watch(tmp_path, read_csv).kernels
