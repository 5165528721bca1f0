"""Listings of a watched directory that say less than they seem to: the files that were read stay read."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from dataflow.clock import ManualClock
from dataflow.source import Source, SourceContext, SplitReader
from operators import read_csv, watch
from operators.sources.files import Entry, Files


class Listing:
    """A reader of a watched directory, which lists it anew for each call of ``rows``."""

    def __init__(self, source: Source) -> None:
        self.clock = ManualClock()
        context = SourceContext("watch", 0, 1, self.clock, notify=lambda category, text: None)
        self.reader: SplitReader = source.reader(source.splits()[0], None, context)

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


def test_a_file_without_rows_is_compared_by_its_content_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("")
    listing = Listing(watch(tmp_path, read_csv))
    assert listing.rows() == [1]
    os.utime(tmp_path / "b.csv", (1, 1))
    assert listing.rows() == []
