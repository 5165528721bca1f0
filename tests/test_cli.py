"""The command line: what it prints, where errors go, and with which exit code."""

from __future__ import annotations

import signal
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
from tests.commands import on_a_terminal

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


def test_every_command_takes_sigterm_as_an_interrupt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dataflow.observe.checkpoints.list_checkpoints", lambda _: signal.raise_signal(signal.SIGTERM))
    assert _run("checkpoints", tmp_path).exit_code == 130
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


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
    printed = on_a_terminal(["checkpoints", str(tmp_path / "nowhere")], variables)
    assert printed.count("\x1b[31m") == red
    assert "error: expected a checkpoint directory" in printed


def _raising(error: BaseException) -> object:
    def call(*_: object) -> None:
        raise error

    return call
