"""Two checkouts beside each other: every case runs with the library of each. Nothing here looks at how long it took."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.versions.__main__ import main
from benchmarks.versions.measuring import HERE, Case, Pair, measure


def test_the_ratio_is_that_of_this_checkout_to_the_other() -> None:
    assert Pair(other=2.0, this=1.0).ratio == 0.5


def test_each_checkout_runs_with_its_own_library(tmp_path: Path) -> None:
    (tmp_path / "seconds_of_this.py").write_text("print(1)")
    other = tmp_path / "other"
    other.mkdir()
    (other / "library.py").write_text("SECONDS = 3.0")
    program = tmp_path / "child.py"
    program.write_text(
        "try:\n    from library import SECONDS\nexcept ImportError:\n    SECONDS = 2.0\n"
        "import json, sys\njson.load(sys.stdin)\nprint(json.dumps({'cpu': SECONDS}))\n"
    )
    case = Case("which library", (str(program),), lambda folder: {}, lambda printed: printed["cpu"])
    assert measure(case, other, 2, lambda text: None) == [Pair(3.0, 2.0), Pair(3.0, 2.0)]


def test_a_child_that_fails_is_named(tmp_path: Path) -> None:
    case = Case("broken", ("-c", "raise SystemExit('no such job')"), lambda folder: {}, lambda printed: 0.0)
    with pytest.raises(RuntimeError, match=r"broken failed in .*\n*no such job"):
        measure(case, tmp_path, 1, lambda text: None)


def test_every_group_is_measured(tmp_path: Path) -> None:
    target = tmp_path / "found.json"
    for group, only in (("jobs", "J2:"), ("growth", "top"), ("snapshots", ""), ("late", "1 %")):
        sizes = [
            "--rows",
            "10000",
            "--size",
            "2000",
            "--keys",
            "1000",
            "--pairs",
            "1",
            "--folder",
            str(tmp_path / "in"),
        ]
        done = CliRunner().invoke(main, [str(HERE), "--groups", group, "--only", only, *sizes, "--json", str(target)])
        assert done.exit_code == 0, done.output
        cases = json.loads(target.read_text())["cases"]
        assert len(cases) == {"jobs": 1, "growth": 1, "snapshots": 2, "late": 3}[group]
        assert all(found["median"] > 0 for found in cases.values())
