"""``barrierflow draw``: what it prints and writes, and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dataflow.cli import main

JOIN = "tests.views.pipeline.sketches:join_pipeline"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["draw", *map(str, arguments)])


def test_without_a_file_it_prints_text() -> None:
    done = run(JOIN, "--parallelism", "2", "--physical")
    assert done.exit_code == 0
    assert done.stdout == (Path(__file__).parent / "golden" / "physical.txt").read_text(encoding="utf-8")


def test_the_suffix_of_the_file_is_the_form(tmp_path: Path) -> None:
    for name, beginning in (("a.svg", "<svg"), ("a.mmd", "flowchart TD"), ("a.html", "<!doctype html>")):
        done = run(JOIN, "-o", tmp_path / name)
        assert (done.exit_code, done.stdout) == (0, f"wrote {tmp_path / name}\n")
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(beginning)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "a.png"], "must end in .svg, .html, .mmd or .txt"),
        (["-o", "missing/a.svg"], "create the parent directory"),
        (["--parallelism", "0"], "must be a whole number of at least 1"),
    ],
)
def test_bad_options_are_errors(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(JOIN, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []
