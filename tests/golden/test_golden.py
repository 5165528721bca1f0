"""Directories that were written before, restored by the code as it is now: a job that was killed, in every mode.

So a change of a stored form does not go unnoticed. If one is meant, ``write.py`` writes the archives anew.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import dataflow as flow
from tests.golden.archives import MODES, SPARK, unpack
from tests.golden.job import Rows, outputs, pipeline


def resumed(mode: str, work: Path) -> flow.RestoreReport:
    checkpoint = flow.Checkpointing(unpack(mode, work) / "ckpt", mode=mode)
    report = pipeline(work).run(parallelism=2, checkpoint=checkpoint, restore="latest").restore_report
    assert report is not None
    return report


@pytest.mark.parametrize("mode", ["aligned", "unaligned-persisted"])
def test_a_kept_checkpoint_continues_exactly_once(mode: str, expected: dict[str, Rows], tmp_path: Path) -> None:
    report = resumed(mode, tmp_path)
    assert bool(report.in_flight) == (mode == "unaligned-persisted")
    assert outputs(tmp_path) == expected


def test_a_kept_unaligned_checkpoint_repeats_the_reported_rows(expected: dict[str, Rows], tmp_path: Path) -> None:
    report = resumed("unaligned", tmp_path)
    found, twice = outputs(tmp_path), report.duplicated_by_operator
    assert found["windows"] == expected["windows"]
    assert total(found, "ends") - total(expected, "ends") == twice["tally"] > 0
    assert total(found, "totals") - total(expected, "totals") == twice["totals"] > 0
    assert len(found["rows"]) - len(expected["rows"]) == twice["rows"] > 0
    ids = Counter(row["id"] for row in found["rows"])
    ids.subtract(row["id"] for row in expected["rows"])
    assert +ids == Counter(report.rows("rows")["id"].to_pylist())


def total(found: dict[str, Rows], name: str) -> int:
    return sum(row["n"] for row in found[name])


MODULE = re.compile(rb"\b(?:dataflow|operators|tests)[./][a-z_]{3}|\x80[\x03-\x05]\x95")
"""A module's name, or the beginning of a pickle."""


@pytest.mark.parametrize("name", [*MODES, SPARK])
def test_no_kept_file_names_a_module_or_is_a_pickle(name: str, tmp_path: Path) -> None:
    files = [path for path in unpack(name, tmp_path).rglob("*") if path.is_file()]
    assert len(files) > 50
    assert [str(path) for path in files if MODULE.search(path.read_bytes())] == []
