"""Runs with ``record=``: the file has what the run recorded, and refuses or warns without harm to the run."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import ConfigurationError, EventsError, RecordingEndedWarning
from dataflow.events.record import Record
from dataflow.runners.faults import Faults
from dataflow.runners.recordings import make_recorder
from tests.events.test_recordings import files_of_at_most
from tests.seeds import in_extended

ROWS = pa.table({"k": ["a", "b", "c"] * 100, "x": range(300)})


def totals(sink: flow.Sink | None = None, name: str = "totals") -> flow.Pipeline:
    with flow.Pipeline(name) as p:
        rows = p.source(op.from_arrow(ROWS, batch_rows=10), name="in")
        rows.key_by("k").agg(col("x").sum().alias("total"), name="totals").sink(sink or op.collect(), name="out")
    return p


@pytest.mark.parametrize("seed", [2, *in_extended(*range(20, 30))])
def test_a_recording_of_a_run_that_crashes_has_the_events_of_the_result(tmp_path: Path, seed: int) -> None:
    settings = flow.Checkpointing(flow.MemoryStore(), every="1ms", mode="unaligned-persisted")
    runner = flow.SimulatedRunner(seed, Faults(crashes=2, stall=0.01))
    result = totals().run(runner, checkpoint=settings, record=tmp_path / "events.arrow", parallelism=2)
    events = flow.read_events(tmp_path / "events.arrow")
    assert events.table.equals(result.events.table)
    attempts = events.table["attempt"].unique().to_pylist()
    assert attempts == list(range(1, len(attempts) + 1))
    assert len(attempts) <= result.restarts + 1  # one that crashes in its recovery has not started
    assert events.missed == 0


def test_runs_of_the_same_job_append_and_a_new_job_begins_a_file(tmp_path: Path) -> None:
    path = tmp_path / "events.arrow"
    for run in (1, 2):
        totals().run(checkpoint=flow.Checkpointing(tmp_path / "ckpt"), record=flow.Record(path, every="1ms"))
        assert flow.read_events(path).table["attempt"].unique().to_pylist() == list(range(1, run + 1))
    job = flow.read_events(path).recorded.job
    totals().run(record=path)
    assert flow.read_events(path).recorded.job != job
    assert flow.read_events(f"{path}.1").recorded.job == job
    with pytest.raises(EventsError, match="is a recording of pipeline 'totals', expected one of 'counts'"):
        totals(name="counts").run(record=path)


def test_a_file_that_another_job_writes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.arrow"
    job = totals().start(record=path)
    try:
        with pytest.raises(EventsError, match="another job writes this recording"):
            totals().run(record=path)
    finally:
        job.wait()
    totals().run(record=path)


@pytest.mark.parametrize("runner", ["local", "simulated"])
def test_places_are_refused_before_anything_is_made(tmp_path: Path, runner: str) -> None:
    settings, sink = flow.Checkpointing(tmp_path / "ckpt"), op.write_parquet(tmp_path / "out")
    stored = flow.Checkpointing(flow.DirectoryStore(tmp_path / "ckpt"))
    for checkpoint in (settings, stored):
        for name, message in {
            "ckpt/events.arrow": "outside of the checkpoint directory",
            "out/events.arrow": "outside of the output directory of a sink",
            "missing/events.arrow": "there is no such directory",
            "": "it is a directory; name a file in it",
        }.items():
            with pytest.raises(ConfigurationError, match=message):
                totals(sink).run(runner, checkpoint=checkpoint, record=tmp_path / name)
    with pytest.raises(ConfigurationError, match="must be the path of a file"):
        totals(sink).run(runner, record=7)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_ends_the_recording_with_one_warning_and_never_the_job(tmp_path: Path) -> None:
    path = tmp_path / "events.arrow"
    runner = flow.SimulatedRunner(1)
    with files_of_at_most(6_000), pytest.warns(RecordingEndedWarning, match="and the run continued") as caught:
        result = totals().run(runner, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms"), record=path)
    assert (len(caught), result.rows_out) == (1, {"out": 3})
    assert [type(warning) for warning in result.warnings] == [RecordingEndedWarning]
    assert len(flow.read_events(path)) < len(result.events)


def test_samples_are_as_frequent_as_the_recording_says() -> None:
    assert make_recorder(None).sampled_each == 1_000_000
    assert make_recorder(Record("events.arrow", every="20ms")).sampled_each == 20_000


ENDLESS = """
import sys
import time
from collections.abc import Iterator

import pyarrow as pa

import dataflow as flow
import operators as op

def rows(position: int | None) -> Iterator[tuple[dict[str, int], int]]:
    for n in range(position or 0, 1_000_000):
        time.sleep(0.001)
        yield {"k": n % 3}, n + 1

with flow.Pipeline("endless") as p:
    stream = p.source(op.from_generator(rows, schema=pa.schema({"k": pa.int64()})), name="in")
    stream.key_by("k").agg(op.count().alias("n"), name="counts").sink(op.collect(), name="out")
p.run(checkpoint=flow.Checkpointing(sys.argv[1], every="50ms"), record=sys.argv[2], parallelism=2)
"""


@pytest.mark.extended
def test_a_killed_recording_is_read_and_continued(tmp_path: Path) -> None:
    path, script = tmp_path / "events.arrow", tmp_path / "endless.py"
    script.write_text(ENDLESS)
    for attempt in (1, 2, 3):
        process = subprocess.Popen([sys.executable, script, str(tmp_path / "ckpt"), str(path)])
        try:
            seen: list[object] = []
            while seen.count("durable") < 5:  # also reads it while it is written
                assert process.poll() is None
                time.sleep(0.05)
                if path.exists() and path.stat().st_size:
                    table = flow.read_events(path).table
                    seen = table.filter(pa.compute.equal(table["attempt"], attempt))["kind"].to_pylist()
        finally:
            process.kill()
            process.wait()
        events = flow.read_events(path)
        assert events.table["attempt"].unique().to_pylist() == list(range(1, attempt + 1))
        assert events.table["kind"].to_pylist().count("started") == attempt
