"""The command timeline, and sentences on a stored checkpoint: what they print, write and refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import dataflow as flow
import operators as op
from dataflow.cli import main


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def _job(folder: Path, name: str = "numbers") -> flow.RunResult:
    with flow.Pipeline(name) as p:
        rows = p.source(op.from_arrow(pa.table({"x": [1, 2, 3]})), name="in")
        rows.key_by("x").agg(op.count().alias("n"), name="counts").sink(op.collect(), name="out")
    return p.run(checkpoint=flow.Checkpointing(folder / "ckpt"), record=folder / "events.arrow")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the checkpoints of a job, and its recording."""
    folder = tmp_path_factory.mktemp("job")
    _job(folder)
    return folder


def test_without_a_file_it_prints_sentences(folder: Path) -> None:
    done = _run("timeline", folder / "events.arrow")
    title, *sentences = done.stdout.splitlines()
    assert (done.exit_code, title) == (0, "Checkpoint 1 of 'numbers'")
    assert "in mode aligned (exactly once)" in " ".join(" ".join(sentences).split())
    assert _run("timeline", folder / "events.arrow", "--checkpoint", "1").stdout == done.stdout


@pytest.mark.parametrize(("name", "start"), [("x.html", "<!doctype html>"), ("x.svg", "<svg")])
def test_it_writes_a_picture_in_the_form_of_its_name(name: str, start: str, folder: Path, tmp_path: Path) -> None:
    done = _run("timeline", folder / "events.arrow", "--checkpoint", "all", "-o", tmp_path / name)
    assert (done.exit_code, done.stdout) == (0, f"wrote {tmp_path / name}\n")
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.arrow"], "there is no recording nowhere.arrow"),
        (["events.arrow", "--checkpoint", "7"], "checkpoint 7 is not in the events, which have 1"),
        (["events.arrow", "--checkpoint", "last"], "--checkpoint expects the id of a checkpoint, such as 7, or all"),
        (["events.arrow", "--checkpoint", "0"], "--checkpoint expects the id of a checkpoint"),
        (["events.arrow", "-o", "x.png"], "its name must end in .svg or .html"),
        (["ckpt"], "ckpt"),
        (["ckpt/LOCK"], "ckpt/LOCK"),
    ],
)
def test_what_cannot_be_shown_is_an_error(
    words: list[str], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = _run("timeline", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.startswith("error: ")


def test_names_in_a_recording_cannot_control_the_terminal(tmp_path: Path) -> None:
    _job(tmp_path, "\x1b[2Jname")
    for words in (["timeline"], ["checkpoints", "show", tmp_path / "ckpt", "1", "--events"]):
        assert "\x1b" not in _run(*words, tmp_path / "events.arrow").stdout


def test_show_explains_a_checkpoint_by_the_recording_of_its_job(folder: Path) -> None:
    sentences = flow.read_events(folder / "events.arrow").timeline(1).sentences
    words = ["checkpoints", "show", folder / "ckpt", "1", "--events", folder / "events.arrow"]
    printed = " ".join(_run(*words).stdout.split())
    assert all(" ".join(sentence.split()) in printed for sentence in sentences)
    assert json.loads(_run(*words, "--json").stdout)["sentences"] == list(sentences)


def test_show_refuses_the_recording_of_another_job(folder: Path, tmp_path: Path) -> None:
    _job(tmp_path)
    done = _run("checkpoints", "show", folder / "ckpt", "1", "--events", tmp_path / "events.arrow")
    assert done.exit_code == 2
    assert "is a recording of job" in done.stderr
    assert "and checkpoint 1 is of job" in done.stderr
