"""The command line: what it prints, where errors go, and with which exit code."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import dataflow as flow
from dataflow.cli import main
from dataflow.errors import ConfigurationError, LateRowsWarning
from operators.sinks.collect import collect
from operators.sources.arrow import from_arrow

ROOT = Path(__file__).parents[1]


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A checkpoint directory with the one checkpoint of a job that finished."""
    folder = tmp_path / "ckpt"
    with flow.Pipeline("numbers") as p:
        p.source(from_arrow(pa.table({"x": [1, 2, 3]})), name="numbers").sink(collect(), name="out")
    p.run(checkpoint=flow.Checkpointing(folder, mode="unaligned"))
    return folder


def test_the_version_is_the_librarys() -> None:
    assert _run("--version").stdout == f"barrierflow, version {flow.__version__}\n"


def test_python_m_dataflow_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "dataflow", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.startswith("Usage: python -m dataflow [OPTIONS] COMMAND")


def test_parsing_loads_nothing_heavy() -> None:
    code = "import sys, dataflow.cli; print([m for m in ('numba', 'rich', 'pandas', 'pyspark') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_an_unknown_mode_names_the_modes() -> None:
    done = _run("demo", "--mode", "aline")
    assert done.exit_code == 2
    assert "'aligned', 'unaligned'" in done.stderr


# --- checkpoints


def test_checkpoints_are_listed_with_mode_and_guarantee(directory: Path) -> None:
    heading, _, line, *legend = _run("checkpoints", directory).stdout.splitlines()
    assert [cell.strip() for cell in heading.split("|")[1:3]] == ["id", "kind"]
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[:3] == ["1", "final", "unaligned (at least once)"]
    assert cells[-5:] == ["0", "0", "0", "yes", "whole"]
    assert "- repeated deliveries: rows that a restore delivers a second time, at the operator with the most" in legend


def test_on_a_narrow_terminal_no_figure_is_cut(tmp_path: Path) -> None:
    with flow.Pipeline("numbers") as p:
        rows = pa.table({"x": range(300_000)})
        p.source(from_arrow(rows), name="numbers").sink(collect(), name="out")
    p.run(checkpoint=flow.Checkpointing(tmp_path / "ckpt", mode="unaligned"))
    (line,) = json.loads(_run("checkpoints", tmp_path / "ckpt", "--json").stdout)
    printed = _on_a_terminal(["checkpoints", str(tmp_path / "ckpt")], {"COLUMNS": "80"}, out=True)
    assert f"{line['bytes']:,}" in printed
    assert {"unaligned (at least once)", "whole"} <= {cell.strip() for cell in re.split(r"\s{2,}|\r\n", printed)}
    assert "\N{HORIZONTAL ELLIPSIS}" not in printed


def test_checkpoints_as_json_have_every_field(directory: Path) -> None:
    (line,) = json.loads(_run("checkpoints", directory, "--json").stdout)
    assert line["created"] > 0
    assert line["bytes"] > 0
    del line["created"], line["bytes"]
    assert line == {
        "id": 1,
        "damage": None,
        "kind": "final",
        "pipeline": "numbers",
        "mode": "unaligned",
        "guarantee": "at least once",
        "tasks": 1,
        "in_flight_rows": 0,
        "in_flight_bytes": 0,
        "duplicated": {},
        "finished": True,
    }


def test_a_damaged_part_is_shown_with_the_reason(directory: Path) -> None:
    part = next(directory.glob("chk-00000001/*.part"))
    part.write_bytes(part.read_bytes()[:-1])
    done = _run("checkpoints", directory)
    assert done.exit_code == 0
    assert "final" in done.stdout
    assert "damaged: " in done.stdout
    assert "bytes when it was written" in " ".join(done.stdout.split())


def test_a_damaged_manifest_is_shown_with_the_reason(directory: Path) -> None:
    manifest = directory / "chk-00000001" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b"numbers", b"numbars"))
    (line,) = json.loads(_run("checkpoints", directory, "--json").stdout)
    assert "the manifest was written with xxh3" in line["damage"]
    assert line["kind"] is None
    assert "?" in _run("checkpoints", directory).stdout


def test_an_empty_directory_has_no_checkpoints(tmp_path: Path) -> None:
    assert _run("checkpoints", tmp_path).stdout == (
        f"there are no checkpoints in {tmp_path}; give the directory that the job has as Checkpointing(location)\n"
    )
    assert json.loads(_run("checkpoints", tmp_path, "--json").stdout) == []


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    done = _run("checkpoints", tmp_path / "nowhere")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: expected a checkpoint directory at {tmp_path / 'nowhere'}, found nothing; give the directory that the "
        "job has as Checkpointing(location)\n"
    )


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "found a file" in _run("checkpoints", tmp_path / "file").stderr


