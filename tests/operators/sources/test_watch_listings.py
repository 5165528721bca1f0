"""Listings of a watched directory that say less than they seem to: the files that were read stay read."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.source import Json, Source, SourceContext, SplitReader
from operators import read_csv, watch
from operators.sources.files import Entry, Files


class Listing:
    """A reader of a watched directory, which lists it anew for each call of ``rows``."""

    def __init__(self, source: Source, until: Json = None) -> None:
        self.clock = ManualClock()
        (split,) = source.splits()
        repeated = {} if until is None else {split.id: until}
        context = SourceContext("watch", 0, 1, self.clock, notify=lambda category, text: None, repeated=repeated)
        self.reader: SplitReader = source.reader(split, None, context)

    def rows(self) -> list[object]:
        found: list[object] = []
        self.clock.advance(1_000_000)
        while isinstance(batch := self.reader.poll(1000), pa.RecordBatch):
            found += batch.column(0).to_pylist()
        return found


def test_a_directory_that_is_replaced_while_it_is_listed_is_not_taken_for_the_one_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox, mount = tmp_path / "inbox", tmp_path / "mount"
    inbox.mkdir()
    mount.mkdir()
    (inbox / "a.csv").write_text("x\n1\n")
    listing = Listing(watch(inbox, read_csv))
    assert listing.rows() == [1]
    take = Files.listed

    def listed(files: Files, directory: str) -> dict[str, Entry]:
        entries = take(files, directory)
        inbox.rename(tmp_path / "away")
        mount.rename(inbox)
        return entries

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Files, "listed", listed)
        assert listing.rows() == []
    assert listing.rows() == []
    inbox.rename(mount)
    (tmp_path / "away").rename(inbox)
    assert listing.rows() == []


def test_files_are_read_again_in_the_order_in_which_they_were_the_one_that_was_begun_last(tmp_path: Path) -> None:
    for name, time in (("c", 1), ("b", 2), ("a", 3), ("begun", 4)):
        (tmp_path / f"{name}.csv").write_text(f"x\n{time}\n{time}\n")
        os.utime(tmp_path / f"{name}.csv", (time, time))
    source = watch(tmp_path, read_csv)
    first = Listing(source)
    for _ in range(3):
        first.reader.poll(2)
    first.reader.poll(1)
    until = first.reader.offset
    (tmp_path / "later.csv").write_text("x\n5\n")
    for name in ("b", "c"):
        os.utime(tmp_path / f"{name}.csv", (9, 9))
    assert Listing(source, until).rows() == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_file_without_rows_is_compared_by_its_content_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("")
    listing = Listing(watch(tmp_path, read_csv))
    assert listing.rows() == [1]
    os.utime(tmp_path / "b.csv", (1, 1))
    assert listing.rows() == []
