"""From rounds to figures: medians of each figure, as JSON and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.conditions import conditions
from benchmarks.latency.child import BARE, FILTER, IDLE, KEYED, LONE, QUEUED, TIMED, Figures, Task

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["contents", "described", "tables"]

TITLES = {
    FILTER: "filter and compute",
    KEYED: "count and maximum by key, after a shuffle",
    QUEUED: "batches that queue up",
    TIMED: "the same, with a watermark after each batch",
    LONE: "batches that arrive one by one, every 10 ms",
    BARE: "the same, aggregated by NumPy in one thread without an engine",
    IDLE: "watches a directory without new files",
}


def described(measured: Mapping[Task, Sequence[Figures]], arguments: Sequence[str]) -> dict[str, Any]:
    """Return all figures as JSON values, and where they were measured."""
    return {
        "command": ["python", "-m", "benchmarks.latency", *arguments],
        **conditions(("pyarrow", "numba", "numpy")),
        "tasks": [
            {
                **asdict(task),
                "title": TITLES[task.kind],
                "medians": _medians(rounds),
                "rounds": list(map(asdict, rounds)),
            }
            for task, rounds in measured.items()
        ],
    }


def _medians(rounds: Sequence[Figures]) -> dict[str, float]:
    by_name: dict[str, list[float]] = {}
    for one in rounds:
        for name, value in asdict(one).items():
            if value is not None:
                by_name.setdefault(name, []).append(value)
    return {name: median(values) for name, values in by_name.items()}


def tables(found: Mapping[str, Any]) -> list[Table]:
    """Return a table of latencies and one of costs, as far as they were measured."""
    from rich.table import Table

    made = []
    for head, rows in contents(found):
        if rows:
            made.append(Table(*head))
            for cells in rows:
                made[-1].add_row(*cells)
    return made


def contents(found: Mapping[str, Any]) -> list[tuple[Sequence[str], list[list[str]]]]:
    """Return head and rows of the table of latencies, and of that of costs."""
    late: list[list[str]] = []
    costs: list[list[str]] = []
    for task in found["tasks"]:
        figures = task["medians"]
        if task["kind"] in (FILTER, KEYED):
            times = [f"{figures[name]:.1f}" for name in ("p50", "p99", "p999", "most")]
            late.append([task["title"], f"{task['rate']:,.0f}", *times, f"{figures['cores']:.2f}"])
        else:
            idle = task["kind"] == IDLE
            cost = f"{100 * figures['cores']:.2f} % of a core" if idle else f"{figures['per_batch']:.0f} us a batch"
            costs.append([task["title"], str(task["parallelism"]), cost])
    return [
        (("latency, ms", "rows a second", "p50", "p99", "p99.9", "most", "cores"), late),
        (("cost", "parallelism", "CPU"), costs),
    ]
