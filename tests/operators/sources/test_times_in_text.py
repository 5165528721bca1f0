"""ISO 8601 text with and without an offset: the same types, instants and refusals from CSV and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from dataflow.contracts.source import Source
from dataflow.errors import SourceError
from operators import read_csv, read_json
from tests.operators.reading import check_every_position, rejected_of, table_of

UTC = pa.timestamp("us", "UTC")
NAIVE = pa.timestamp("us")
INFERRED = {
    "2024-01-01T10:00:00": (NAIVE, "2024-01-01 10:00:00.000000"),
    "2024-01-01 10:00": (NAIVE, "2024-01-01 10:00:00.000000"),
    "1969-12-31T23:59:59": (NAIVE, "1969-12-31 23:59:59.000000"),
    "2024-01-01T10:00:00Z": (UTC, "2024-01-01 10:00:00.000000Z"),
    "2024-01-01 10:00:00+01:00": (UTC, "2024-01-01 09:00:00.000000Z"),
    "2024-01-01T10:00:00+0100": (UTC, "2024-01-01 09:00:00.000000Z"),
    "2024-01-01T10:00-08": (UTC, "2024-01-01 18:00:00.000000Z"),
    "2024-01-01T10:00:00.5": (pa.timestamp("ns"), "2024-01-01 10:00:00.500000000"),
    "2024-01-01T10:00:00.123456": (pa.timestamp("ns"), "2024-01-01 10:00:00.123456000"),
    "2024-01-01T10:00:00.5Z": (pa.timestamp("ns", "UTC"), "2024-01-01 10:00:00.500000000Z"),
    "2024-01-01T10:00:00.123456789+05:30": (pa.timestamp("ns", "UTC"), "2024-01-01 04:30:00.123456789Z"),
    "2024-01-01": (pa.date32(), "2024-01-01"),
    "2024-01-01T25:00:00": (pa.string(), "2024-01-01T25:00:00"),
    "2024-13-01": (pa.string(), "2024-13-01"),
    "2024-01-01T10:00:00z": (pa.string(), "2024-01-01T10:00:00z"),
    "20240101T100000Z": (pa.string(), "20240101T100000Z"),
    " 2024-01-01T10:00:00": (pa.string(), " 2024-01-01T10:00:00"),
}


def sources(folder: Path, *texts: str, **options: object) -> list[Source]:
    """The texts as column ``t`` of a CSV file and of a JSON file."""
    paths = [folder / "a.csv", folder / "a.json"]
    paths[0].write_text("t,n\n" + "".join(f'"{text}",1\n' for text in texts))
    paths[1].write_text("".join(json.dumps({"t": text, "n": 1}) + "\n" for text in texts))
    return [read_csv(paths[0], **options), read_json(paths[1], **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize("text", INFERRED)
def test_both_infer_one_type_and_read_one_instant(tmp_path: Path, text: str) -> None:
    kind, expected = INFERRED[text]
    for source in sources(tmp_path, text, text):
        assert source.schema.field("t").type == kind
        assert table_of(source)["t"].cast(pa.string()).to_pylist() == [expected] * 2
        check_every_position(source, cuts=(1,))


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["2024-01-01", "2024-01-01T10:00:00"], NAIVE),
        (["2024-01-01T10:00:00", "2024-01-01T10:00:00.5"], pa.timestamp("ns")),
        (["2024-01-01T10:00:00Z", "2024-01-01T10:00:00+01:00"], UTC),
        (["2024-01-01T10:00:00Z", "2024-01-01T10:00:00"], pa.string()),
        (["2024-01-01T10:00:00", "soon"], pa.string()),
    ],
)
def test_both_infer_one_type_for_texts_that_differ(tmp_path: Path, texts: list[str], kind: pa.DataType) -> None:
    for source in sources(tmp_path, *texts):
        assert source.schema.field("t").type == kind
        assert table_of(source).num_rows == 2


GIVEN = ["timestamp[s]", "timestamp[us]", "timestamp[ns]", "timestamp[us, tz=UTC]", "timestamp[ms, tz=Europe/Berlin]"]


@pytest.mark.parametrize("given", GIVEN)
def test_both_accept_the_same_texts_for_a_given_type(tmp_path: Path, given: str) -> None:
    options = {"schema": {"t": given, "n": "int64"}, "on_error": "side"}
    found = [(table_of(source).to_pydict(), rejected_of(source)) for source in sources(tmp_path, *INFERRED, **options)]
    (rows, wrong), (json_rows, json_wrong) = found
    assert rows == json_rows
    assert len(rows["t"]) + len(wrong) == len(INFERRED)
    assert [str(row["where"]).rpartition(":")[2] for row in wrong] == [
        str(int(str(row["where"]).rpartition(":")[2]) + 1) for row in json_wrong
    ]


def test_an_offset_never_goes_unsaid(tmp_path: Path) -> None:
    for text, given in (("2024-01-01T10:00:00+01:00", "timestamp[us]"), ("2024-01-01T10:00:00", UTC)):
        for source in sources(tmp_path, text, schema={"t": given, "n": "int64"}):
            with pytest.raises(SourceError, match=r"expected no zone offset|\.dt\.localize\("):
                table_of(source)


def test_times_within_lists_and_objects_are_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    rows = [{"at": ["2024-01-01T10:00:00+01:00", None], "deep": {"day": "2024-01-01"}}, {"at": None, "deep": None}]
    path.write_text("\n".join(map(json.dumps, rows)))
    source = read_json(path)
    assert source.schema.types == [pa.list_(UTC), pa.struct({"day": pa.date32()})]
    assert str(table_of(source)["at"][0][0]) == "2024-01-01 09:00:00+00:00"
    assert str(table_of(source)["deep"][0]["day"]) == "2024-01-01"
    check_every_position(read_json(path, schema=source.schema, block_bytes=1), cuts=(1,))
