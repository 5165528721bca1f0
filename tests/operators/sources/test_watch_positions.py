"""Stored positions of a watched directory: names, positions within files, and positions of older versions."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import xxhash

from dataflow.contracts.source import Json
from dataflow.errors import CheckpointDamaged, InputChanged
from operators import read_csv, watch
from tests.operators.sources.watching import Watching, put


def test_the_names_are_encoded_anew_only_if_one_comes_or_goes(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    watching = Watching(watch(tmp_path, read_csv))
    watching.rows()
    first: Any = watching.reader.offset
    watching.later().rows()
    second: Any = watching.reader.offset
    assert second["names"] is first["names"]
    put(tmp_path, "b.csv", 2, at=2)
    watching.later().rows()
    third: Any = watching.reader.offset
    assert len(base64.b64decode(third["names"])) == 2 * len(base64.b64decode(first["names"])) == 16


# --- checkpoints of the older version

OLDER = {"mark": [3 * 10**9, "3.csv"], "done": {"4.csv": [4, 4 * 10**9], "5.csv": [4, 5 * 10**9]}, "file": None}


def test_an_older_checkpoint_keeps_its_rule_for_what_was_there(tmp_path: Path) -> None:
    for at in (1, 3, 4, 5, 6):
        put(tmp_path, f"{at}.csv", at, at=at)
    first = Watching(watch(tmp_path, read_csv), offset=OLDER)
    watching = first.restored()
    assert watching.rows() == [6]
    (notice,) = watching.notices
    assert notice.startswith("NewInputWarning: ")
    assert "2 files that were last modified at or before '3.csv' count as read" in notice
    put(tmp_path, "2.csv", 2, at=2)
    for one in (watching.later(), watching.restored()):
        assert one.rows() == [2]


def test_an_older_checkpoint_within_a_file_resumes_there(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", 1, 2, 3, at=1)
    content = {"path": str(path), "bytes": 8, "content": ends_of(path)}
    split = {"id": str(path), "info": content}
    place = {"byte": 2, "line": 2, "rows": 1, "end": 8}
    file = {"name": "a.csv", "bytes": 8, "modified": 10**9, "split": split, "offset": place}
    older: Json = {"mark": None, "done": {}, "file": file}
    assert Watching(watch(tmp_path, read_csv), offset=older).rows() == [2, 3]
    touched = put(tmp_path, "a.csv", 1, 2, 3, at=2)
    with pytest.raises(InputChanged, match=f"{touched.name}' changed"):
        Watching(watch(tmp_path, read_csv), offset=older)


def ends_of(path: Path) -> str:
    """The hash that older checkpoints have of a file below 64 KiB."""
    return xxhash.xxh3_64_hexdigest(2 * path.read_bytes())


def test_names_that_are_damaged_are_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    for names in ("?", "AAAA", base64.b64encode(bytes(16)).decode()):
        offset: Json = {"names": names, "directory": None, "done": {}, "file": None}
        with pytest.raises(CheckpointDamaged, match="the names that were read are not the base64"):
            Watching(watch(tmp_path, read_csv), offset=offset)


def test_a_position_that_was_given_out_does_not_change(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    put(tmp_path, "b.csv", 2, at=2)
    watching = Watching(watch(tmp_path, read_csv))
    given = [watching.reader.offset]
    texts = [json.dumps(given[0])]
    while watching.reader.poll(1) is not None:
        given.append(watching.reader.offset)
        texts.append(json.dumps(given[-1]))
    assert [json.dumps(offset) for offset in given] == texts
