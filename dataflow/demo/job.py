"""The job: flights counted, and their delays averaged, per airport and airline, written as Parquet while it goes.

One of its operators is slow, so queues fill in front of it: what a barrier does about them is what tells the modes
apart. The two inputs come at different speeds, so their barriers do not arrive together.
"""

from __future__ import annotations

from pathlib import Path

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.checkpointing import Mode
from dataflow.compare.options import Options, Scene
from dataflow.compare.subject import Subject

__all__ = ["AGGREGATE", "FILTER", "SINK", "SOURCE", "options", "pipeline", "subject"]

SOURCE, FILTER, AGGREGATE, SINK = "flights", "departed", "delays", "output"

_SECONDS = {"fast.parquet": 1.0, "slow.parquet": 2.4}
"""How long each input takes to come, however many flights there are: the fast one waits for the slow operator, the
other one does not."""
_BATCHES = 600
"""Many small batches: a barrier of the fast input waits behind some, one of the slow input does not."""
_ALL = 336_776
_COST = 8
"""Microseconds that the slow operator waits for a row, where all flights are read."""


def options(flights: int) -> Options:
    """How the demo compares; fewer ``flights`` take as long as all."""
    return Options(
        every="100ms",
        slow={AGGREGATE: f"{_COST * _ALL // max(1, flights)}us"},
        credit=24,
        alignment_timeout="20ms",
        patience=5,
        shows=_shows,
    )


def _shows(mode: Mode, scene: Scene) -> bool:
    match mode:
        case Mode.UNALIGNED:
            return scene.duplicated.get(AGGREGATE, 0) > 0
        case Mode.UNALIGNED_PERSISTED | Mode.ALIGNED_TIMEOUT:
            return scene.in_flight > 0
        case _:
            return True


def subject(folder: Path) -> Subject:
    """The pipeline over the flights in ``folder``, for processes to find."""
    return Subject("dataflow.demo.job:pipeline", (str(folder),))


def pipeline(folder: str) -> flow.Pipeline:
    """The job over ``fast.parquet`` and ``slow.parquet`` in ``folder``."""
    from pyarrow import parquet

    files = [str(Path(folder, name)) for name in _SECONDS]
    rows = [parquet.read_metadata(file).num_rows for file in files]
    rates = [count / seconds for count, seconds in zip(rows, _SECONDS.values(), strict=True)]
    source = op.read_parquet(files, split_by="file", batch_rows=max(1, sum(rows) // _BATCHES))
    with flow.Pipeline("delays") as p:
        (
            p.source(op.paced(source, rates), name=SOURCE)
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
