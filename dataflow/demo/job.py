"""The job: flights counted, and their delays averaged, per airport and airline, written as Parquet while it goes.

One of its operators is slow, so queues fill in front of it: what a barrier does about them is what tells the modes
apart. The two inputs come at different speeds, so their barriers do not arrive together.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.compare.options import Options, RunnerName, Scene
from dataflow.compare.subject import Subject
from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.source import Source

__all__ = ["AGGREGATE", "FILTER", "SINK", "SOURCE", "options", "pipeline", "subject", "unpaced"]

SOURCE, FILTER, AGGREGATE, SINK = "flights", "departed", "delays", "output"

_SECONDS = {"fast.parquet": 1.0, "slow.parquet": 2.4}
"""How long each input takes to come, however many flights there are: the fast one waits for the slow operator, the
other one does not."""
_BATCHES = 600
"""Many small batches: a barrier of the fast input waits behind some, one of the slow input does not."""
_ALL = 336_776
_COST = 8
"""Microseconds that the slow operator waits for a row, where all flights are read."""
_TRIGGERS = 4
"""Micro-batches on Spark, if both files were as long; each has its fixed cost of about half a second."""


def options(flights: int, runner: RunnerName) -> Options:
    """How the demo compares; fewer ``flights`` take as long as all."""
    match runner:
        case RunnerName.LOCAL:
            return Options(
                every="100ms",
                slow={AGGREGATE: f"{_COST * _ALL // max(1, flights)}us"},
                credit=24,
                alignment_timeout="20ms",
                patience=5,
                shows=_shows,
            )
        case RunnerName.SPARK:
            return Options(runner=runner, rows_per_trigger=max(1, flights // _TRIGGERS), patience=2, attempts=3)
        case never:
            assert_never(never)


def _shows(mode: Mode, scene: Scene) -> bool:
    match mode:
        case Mode.UNALIGNED:
            return scene.duplicated.get(AGGREGATE, 0) > 0
        case Mode.UNALIGNED_PERSISTED | Mode.ALIGNED_TIMEOUT:
            return scene.in_flight > 0
        case _:
            return True


def subject(folder: Path, runner: RunnerName) -> Subject:
    """The pipeline over the flights in ``folder``, for processes to find."""
    name = "pipeline" if runner is RunnerName.LOCAL else "unpaced"
    return Subject(f"dataflow.demo.job:{name}", (str(folder),))


def pipeline(folder: str) -> flow.Pipeline:
    """The job over ``fast.parquet`` and ``slow.parquet`` in ``folder``, each of which takes its time to come."""
    rates = [rows / seconds for rows, seconds in zip(_rows(folder), _SECONDS.values(), strict=True)]
    return _job(folder, op.paced(_flights(folder), rates))


def unpaced(folder: str) -> flow.Pipeline:
    """The same where all rows are there: Spark takes as many as it likes to a micro-batch, or waits for none."""
    return _job(folder, _flights(folder))


def _rows(folder: str) -> list[int]:
    from pyarrow import parquet

    return [parquet.read_metadata(Path(folder, name)).num_rows for name in _SECONDS]


def _flights(folder: str) -> Source:
    files = [str(Path(folder, name)) for name in _SECONDS]
    return op.read_parquet(files, split_by="file", batch_rows=max(1, sum(_rows(folder)) // _BATCHES))


def _job(folder: str, source: Source) -> flow.Pipeline:
    with flow.Pipeline("delays") as p:
        (
            p.source(source, name=SOURCE)
            .filter(col("departure").is_not_null(), name=FILTER)
            .select("origin", "carrier", "delay", name="needed")
            .key_by("origin", "carrier")
            .agg(
                op.count().alias("flights"),
                col("delay").mean().alias("mean_delay"),
                emit="updates",
                name=AGGREGATE,
            )
            .sink(op.write_parquet(Path(folder, "delays")), name=SINK)
        )
    return p
