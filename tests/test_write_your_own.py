"""The source and the sink of docs/write-your-own.md do what the guide says, under crashes and a real SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock
from dataflow.contracts.operator import OperatorContext
from dataflow.errors import DirectoryInUse, InputChanged, OutputExists, SchemaMismatch, StoreError
from dataflow.runners.faults import Faults
from dataflow.runtime.task.crash_points import Point
from tests.documents import ROOT, blocks
from tests.seeds import in_soak

GUIDE = ROOT / "docs/write-your-own.md"
ROWS = 3_000
X = pa.schema([("x", pa.int64()), ("s", pa.string())])


def defined() -> dict[str, Any]:
    """What the blocks of the guide that hold its source and its two-phase sink define."""
    names: dict[str, Any] = {}
    for block in blocks(GUIDE):
        if "class Lines(" in block.text or "class SqliteSink(" in block.text:
            exec(compile(block.text, str(GUIDE), "exec", dont_inherit=True), names)
    return names


NAMES = defined()
Lines, SqliteSink, visible = NAMES["Lines"], NAMES["SqliteSink"], NAMES["visible"]


def pipeline(sink: flow.Sink) -> flow.Pipeline:
    table = pa.table({"x": range(ROWS), "s": [None if i % 7 == 0 else f"'{i}" for i in range(ROWS)]})
    with flow.Pipeline("numbers") as p:
        p.source(op.from_arrow(table, batch_rows=50, splits=2), name="in").sink(sink, name="out")
    return p


# The source


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "a.log").write_text("1\n2\n3")
    return tmp_path


def lines_of(source: Any, offset: Any = None) -> tuple[list[str], Any, Any]:
    """The lines of the only split from ``offset`` on, two at a time; the offset behind them; the last answer."""
    reader = source.reader(source.splits()[0], offset, None)
    found: list[str] = []
    while isinstance(answer := reader.poll(2), pa.RecordBatch):
        assert answer.num_rows <= 2
        found += answer["line"].to_pylist()
    reader.close()
    return found, reader.offset, answer


def test_a_bounded_source_ends_where_the_file_ended_when_the_job_began(logs: Path) -> None:
    source = Lines(str(logs))
    split = source.splits()[0]
    (logs / "a.log").write_text("1\n2\n3 and more\n4\n")
    reader = source.reader(split, None, None)
    assert [reader.poll(9)["line"].to_pylist(), reader.poll(9)] == [["1", "2", "3"], flow.END]
    reader.close()


def test_an_unbounded_source_answers_none_until_a_line_is_whole(logs: Path) -> None:
    source = Lines(str(logs), follow=True)
    assert not source.bounded
    found, offset, answer = lines_of(source)
    assert (found, offset, answer) == (["1", "2"], 4, None)
    with (logs / "a.log").open("a") as file:
        file.write("3\n4")
    assert lines_of(source, offset) == (["33"], 7, None)


def test_a_reader_opened_at_an_offset_gives_the_same_rows_again(logs: Path) -> None:
    assert lines_of(Lines(str(logs)), 2) == (["2", "3"], 5, flow.END)


@pytest.mark.parametrize(("content", "said"), [("1\n", "it shrank"), ("9\n2\n3", "another file now"), (None, "shrank")])
def test_a_file_that_changed_is_refused(logs: Path, content: str | None, said: str) -> None:
    source = Lines(str(logs))
    split = source.splits()[0]
    source.check(split)
    (logs / "a.log").unlink()
    if content is not None:
        (logs / "a.log").write_text(content)
    with pytest.raises(InputChanged, match=said):
        source.check(split)


# The two-phase sink


# It has one sink, and nobody asks it for a savepoint.
@pytest.mark.parametrize("point", sorted({*Point} - {Point.BETWEEN_COMMITS, Point.EXPORT}, key=list(Point).index))
@pytest.mark.parametrize("seeds", [3, *in_soak(5)])
def test_every_row_is_there_once_wherever_the_job_dies(tmp_path: Path, point: Point, seeds: int) -> None:
    crashes: set[str | None] = set()
    for seed in range(seeds):
        path = str(tmp_path / f"{seed}.db")
        runner = flow.SimulatedRunner(seed=seed, faults=Faults(crashes=3, crash_at=[point, Point.DURABLE]))
        store = flow.Checkpointing(flow.MemoryStore(), every="1ms")
        job = runner.start(pipeline(SqliteSink(path)), parallelism=2, checkpoint=store)
        job.wait()
        crashes |= {attempt.crash for attempt in job.attempts}
        assert sorted(x for x, _ in visible(path)) == list(range(ROWS)), f"seed {seed}"
    assert point.name.lower() in crashes, crashes


KILLED = """
import os, signal, sys
from tests.test_write_your_own import SqliteSink, flow, pipeline, visible

