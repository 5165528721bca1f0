"""Stored positions of a watched directory: the names that were read."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from dataflow.contracts.source import Json
from dataflow.errors import CheckpointDamaged
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


def test_names_that_are_damaged_are_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    for names in ("?", "AAAA", base64.b64encode(bytes(16)).decode()):
        offset: Json = {"names": names, "directory": None, "done": {}, "file": None}
        with pytest.raises(CheckpointDamaged, match="the names that were read are not the base64"):
            Watching(watch(tmp_path, read_csv), offset=offset)


@pytest.mark.parametrize("missing", ["names", "directory", "done", "file"])
def test_a_position_that_lacks_an_entry_is_damage(tmp_path: Path, missing: str) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    offset: dict[str, Json] = {"names": "", "directory": None, "done": {}, "file": None}
    del offset[missing]
    with pytest.raises(CheckpointDamaged, match=f"the position: Object missing required field `{missing}`"):
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
