"""Files of a watched directory that change, are touched or go away after they were begun or read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dataflow.errors import InputChanged, SourceError
from operators import read_csv, watch
from operators.sources.files import Files
from tests.operators.sources.watching import Watching, put


def begun(folder: Path) -> tuple[Path, Watching]:
    """Return a file of two rows, and a reader that has read the first one."""
    path = put(folder, "a.csv", 1, 2, at=1)
    watching = Watching(watch(folder, read_csv))
    watching.rows(limit=1, rows=1)
    return path, watching


@pytest.mark.parametrize("values", [(1,), (1, 2, 3), (1, 3)])
def test_a_file_that_changed_after_it_was_read_is_named(tmp_path: Path, values: tuple[int, ...]) -> None:
    put(tmp_path, "a.csv", 1, 2, at=1)
    watching = Watching(watch(tmp_path, read_csv))
    watching.rows()
    put(tmp_path, "a.csv", *values, at=2)
    for one in (watching.later(), watching.restored()):
        with pytest.raises(InputChanged, match=r"a\.csv' changed after it was read.*by renaming"):
            one.rows()


def test_a_file_that_changed_while_it_was_read_is_named(tmp_path: Path) -> None:
    path, watching = begun(tmp_path)
    with path.open("a") as more:
        more.write("3\n")
    with pytest.raises(InputChanged, match=r"a\.csv"):
        watching.restored()
    with pytest.raises(InputChanged, match=r"a\.csv' changed"):
        watching.rows()


def test_a_file_that_went_while_it_was_read_cannot_be_restored(tmp_path: Path) -> None:
    path, watching = begun(tmp_path)
    path.unlink()
    with pytest.raises(InputChanged, match=r"taken within .*a\.csv"):
        watching.restored()


@pytest.mark.parametrize("name", ["ä ö.csv", "line\nbreak.csv", "'\"\\.csv", "%23#.csv", "\N{GRINNING FACE}.csv"])
def test_odd_names_are_read_once(tmp_path: Path, name: str) -> None:
    put(tmp_path, name, 1, at=1)
    watching = Watching(watch(tmp_path, read_csv, remember=1))
    assert watching.rows() == [1]
    put(tmp_path, "b.csv", 2, at=0)
    assert watching.restored().rows() == [2]


def test_a_name_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    watching = Watching(watch(tmp_path, read_csv))
    watching.rows()
    put(tmp_path, os.fsdecode(b"\xff.csv"), 2, at=2)
    with pytest.raises(SourceError, match=r"xff\.csv|udcff\.csv.*its name is not UTF-8; rename it"):
        watching.later().rows()
    (tmp_path / os.fsdecode(b"\xff.csv")).rename(tmp_path / "b.csv")
    assert watching.restored().rows() == [2]


def test_a_file_that_was_read_and_touched_is_compared_by_its_content(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    watching = Watching(watch(tmp_path, read_csv))
    watching.rows()
    put(tmp_path, "a.csv", 1, at=5)
    for one in (watching.later(), watching.restored()):
        assert one.rows() == []


def test_a_change_is_noticed_of_the_files_read_last_and_of_no_other(tmp_path: Path) -> None:
    for index in range(3):
        put(tmp_path, f"{index}.csv", index, at=9 - index)
    watching = Watching(watch(tmp_path, read_csv, remember=1))
    assert watching.rows() == [2, 1, 0]
    put(tmp_path, "2.csv", 7, at=20)
    assert watching.later().rows() == []
    put(tmp_path, "0.csv", 7, at=20)
    with pytest.raises(InputChanged, match=r"0\.csv' changed after it was read"):
        watching.later().rows()


def test_a_directory_of_large_files_may_be_copied_if_content_decides(tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for name in ("a.csv", "b.csv"):
        put(inbox, name, *range(10**6, 10**6 + 150_000), at=1)
    source = watch(inbox, read_csv)
    watching = Watching(source)
    before = len(watching.rows(limit=160_000, rows=40_000))
    offset = json.loads(json.dumps(watching.reader.offset))
    for name in ("a.csv", "b.csv"):
        os.utime(inbox / name, (5, 5))
    with pytest.raises(InputChanged, match="last modified"):
        Watching(source, offset=offset)
    goes_on = Watching(source.identified_by("content"), offset=offset)
    assert before + len(goes_on.rows(rows=40_000)) == 300_000


def test_a_disk_that_cannot_be_asked_is_not_a_file_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a.csv", 1, 2, at=10)
    watching = Watching(watch(tmp_path, read_csv))
    assert watching.rows(limit=2) == [1, 2]

    def refused(where: Files, path: str) -> None:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(Files, "status", refused)
    with pytest.raises(SourceError, match="was read, but cannot be checked for changes"):
        watching.rows()
