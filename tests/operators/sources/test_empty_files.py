"""Files without rows among others, files that are compressed in several members, and files that are no text."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataflow.errors import SourceError
from operators import read_csv, read_ipc, read_json, read_parquet, watch
from operators.sources.files import Files
from tests.operators.reading import check_every_position, rows_of
from tests.operators.sources.watching import Watching

PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: bytes(pa.compress(data, "zstd", asbytes=True)),
}
EMPTY = [b"", b"\n", b"\r\n\r\n", b"\r\r", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n", b"\n" * 70_000]
GOOD = {"csv": b"a,b\n1,x\n", "jsonl": b'{"a":1,"b":"x"}\n'}
READ = {"csv": read_csv, "jsonl": read_json}
TYPES = {"a": "int64", "b": "string"}


@pytest.mark.parametrize("format", ["csv", "jsonl"])
@pytest.mark.parametrize("packing", PACKED)
def test_empty_files_before_and_after_others_have_no_rows(tmp_path: Path, format: str, packing: str) -> None:
    for number, empty in enumerate(EMPTY):
        for place in "am":
            (tmp_path / f"{place}{number}.{format}{packing}").write_bytes(PACKED[packing](empty))
    (tmp_path / f"a0.{format}{packing}").write_bytes(b"")  # not even a header of its codec
    (tmp_path / f"f.{format}").write_bytes(GOOD[format])
    read = READ[format]
    for source in (read(tmp_path), read(tmp_path, schema=TYPES), read(tmp_path, columns=["b", "a"])):
        assert rows_of(source) == [{"a": 1, "b": "x"}]
        check_every_position(source, cuts=(1,))
    watching = Watching(watch(tmp_path, read))
    assert watching.source.schema.names == ["a", "b"]
    assert watching.rows() == [1]


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_a_directory_of_empty_files_needs_a_schema(tmp_path: Path, format: str) -> None:
    (tmp_path / f"a.{format}.gz").write_bytes(gzip.compress(b""))
    (tmp_path / f"b.{format}").write_bytes(b"\n")
    for source in (lambda: READ[format](tmp_path), lambda: watch(tmp_path, READ[format])):
        with pytest.raises(SourceError, match=rf"a\.{format}\.gz.*nothing to infer columns from; give schema="):
            source()
    source = READ[format](tmp_path, schema=TYPES)
    assert source.schema.names == ["a", "b"]
    assert rows_of(source) == []


def test_empty_csv_files_with_given_names_have_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"\n\n"))
    (tmp_path / "b.csv").write_bytes(b"junk\n\n1\n2\n")
    (tmp_path / "c.csv").write_bytes(b"junk\n")
    assert rows_of(read_csv(tmp_path, column_names=["n"], skip_rows=1)) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(("read", "name"), [(read_parquet, "a.parquet"), (read_ipc, "a.arrow")])
def test_a_file_of_no_bytes_that_is_no_text_is_named(tmp_path: Path, read: Callable[..., object], name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(SourceError, match=rf"cannot read '.*{re.escape(name)}' as .*; replace or remove it"):
        read(tmp_path)


@pytest.mark.parametrize("packing", [".gz", ".bz2"])
def test_members_without_data_and_zeros_after_members_are_skipped(tmp_path: Path, packing: str) -> None:
    pack = PACKED[packing]
    zeros = b"\0" * 100_000
    members = pack(b"") + pack(b"a,b\n1,x\n") + pack(b"") + zeros + pack(b"2,y\n" * 60_000) + b"\0" * 7
    path = tmp_path / f"a.csv{packing}"
    path.write_bytes(members)
    source = read_csv(path, block_bytes=1 << 17)
    assert [row["a"] for row in rows_of(source)] == [1, *[2] * 60_000]
    path.write_bytes(pack(b"a,b\n1,x\n2,y\n") + zeros)
    check_every_position(read_csv(path, block_bytes=4), cuts=(1,))


@pytest.mark.parametrize("packing", [".gz", ".bz2", ".zst"])
def test_a_compressed_file_that_ends_early_is_named(tmp_path: Path, packing: str) -> None:
    packed = PACKED[packing](b"a\n" + b"".join(b"%d\n" % (n * n) for n in range(5000)))
    for length in (3, len(packed) // 2, len(packed) - 1):
        path = tmp_path / f"a{length}.csv{packing}"
        path.write_bytes(packed[:length])
        with pytest.raises(SourceError, match=rf"a{length}\.csv{packing}.*good copy"):
            rows_of(read_csv(path))
        with pytest.raises(SourceError, match=rf"a{length}\.csv{packing}.*good copy"):
            rows_of(read_csv(path, schema={"a": "int64"}))


def archives(text: bytes) -> dict[str, bytes]:
    """The same text in kinds of files that are not read, and in a few whose name does not say what they are."""
    zipped, tar, parquet, arrow = (io.BytesIO() for _ in range(4))
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("inside.csv", text)
    with tarfile.open(fileobj=tar, mode="w") as tarred:
        member = tarfile.TarInfo("inside.csv")
        member.size = len(text)
        tarred.addfile(member, io.BytesIO(text))
    table = pa.table({"a": [1]})
    pq.write_table(table, parquet)
    with pa.ipc.new_file(arrow, table.schema) as out:
        out.write_table(table)
    return {
        "xz -d": lzma.compress(text),
        "lz4 -d": bytes(pa.compress(text, "lz4", asbytes=True)),
        "unpack it": zipped.getvalue(),
        "tar -xf": tar.getvalue(),
        r"end in \.gz": gzip.compress(text),
        r"end in \.bz2": bz2.compress(text),
        r"end in \.zst": PACKED[".zst"](text),
        "iconv -f utf-16 -t utf-8": text.decode().encode("utf-16"),
        "iconv -f utf-32 -t utf-8": text.decode().encode("utf-32"),
        "read_parquet": parquet.getvalue(),
        "read_ipc": arrow.getvalue(),
    }


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_a_file_of_another_kind_is_named_with_what_to_do(tmp_path: Path, format: str) -> None:
    for advice, data in archives(GOOD[format]).items():
        (tmp_path / f"a.{format}").write_bytes(data)
        for options in ({}, {"schema": TYPES}, {"schema": TYPES, "on_error": "skip"}):
            with pytest.raises(SourceError, match=rf"a\.{format}' is .*{advice}"):
                rows_of(READ[format](tmp_path, **options))
    (tmp_path / f"a.{format}").unlink()
    (tmp_path / f"a.{format}.gz").write_bytes(GOOD[format])
    with pytest.raises(
        SourceError, match=r"is not compressed with gzip, .* \(if it is plain text, rename it\); restore"
    ):
        READ[format](tmp_path)


def test_the_advice_for_other_kinds_of_files_works(tmp_path: Path) -> None:
    for advice, data in archives(GOOD["csv"]).items():
        name = advice.rpartition("\\.")[2] if "end in" in advice else advice.split()[0]
        (tmp_path / f"a.csv.{name}").write_bytes(data)
    for name in ("gz", "bz2", "zst"):  # renamed
        assert rows_of(read_csv(tmp_path / f"a.csv.{name}")) == [{"a": 1, "b": "x"}]
    subprocess.run(["tar", "-xf", tmp_path / "a.csv.tar", "-C", tmp_path], check=True)
    assert rows_of(read_csv(tmp_path / "inside.csv")) == [{"a": 1, "b": "x"}]


def test_a_file_is_empty_if_it_has_nothing_but_line_ends_and_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    for text, empty in [(text, True) for text in EMPTY] + [(b"\n" * 70_000 + b"a", False), (b" ", False)]:
        path.write_bytes(gzip.compress(text))
        assert Files().is_empty(str(path)) is empty


def test_rows_that_are_not_utf8_and_have_too_many_fields_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n1,x\n2,\xff,z\n\xff\n3,y\n")
    rows = [{"a": 1, "b": "x"}, {"a": 3, "b": "y"}]
    assert rows_of(read_csv(path, on_error="skip")) == rows
    with pytest.raises(SourceError, match=r"a\.csv:3: expected 2 fields, found 3"):
        rows_of(read_csv(path))


def test_a_mark_within_a_file_is_part_of_its_value(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("\ufeffa\n\ufeffb\n\ufeffc\n\ufeff\nd\n".encode())
    for block_bytes in (1, 5, 1000):
        assert [row["a"] for row in rows_of(read_csv(path, block_bytes=block_bytes))] == [
            "\ufeffb",
            "\ufeffc",
            "\ufeff",
            "d",
        ]


def test_a_header_with_an_open_quote_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'a,"b\n1,2\n')
    with pytest.raises(SourceError, match=r"a\.csv:1: the header does not end: is a quote left open\?"):
        read_csv(path)
    assert rows_of(read_csv(path, quote=None)) == [{"a": 1, '"b': 2}]