class Killed(SqliteSink):
    def commit(self, checkpoint, handles):
        if len(sys.argv) > 3 and handles:
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit(checkpoint, handles)

pipeline(Killed(sys.argv[1])).run(parallelism=2, checkpoint=flow.Checkpointing(sys.argv[2], every="1ms"))
"""


def test_a_job_that_is_killed_between_prepare_and_commit_commits_when_it_is_started_again(tmp_path: Path) -> None:
    path, kept = str(tmp_path / "out.db"), str(tmp_path / "ckpt")
    assert run_child(path, kept, "die").returncode == -signal.SIGKILL
    with closing(sqlite3.connect(path)) as db, db:
        (staged,) = db.execute("SELECT count(*) FROM staged").fetchone()
    db.close()
    assert staged > 0
    assert visible(path) == []
    done = run_child(path, kept)
    assert done.returncode == 0, done.stderr
    assert sorted(x for x, _ in visible(path)) == list(range(ROWS))
    assert dict(visible(path))[0] is None
    assert dict(visible(path))[1] == "'1"


def run_child(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", KILLED, *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


class NoOut:
    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        raise AssertionError("a sink emits nothing")


def begun(path: Path) -> Any:
    sink = SqliteSink(str(path))
    sink.check(X)
    sink.begin()
    return sink


def prepared(sink: Any, checkpoint: int, *values: int) -> list[dict[str, Any]]:
    context = OperatorContext("out", 0, 1, (X,), X, range(1), 1, None, ManualClock(), lambda due: None)
    writer = sink.writer(context)
    writer.process(0, pa.record_batch([values, ["s"] * len(values)], schema=X), NoOut())
    return list(json.loads(json.dumps(writer.prepare(checkpoint))))


def test_prepared_rows_are_invisible_and_committing_twice_shows_them_once(tmp_path: Path) -> None:
    sink = begun(tmp_path / "out.db")
    handles = prepared(sink, 1, 5, 6)
    assert visible(sink.path) == []
    for _ in range(2):
        sink.commit(1, handles)
        assert visible(sink.path) == [(5, "s"), (6, "s")]


def test_recovery_commits_what_is_named_takes_back_what_is_later_and_may_be_repeated(tmp_path: Path) -> None:
    sink = begun(tmp_path / "out.db")
    sink.commit(1, prepared(sink, 1, 1))
    named = prepared(sink, 2, 2)
    sink.commit(3, prepared(sink, 3, 3))
    prepared(sink, 4, 4)
    for _ in range(2):
        sink.recover(2, named)
        assert visible(sink.path) == [(1, "s"), (2, "s")]
    with closing(sqlite3.connect(sink.path)) as db, db:
        assert db.execute("SELECT count(*) FROM staged").fetchone() == (2,)
    db.close()


def test_a_database_that_refuses_keeps_the_rows_for_the_next_checkpoint(tmp_path: Path) -> None:
    sink = begun(tmp_path / "out.db")
    writer = sink.writer(OperatorContext("out", 0, 1, (X,), X, range(1), 1, None, ManualClock(), lambda due: None))
    writer.process(0, pa.record_batch([[1], ["s"]], schema=X), NoOut())
    (tmp_path / "out.db").rename(tmp_path / "away.db")
    with pytest.raises(StoreError, match="cannot stage 1 rows"):
        writer.prepare(1)
    (tmp_path / "away.db").replace(tmp_path / "out.db")
    sink.commit(2, writer.prepare(2))
    assert visible(sink.path) == [(1, "s")]


def test_one_job_holds_the_database_and_leaves_it_free(tmp_path: Path) -> None:
    sink = SqliteSink(str(tmp_path / "out.db"))
    with sink.hold("a"), pytest.raises(DirectoryInUse, match="another job writes there"), sink.hold("b"):
        pass
    with sink.hold("c"):
        pass


def test_what_is_there_and_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    sink = begun(tmp_path / "out.db")
    prepared(sink, 1, 1)
    sink.begin()  # a job that died before its first checkpoint
    sink.commit(1, prepared(sink, 1, 1))
    with pytest.raises(OutputExists, match="restore the job that wrote them"):
        sink.begin()
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as db, db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    with pytest.raises(OutputExists):
        begun(tmp_path / "theirs.db")
    with pytest.raises(SchemaMismatch, match="column 'b' is binary"):
        sink.check(pa.schema([("b", pa.binary())]))
