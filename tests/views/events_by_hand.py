"""Events by hand: a small pipeline, and a table that is written down event by event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dataflow.events.kinds import Kind, schema
from dataflow.events.plan_shape import LinkShape, PlanShape, VertexShape, channel_name
from dataflow.events.recorded import RecordedJob
from dataflow.views.events import Events

__all__ = ["JOIN", "Story", "channel", "plan"]

MS = 1_000


def plan(*links: tuple[str, str, str], parallelism: int = 1, engine: str = "local", **wide: int) -> PlanShape:
    """A plan of vertices in the order of ``links``: (source, target, partitioning). ``wide`` has other parallelisms."""
    names = list(dict.fromkeys(name for source, target, _ in links for name in (source, target)))
    ports: dict[str, int] = {}
    shapes = []
    for source, target, partitioning in links:
        ports[target] = ports.get(target, -1) + 1
        shapes.append(LinkShape(source, target, source, partitioning, ports[target]))
    vertices = [VertexShape(name, wide.get(name, parallelism), (name,)) for name in names]
    return PlanShape(engine, vertices=tuple(vertices), links=tuple(shapes))


JOIN = plan(
    ("payments", "check", "rebalance"), ("orders", "join", "hash"), ("check", "join", "hash"), ("join", "sums", "hash")
)
"""Orders that are joined with payments, which pass a slow check."""


def channel(source: str, target: str) -> str:
    """The channel between the first subtasks, or between tasks that are given with their number."""
    ends = [name if name.endswith("]") else f"{name}[0]" for name in (source, target)]
    return channel_name(*ends)


class Story:
    """Events of a job, told one by one; times are in milliseconds.

    >>> story = Story(JOIN).triggered(10, 1).durable(30, 1)
    >>> story.events().checkpoints["duration"].to_pylist()
    [20000]
    """

    def __init__(self, plan: PlanShape, mode: str = "aligned", *, missed: int = 0, start: bool = True) -> None:
        guarantee = "at least once" if mode == "unaligned" else "exactly once"
        self.recorded = RecordedJob("orders-payments", "job-1", mode, guarantee, plan)
        self.missed = missed
        self.attempt = 1
        self.rows: list[dict[str, Any]] = []
        if start:
            self.add("started", "job", 0)

    def add(self, kind: str, task: str, time: float, checkpoint: int | None = None, **fields: Any) -> Story:
        """Any event. A duration is in milliseconds, too."""
        if "duration" in fields:
            fields["duration"] = round(fields["duration"] * MS)
        values = {"kind": kind, "task": task, "time": round(time * MS), "checkpoint": checkpoint, **fields}
        self.rows.append({"seq": len(self.rows), "attempt": self.attempt, **values})
        return self

    def triggered(self, time: float, n: int, kind: str = "checkpoint") -> Story:
        self.since = time
        return self.add("triggered", "job", time, n, detail=kind)

    def durable(self, time: float, n: int, rows: int = 0, bytes: int | None = 500) -> Story:
        return self.add("durable", "job", time, n, duration=time - self.since, rows=rows, bytes=bytes)

    def failed(self, time: float, n: int, why: str) -> Story:
        return self.add("failed", "job", time, n, duration=time - self.since, detail=why)

    def barrier(
        self,
        ends: tuple[str, str],
        n: int,
        sent: float | None,
        arrived: float | None,
        *,
        ahead: int = 0,
        overtaken: int = 0,
        how: str = "in order",
    ) -> Story:
        """The way of a barrier: sent behind ``ahead`` rows, and arrived, either of which may be missing."""
        name = channel(*ends)
        source, target = name.split(" -> ")
        if sent is not None:
            self.add("sent", source, sent, n, channel=name, rows=ahead, bytes=8 * ahead)
        if arrived is not None:
            how = "overtaking" if overtaken and how == "in order" else how
            self.add("arrived", target, arrived, n, channel=name, rows=overtaken, bytes=8 * overtaken, detail=how)
        return self

    def blocked(self, ends: tuple[str, str], n: int, begin: float, end: float | None, why: str = "complete") -> Story:
        name = channel(*ends)
        task = name.split(" -> ")[1]
        self.add("blocked", task, begin, n, channel=name)
        if end is not None:
            self.add("unblocked", task, end, n, channel=name, duration=end - begin, detail=why)
        return self

    def part(
        self,
        task: str,
        n: int,
        complete: float | None,
        begin: float | None = None,
        end: float | None = None,
        *,
        snapshot: float | None = None,
        copy: float = 0,
        rows: int = 0,
        bytes: int = 100,
    ) -> Story:
        """The snapshot of a task (by default when it was complete), and its part, if it was written."""
        name = task if task.endswith("]") else f"{task}[0]"
        taken = complete if snapshot is None else snapshot
        if taken is not None:
            self.add("snapshot", name, taken, n, duration=copy)
        if complete is not None:
            self.add("complete", name, complete, n, rows=rows, bytes=8 * rows)
        if begin is not None and end is not None:
            self.add("part", name, end, n, duration=end - begin, bytes=bytes)
        return self

    def work(
        self, task: str, time: float, *, queued: Sequence[int] = (0,), lasted: float = 0, **totals: float
    ) -> Story:
        """A sample: milliseconds ``busy``, ``waiting``, ``blocked``, ``full`` since the start, and ``rows`` in and out.

        ``queued`` are the rows in each input; ``lasted`` is the time of the step that ended then, or goes on.
        """
        names = ("busy", "waiting", "blocked", "full")
        times = [round(totals.get(name, 0) * MS) for name in names]
        rows = [int(totals.get("rows", 0)), int(totals.get("out", 0))]
        fields = {"duration": lasted} if lasted else {}
        return self.add("work", f"{task}[0]", time, totals=[*rows, *times, *queued], **fields)

    def events(self, order: Sequence[int] | None = None) -> Events:
        """The events in the order of the table."""
        columns = schema()
        rows = sorted(self.rows, key=lambda row: (row["attempt"], row["time"], row["seq"]))
        kinds = {kind.label for kind in Kind}
        assert {row["kind"] for row in rows} <= kinds, "an event has a kind that there is not"
        arrays = [pa.array([row.get(name) for row in rows], columns.field(name).type) for name in columns.names]
        table = pa.Table.from_arrays(arrays, schema=columns)
        return Events(table.replace_schema_metadata(self.recorded.metadata()), self.missed)