def test_a_restore_can_be_looked_at_before_it_is_done(directory: Path) -> None:
    before = sorted(path.name for path in directory.rglob("*"))
    first, *lines = _run("checkpoints", directory, "--restore", "1").stdout.splitlines()
    assert first == f"a restore of checkpoint 1 in {directory}, mode unaligned (at least once)"
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["finished", "in flight", "duplicates", "state"]
    assert sorted(path.name for path in directory.rglob("*")) == before


def test_a_restore_can_be_looked_at_as_json(directory: Path) -> None:
    found = json.loads(_run("checkpoints", directory, "--restore", "1", "--json").stdout)
    assert (found["checkpoint"], found["mode"], found["finished"]) == (1, "unaligned", True)
    assert found["duration_us"] is None


def test_a_restore_of_what_is_not_there_is_an_error(directory: Path) -> None:
    done = _run("checkpoints", directory, "--restore", "7")
    assert (done.exit_code, done.stderr) == (2, f"error: there is no checkpoint 7 in {directory}; there are [1]\n")


def test_checkpoints_from_before_channel_state_have_no_count_of_it(tmp_path: Path) -> None:
    golden = ROOT / "tests" / "store" / "golden" / "manifest-1.json"
    folder = tmp_path / "chk-00000007"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(golden.read_bytes())
    (line,) = json.loads(_run("checkpoints", tmp_path, "--json").stdout)
    assert (line["in_flight_rows"], line["in_flight_bytes"]) == (None, None)
    assert "?" in _run("checkpoints", tmp_path).stdout


# --- errors


@pytest.mark.parametrize("place", ["before", "after"])
def test_traceback_shows_where_an_error_came_from(place: str, tmp_path: Path) -> None:
    words = ["checkpoints", str(tmp_path / "nowhere")]
    words.insert(0 if place == "before" else 2, "--traceback")
    done = subprocess.run([sys.executable, "-m", "dataflow", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "dataflow.errors.NoCheckpoint" in done.stderr


def test_notes_of_an_error_are_printed_below_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    error = ConfigurationError("no [bold] way")
    error.add_note("and this is why")
    monkeypatch.setattr("dataflow.observe.checkpoints.list_checkpoints", _raising(error))
    assert _run("checkpoints", tmp_path).stderr == "error: no [bold] way\n  and this is why\n"


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dataflow.observe.checkpoints.list_checkpoints", _raising(KeyboardInterrupt()))
    done = _run("checkpoints", tmp_path)
    assert (done.exit_code, done.stderr) == (130, "interrupted\n")


def test_a_warning_of_a_run_is_a_line_without_a_place_in_the_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def warned(*_: object) -> list[object]:
        warnings.warn("2 rows came too late", LateRowsWarning, stacklevel=1)
        return []

    monkeypatch.setattr("dataflow.observe.checkpoints.list_checkpoints", warned)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert _run("checkpoints", tmp_path).stderr == "warning: 2 rows came too late\n"
    done = _run("checkpoints", tmp_path)  # the tests run with warnings as errors
    assert (done.exit_code, done.stderr) == (2, "error: 2 rows came too late\n")


@pytest.mark.parametrize(("variables", "red"), [({}, 1), ({"NO_COLOR": "1"}, 0)])
def test_an_error_is_red_on_a_terminal_that_wants_colour(
    variables: Mapping[str, str],
    red: int,
    tmp_path: Path,
) -> None:
    printed = _on_a_terminal(["checkpoints", str(tmp_path / "nowhere")], variables)
    assert printed.count("\x1b[31m") == red
    assert "error: expected a checkpoint directory" in printed


def _raising(error: BaseException) -> object:
    def call(*_: object) -> None:
        raise error

    return call


def _on_a_terminal(words: list[str], variables: Mapping[str, str], *, out: bool = False) -> str:
    """Return the output of the command to a stderr, or a stdout, that is a terminal."""
    ours, theirs = pty.openpty()
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLORTERM")}
    environment = plain | {"TERM": "xterm", **variables}
    streams = {"stdout" if out else "stderr": theirs}
    subprocess.run([sys.executable, "-m", "dataflow", *words], cwd=ROOT, env=environment, check=False, **streams)
    os.close(theirs)
    with os.fdopen(ours, "rb") as terminal:
        return terminal.read1(65_536).decode()
