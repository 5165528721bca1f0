"""The command run: its options, the summary, signals, and errors of the pipeline itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import dataflow as flow
import operators as op
from dataflow.cli import main
from dataflow.runners.interrupts import CtrlC, sigterm_as_ctrl_c
from dataflow.store.directory import DirectoryStore
from operators.sinks.parquet import read_committed
from tests.commands import ROOT, on_a_terminal

MODULE = """
import signal, sys, time

import pyarrow as pa

import dataflow as flow
import operators as op


def copy():
    with flow.Pipeline("copy") as p:
        p.source(op.from_arrow(pa.table({"n": range(1_000)})), name="numbers").sink(op.write_parquet("out"), name="out")
    return p


def failing():
    with flow.Pipeline("failing") as p:
        rows = p.source(op.from_arrow(pa.table({"n": [2, 1, 0]})), name="numbers")
        rows.map_batches(divided, name="divided").sink(op.collect(), name="out")
    return p


def broken_pipe():
    with flow.Pipeline("broken") as p:
        rows = p.source(op.from_arrow(pa.table({"n": [2]})), name="numbers")
        rows.map_batches(unplugged, name="unplugged").sink(op.collect(), name="out")
    return p


def unplugged(batch):
    raise BrokenPipeError(32, "Broken pipe")


def leaving():
    sys.exit(0)


def collected():
    with flow.Pipeline("collected") as p:
        p.source(op.from_arrow(pa.table({"n": [1]})), name="numbers").sink(op.collect(), name="out")
    return p


