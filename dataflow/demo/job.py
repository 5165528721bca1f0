"""The job: count flights and average their delays, per airport and airline, and write updates to Parquet files.

One of its operators is slow, so queues fill in front of it. The checkpoint modes differ in how barriers pass such
queues. The two inputs arrive at different speeds, so their barriers do not arrive together.
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
"""Seconds in which each input arrives, for any number of flights. Rows of the fast one queue up in front of the slow
operator, rows of the slow one do not."""
_BATCHES = 600
"""Number of batches of the input. They are small, so a barrier of the fast input waits behind several of them."""
_ALL = 336_776
"""Number of flights in the data set."""
_COST = 8
"""Microseconds that the slow operator waits for a row, if all flights are read."""
_TRIGGERS = 4
"""Micro-batches on Spark, if both files had the same length; each has a fixed cost of about half a second."""


def options(flights: int, runner: RunnerName) -> Options:
    """Return the options of the comparison. The job takes the same time for any number of ``flights``."""
    match runner:
        case RunnerName.LOCAL:
            return Options(
                every="100ms",
                slow={AGGREGATE: f"{_COST * _ALL // max(1, flights)}us"},
                credit=24,
                alignment_timeout="20ms",
                patience=5,
                is_telling=_is_telling,
            )
        case RunnerName.SPARK:
            return Options(runner=runner, rows_per_trigger=max(1, flights // _TRIGGERS), patience=2, attempts=3)
        case never:
            assert_never(never)


def _is_telling(mode: Mode, scene: Scene) -> bool:
    """Return whether a kill in this scene leaves what is typical of the mode: repeated or in-flight rows."""
    match mode:
        case Mode.UNALIGNED:
            return scene.duplicated.get(AGGREGATE, 0) > 0
        case Mode.UNALIGNED_PERSISTED | Mode.ALIGNED_TIMEOUT:
            return scene.in_flight > 0
        case _:
            return True


def subject(folder: Path, runner: RunnerName) -> Subject:
    """Return the name of the pipeline over the flights in ``folder``, for other processes to import."""
    name = "pipeline" if runner is RunnerName.LOCAL else "unpaced"
    return Subject(f"dataflow.demo.job:{name}", (str(folder),))


def pipeline(folder: str) -> flow.Pipeline:
    """Return the job over ``fast.parquet`` and ``slow.parquet`` in ``folder``, which arrive at different speeds."""
    rates = [rows / seconds for rows, seconds in zip(_rows(folder), _SECONDS.values(), strict=True)]
    return _job(folder, op.paced(_flights(folder), rates))


def unpaced(folder: str) -> flow.Pipeline:
    """Return the same job without speeds, for Spark, which sets the number of rows of a micro-batch itself."""
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
