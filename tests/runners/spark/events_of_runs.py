"""The events of a run on Spark, as tests compare them, and the laws that they keep."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dataflow.runners.run_result import RunResult

__all__ = ["check_events", "outcomes", "rows_of_kind"]


def rows_of_kind(events: Any, kind: str) -> list[dict[str, Any]]:
    """The events of a kind, by attempt and time."""
    return [row for row in events.table.to_pylist() if row["kind"] == kind]


def outcomes(events: Any) -> list[tuple[int, str, int]]:
    """What became of checkpoints, by attempt, in order."""
    kinds = ("restored", "triggered", "durable", "committed", "failed", "commit_failed")
    rows = sorted(events.table.to_pylist(), key=lambda row: (row["attempt"], row["task"], row["seq"]))
    return [(row["attempt"], row["kind"], row["checkpoint"]) for row in rows if row["kind"] in kinds]


def check_events(result: RunResult) -> None:
    """The events are those of the result: its guarantee, its checkpoints, and its rows at each operator that begins a
    task. Times are in order, and a task is busy at most as long as the micro-batch lasts.
    """
    events = result.events
    assert (events.recorded.guarantee, events.missed) == (result.guarantee.value, 0)
    assert events.recorded.mode == ("" if result.mode is None else result.mode.value)
    durable = {row["checkpoint"]: row for row in rows_of_kind(events, "durable")}
    for record in result.checkpoints:
        assert durable[record.checkpoint]["duration"] == record.duration
    triggered = Counter((row["attempt"], row["checkpoint"]) for row in rows_of_kind(events, "triggered"))
    ended = Counter(
        (row["attempt"], row["checkpoint"]) for kind in ("durable", "failed") for row in rows_of_kind(events, kind)
    )
    assert triggered == ended
    heads = {vertex.name: vertex.operators[0] for vertex in events.plan.vertices}
    rows_in, samples = Counter[str](), dict[tuple[int, str], dict[str, Any]]()
    for row in rows_of_kind(events, "work"):
        before = samples.get((row["attempt"], row["task"]))
        if before is not None:
            assert row["seq"] > before["seq"]
            assert row["time"] >= before["time"]
            busy, busy_before = row["totals"][2], before["totals"][2]
            assert busy is None or busy - busy_before <= row["time"] - before["time"]
        samples[row["attempt"], row["task"]] = row
    for (attempt, task), row in samples.items():
        if result.micro_batches is None and attempt <= result.restarts:
            continue  # a batch computes all again
        rows_in[heads[task.rpartition("[")[0]]] += row["totals"][0]
        assert row["totals"][3:] == [None, None, None]
    assert rows_in == Counter({name: result.operator(name).rows_in for name in rows_in})
    assert [row["detail"] for row in rows_of_kind(events, "state")][-1] == result.state.value
    assert all(row["channel"] is None for row in events.table.to_pylist())