def divided(batch):
    return pa.record_batch({"n": [6 // n for n in batch["n"].to_pylist()]})


def endless():
    with flow.Pipeline("endless") as p:
        rows = p.source(op.generate({"n": op.sequence()}, rate="10000/s"), name="numbers")
        rows.map_batches(told, name="told").sink(op.write_parquet("out", if_exists="append"), name="out")
    return p


def told(batch, heard=[]):
    if not heard:
        heard.append(True)
        while signal.getsignal(signal.SIGTERM) is signal.default_int_handler:
            time.sleep(0.001)  # rows flow already, and nobody waits for the job yet
        print("running", flush=True)
    return batch


one = copy()
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "job.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("job", None)


def _run(*words: str) -> Result:
    return CliRunner().invoke(main, ["run", *words])


def test_a_run_prints_its_summary_and_writes_to_the_sinks_of_the_pipeline() -> None:
    done = _run("job:copy", "--parallelism", "2")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("copy: finished in ")
    assert "no checkpoints" in done.stdout
    assert "out  out: 1,000 rows -> out/*.parquet" in done.stdout
    assert done.stderr.startswith("copy: 1,000 rows, ")  # the progress
    assert "checkpoint" not in done.stderr
    assert len(read_committed("out")) == 1_000


def test_a_run_with_checkpoints_resumes_and_prints_json() -> None:
    words = ["--checkpoint", "ckpt", "--every", "1h", "--mode", "unaligned-persisted", "--json"]
    first, again, refused = (_run("job:one", *words, *more) for more in ([], [], ["--restore", "never"]))
    assert [json.loads(done.stdout)["restore"] is None for done in (first, again)] == [True, False]
    assert json.loads(first.stdout)["mode"] == "unaligned-persisted"
    assert first.stderr == ""
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "already holds checkpoints" in refused.stderr


def test_a_run_is_recorded_into_a_file_that_it_names_at_the_end() -> None:
    done = _run("job:copy", "--checkpoint", "ckpt", "--record", "my events.arrow")
    assert done.stderr.splitlines()[-1] == (
        "events: my events.arrow; barrierflow timeline 'my events.arrow' explains them"
    )
    assert flow.read_events("my events.arrow").checkpoints["kind"].to_pylist() == ["final"]


def test_a_recording_that_cannot_be_written_is_refused_before_the_run() -> None:
    done = _run("job:copy", "--record", "nowhere/events.arrow")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nowhere" in done.stderr
    assert not list(Path("out").glob("*.parquet"))


def test_a_batch_has_one_checkpoint_although_none_is_asked_for() -> None:
    done = _run("job:copy", "--checkpoint", "ckpt", "--execution", "batch", "--json")
    assert json.loads(done.stdout)["checkpoints"]["completed"] == 1
    assert DirectoryStore("ckpt").checkpoints() == [1]


def test_a_stream_takes_checkpoints_though_no_interval_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    monkeypatch.setattr("dataflow.cli.run.Checkpointing", lambda *_, **options: taken.append(options))
    _run("job:copy", "--checkpoint", "ckpt")
    assert taken == [{"every": "10s", "mode": taken[0]["mode"], "alignment_timeout": None}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--every", "1s"], "--every needs --checkpoint DIR, the directory of the checkpoints; without it the run"),
        (["--mode", "aligned", "--restore", "7"], "--mode and --restore need --checkpoint DIR"),
        (["--alignment-timeout", "1s"], "--alignment-timeout needs --checkpoint DIR"),
        (["--checkpoint", "c", "--every", "0s"], "--every must be above zero"),
        (["--checkpoint", "c", "--every", "soon"], "--every must be a timedelta or text such as '250ms'"),
        (["--checkpoint", "c", "--restore", "latest"], "there is no checkpoint in c to restore"),
        (["--checkpoint", "c", "--restore", "7"], "there is no checkpoint 7 in"),
        (["--checkpoint", "s3://bucket/c"], "object stores and other URLs are not supported"),
        (["--parallelism", "0"], "Invalid value for '--parallelism': 0 is not in the range x>=1"),
        (["--mode", "aligned-time"], "'aligned-time' is not one of 'aligned', 'unaligned'"),
        (["--execution", "batch", "--checkpoint", "c", "--every", "1s"], "a batch has one checkpoint, at its end"),
    ],
)
def test_options_that_make_no_sense_are_refused(words: list[str], message: str) -> None:
    done = _run("job:copy", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert not Path("out").exists()


def test_a_failing_function_is_shown_with_its_line_and_what_the_engine_was_doing() -> None:
    done = _run("job:failing")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "error: the pipeline failed: ZeroDivisionError: integer division or modulo by zero" in done.stderr
    assert f'File "{Path.cwd()}/job.py", line' in done.stderr
    assert "raised by operator 'divided'" in done.stderr
    assert "dataflow/runtime" not in done.stderr


def test_a_broken_pipe_of_the_users_own_is_no_closed_standard_output() -> None:
    done = _run("job:broken_pipe")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "error: the pipeline failed: BrokenPipeError: [Errno 32] Broken pipe" in done.stderr
    assert f'File "{Path.cwd()}/job.py", line' in done.stderr


def test_a_module_that_exits_or_raises_when_it_is_asked_for_a_pipeline_is_an_error() -> None:
    Path("job.py").write_text(
        MODULE + "\ndef __getattr__(name):\n    raise ValueError('no ' + name)\n", encoding="utf-8"
    )
    for name, message in (
        ("leaving", "job:leaving() raised SystemExit: 0"),
        ("none", "job:none raised ValueError: no"),
    ):
        done = _run(f"job:{name}")
        assert (done.exit_code, done.stdout) == (2, "")
        assert message in done.stderr


def test_a_run_whose_standard_error_is_closed_prints_its_summary() -> None:
    command = f"exec {sys.executable} -m dataflow run job:collected 2>&-"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, shell=True, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("collected: finished in ")


def test_names_and_paths_do_not_control_the_terminal() -> None:
    escaping = MODULE.replace('flow.Pipeline("copy")', 'flow.Pipeline("\\x1b]0;owned\\x07\\u202e\\0")')
    Path("job.py").write_text(escaping, encoding="utf-8")
    done = _run("job:copy", "--record", "e\x1b]0;owned\x07.arrow")
    assert done.exit_code == 0
    drawn = CliRunner().invoke(main, ["draw", "job:copy", "-o", "e\x1b]0;owned.svg"])
    missing = CliRunner().invoke(main, ["timeline", "e\x1b]0;owned"])
    printed = done.output + drawn.output + missing.output
    assert printed.count("\\x1b]0;owned") >= 5  # progress, summary, and three messages
    assert not {"\x1b", "\x07", "\u202e", "\0"} & {*printed}
    with flow.Pipeline("\x1b\0") as p:
        p.source(op.from_arrow(pa.table({"x": [1]})), name="\x1b").sink(op.collect(), name="out")
    assert all(c.isprintable() or c == "\n" for c in p.run()._repr_html_())


def test_a_terminal_gets_tables() -> None:
    printed = on_a_terminal(["run", "job:collected"], {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path.cwd()}"}, out=True)
    assert "collected: finished in" in printed
    assert "─" in printed


# --- signals


def _started(*words: str, **options: Any) -> subprocess.Popen[str]:
    """Return the process of a run of ``job:endless``, once its job runs and is waited for."""
    command = [sys.executable, "-m", "dataflow", "run", "job:endless", "--checkpoint", "ckpt", "--every", "1h", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    assert process.stdout is not None
    if process.stdout.readline() != "running\n":
        pytest.fail(process.communicate()[1])
    return process


def test_sigterm_takes_a_last_checkpoint_also_in_a_background_process_of_a_script() -> None:
    """A shell starts such a process with SIGINT ignored."""
    process = _started(preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    process.terminate()
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (130, ""), errors
    assert "checkpoint 1 was taken; run again with restore='auto' to resume from the newest checkpoint" in errors
    assert DirectoryStore("ckpt").checkpoints() == [1]
    assert len(read_committed("out")) > 0


def test_a_second_sigterm_leaves_without_a_checkpoint() -> None:
    with sigterm_as_ctrl_c(), CtrlC() as pressed:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert pressed.count == 2
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
