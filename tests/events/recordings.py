"""Recordings for tests: batches of events of a small job, and files of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from dataflow.events.event_file import EventFile
from dataflow.events.kinds import JOB, Kind, schema
from dataflow.events.plan_shape import LinkShape, PlanShape, VertexShape
from dataflow.events.record import Record
from dataflow.events.recorded import RecordedJob

__all__ = ["CHANNEL", "PLAN", "RECORDED", "batch", "checkpoint", "names_of", "of_job", "opened", "written"]

PLAN = PlanShape(
    engine="local",
    vertices=(VertexShape("in", 1, ("in",)), VertexShape("sum", 2, ("sum", "out"))),
    links=(LinkShape("in", "sum", "in", "hash", keys=("k",)),),
)
RECORDED = RecordedJob("bids", "0" * 32, "aligned", "exactly once", PLAN)
CHANNEL = "in[0] -> sum[1]"
_TASK = {"task": "sum[1]", "checkpoint": 1}


def of_job(job: int, plan: PlanShape = PLAN, pipeline: str = "bids") -> RecordedJob:
    """Return what events are of, for the job of this number."""
    return RecordedJob(pipeline, f"{job:032}", "aligned", "exactly once", plan)


def names_of(plan: PlanShape) -> dict[str, pa.Array]:
    """Return the dictionaries of the columns of names."""
    names = {
        "task": [*plan.tasks, JOB],
        "channel": [channel.name for channel in plan.channels],
        "operator": list(plan.operator_names),
        "kind": [kind.label for kind in Kind],
    }
    return {name: pa.array(values, pa.string()) for name, values in names.items()}


_ARRAYS = names_of(PLAN)


def batch(
    events: Sequence[Mapping[str, Any]], attempt: int = 1, names: Mapping[str, pa.Array] = _ARRAYS
) -> pa.RecordBatch:
    """Return a batch of events. Fields that are left out are null, except these: ``time`` is the number of the row,
    and ``seq`` counts the events of a task, or its parts."""
    numbers: dict[tuple[str, bool], Iterator[int]] = defaultdict(count)
    rows = [
        {"time": n, "seq": next(numbers[event["task"], event["kind"] == "part"]), "attempt": attempt, **event}
        for n, event in enumerate(events)
    ]
    arrays = []
    for field in schema():
        values = [row.get(field.name) for row in rows]
        if field.name in names:
            known = names[field.name].to_pylist()
            indices = pa.array([None if value is None else known.index(value) for value in values], pa.int32())
            arrays.append(pa.DictionaryArray.from_arrays(indices, names[field.name], safe=False))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


def checkpoint(attempt: int = 1) -> pa.RecordBatch:
    """Return an event of most kinds."""
    return batch(
        [
            {"task": JOB, "kind": "started", "value": 1_700_000_000_000_000},
            {"task": JOB, "kind": "triggered", "checkpoint": 1, "detail": "checkpoint"},
            {"task": "in[0]", "kind": "sent", "checkpoint": 1, "channel": CHANNEL, "rows": 7, "bytes": 56},
            {**_TASK, "kind": "arrived", "channel": CHANNEL, "rows": 0, "bytes": 0, "detail": "in order"},
            {**_TASK, "kind": "unblocked", "channel": CHANNEL, "duration": 2, "detail": "complete"},
            {**_TASK, "kind": "snapshot", "duration": 1},
            {"task": "sum[1]", "kind": "work", "totals": [5, 4, 3, 2, 1, 0, 9]},
            {"task": "sum[1]", "kind": "watermark", "value": -(2**63), "channel": CHANNEL},
            {"task": JOB, "kind": "state", "detail": "finished"},
        ],
        attempt,
    )


def fail(reason: str) -> None:
    """Fail, because a recording ended."""
    raise AssertionError(reason)


def opened(
    path: Path, recorded: RecordedJob = RECORDED, limit: str | int = "256MB", ended: Callable[[str], None] = fail
) -> EventFile:
    """Open a recording."""
    return EventFile.open(Record(path, limit=limit), recorded, ended)


def written(path: Path, *batches: pa.RecordBatch, recorded: RecordedJob = RECORDED, limit: str | int = "256MB") -> int:
    """Record ``batches`` of one attempt; return its number."""
    file = opened(path, recorded, limit)
    for each in batches:
        file.write(each)
    file.close()
    return file.attempt
