"""A watched directory that is away, replaced or copied for a while: no file is read twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dataflow.errors import SourceError
from operators import read_csv, watch
from tests.operators.sources.watching import Watching, put


def test_a_directory_that_cannot_be_listed_for_a_while_is_an_error_and_nothing_is_read_again(tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    put(inbox, "a.csv", 1, at=1)
    watching = Watching(watch(inbox, read_csv))
    watching.rows()
    inbox.rename(tmp_path / "away")
    with pytest.raises(SourceError, match="cannot be listed"):
        watching.later().rows()
    (tmp_path / "away").rename(inbox)
    for one in (watching.later(), watching.restored()):
        assert one.rows() == []


@pytest.mark.parametrize("after", [Watching.later, Watching.restored])
def test_an_empty_directory_in_its_place_for_a_while_makes_nothing_new(
    tmp_path: Path, after: Callable[[Watching], Watching]
) -> None:
    inbox, mount = tmp_path / "inbox", tmp_path / "mount"
    for folder in (inbox, mount):
        folder.mkdir()
    for index in range(3):
        put(inbox, f"{index}.csv", index, at=index)
    watching = Watching(watch(inbox, read_csv, remember=1))
    watching.rows()
    inbox.rename(tmp_path / "away")
    mount.rename(inbox)
    watching = after(watching)
    assert watching.rows() == watching.later().rows() == []
    (notice,) = watching.notices
    assert notice.startswith("InputMissingWarning: ")
    assert "another directory is there now, without any of the 3 files" in notice
    put(inbox, "new.csv", 9, at=0)
    assert watching.later().rows() == [9]
    (inbox / "new.csv").rename(tmp_path / "away" / "new.csv")
    inbox.rename(mount)
    (tmp_path / "away").rename(inbox)
    assert watching.later().rows() == watching.restored().rows() == []


def test_a_directory_that_was_copied_is_known_by_its_names(tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for index in range(3):
        put(inbox, f"{index}.csv", index, at=index)
    watching = Watching(watch(inbox, read_csv))
    watching.rows()
    inbox.rename(tmp_path / "old")
    shutil.copytree(tmp_path / "old", inbox)
    (inbox / "0.csv").unlink()
    watching = watching.restored()
    assert watching.rows() == []
    put(inbox, "0.csv", 7, at=1)
    assert watching.later().rows() == [7]
