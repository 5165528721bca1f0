"""From the figures of children to medians, tables beside their goals, and a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.charts import Chart, Mark
from benchmarks.conditions import conditions
from benchmarks.deltas.child import BASE
from benchmarks.deltas.job import PARALLELISM

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Measured", "chart", "contents", "described", "tables"]

Figures = Mapping[str, Any]

FEW_BYTES = 4096
"""Goal for the objects of a task of which nothing changed."""
SHARES = {0.1: 0.01}
"""Goals for the bytes of a delta, as a share of a base, by the percentage of keys that changed."""
STALL = 0.001
"""Goal for the snapshot step, in seconds."""
RESTORE = 3.0
"""Goal for a restore, in seconds."""
OVERHEADS = {1_000: 0.02, 100: 0.1}
"""Goals for the share of a job's CPU time that checkpoints take, by milliseconds between them."""


@dataclass
class Measured:
    """The figures of children.

    Attributes:
        states: the checkpoints of one task: of the base, and by the percentage of keys that changed.
        restores: repeated restores.
        pairs: by interval, runs without and with checkpoints, measured one after the other.
    """

    states: dict[str | float, Sequence[Figures]] = field(default_factory=dict)
    restores: list[Figures] = field(default_factory=list)
    pairs: dict[int, list[tuple[Figures, Figures]]] = field(default_factory=dict)


def described(measured: Measured, settings: Figures, arguments: Sequence[str]) -> dict[str, Any]:
    """Return all figures as JSON values: medians, every round, and where they were measured."""
    return {
        "command": ["python", "-m", "benchmarks.deltas", *arguments],
        **conditions(("pyarrow", "numba", "numpy")),
        "settings": dict(settings),
        "states": [_state(changed, taken) for changed, taken in measured.states.items()],
        "restore": {**_medians(measured.restores), "rounds": measured.restores} if measured.restores else None,
        "overhead": [_overhead(interval, pairs) for interval, pairs in measured.pairs.items()],
    }


def _state(changed: str | float, taken: Sequence[Figures]) -> dict[str, Any]:
    """Return the medians of checkpoints; of the memory that of the first one, because allocators keep what it took."""
    most = max(one["freeze"] for one in taken)
    return {"changed": changed, **_medians(taken), "above": taken[0]["above"], "freeze_most": most, "rounds": taken}


def _overhead(interval: int, pairs: Sequence[tuple[Figures, Figures]]) -> dict[str, Any]:
    return {
        "interval": interval,
        **_medians([with_ for _, with_ in pairs]),
        "wall_ratio": median([without["rows_per_second"] / with_["rows_per_second"] for without, with_ in pairs]),
        "cpu_ratio": median([with_["cpu_ns_per_row"] / without["cpu_ns_per_row"] for without, with_ in pairs]),
        "pairs": [list(pair) for pair in pairs],
    }


def _medians(rounds: Sequence[Figures]) -> dict[str, float]:
    return {name: median([one[name] for one in rounds]) for name in rounds[0]}


def tables(found: Figures) -> list[Table]:
    """Return a table for each part that was measured."""
    from rich.table import Table

    made = []
    for head, rows in contents(found):
        made.append(Table(*head))
        for cells in rows:
            made[-1].add_row(*cells)
    return made


def contents(found: Figures) -> list[tuple[Sequence[str], list[list[str]]]]:
    """Return head and rows of each table: checkpoints of one task, the restore, and the overhead."""
    keys = f"{found['settings']['keys']:,}"
    made: list[tuple[Sequence[str], list[list[str]]]] = []
    if found["states"]:
        head = (f"changed, of {keys} keys", "bytes", "of the base", "goal", "freeze, ms (most)", "goal")
        base = next((one["size"] for one in found["states"] if one["changed"] == BASE), None)
        rows = [_state_cells(one, base) for one in found["states"]]
        made.append(((*head, "written in, ms", "CPU of the writer, ms", "memory above the state, MiB"), rows))
    if found["restore"]:
        one = found["restore"]
        cells = [keys, f"{one['size'] / 1e6:,.0f}", f"{one['state']:.2f}", f"{one['started']:.2f}", _goal(RESTORE, "s")]
        head = (f"restored keys, parallelism {PARALLELISM}", "MB", "state restored after, s", "job started after, s")
        made.append(((*head, "goal"), [cells]))
    if found["overhead"]:
        head = ("interval, ms", "checkpoints", "snapshot steps, % of CPU", "writers, % of CPU", "together, %", "goal")
        rows = [_overhead_cells(one) for one in found["overhead"]]
        made.append(((*head, "time a row, with / without", "CPU a row, with / without"), rows))
    return made


def _state_cells(one: Figures, base: float | None) -> list[str]:
    changed = one["changed"]
    goal = _goal(SHARES[changed] * 100, "%") if changed in SHARES else ""
    return [
        "all: the base" if changed == BASE else f"{changed:g} %",
        f"{one['size']:,.0f}",
        f"{one['size'] / base:.3%}" if base else "",
        f"{_goal(FEW_BYTES, 'bytes')} and the manifest" if changed == 0 else goal,
        f"{one['freeze'] * 1e3:.2f} ({one['freeze_most'] * 1e3:.2f})",
        _goal(STALL * 1e3, "ms"),
        f"{one['write'] * 1e3:,.0f}",
        f"{one['write_cpu'] * 1e3:,.0f}",
        f"{one['above'] / 2**20:,.0f}",
    ]


def _overhead_cells(one: Figures) -> list[str]:
    goal = OVERHEADS.get(one["interval"])
    failed = f" ({one['failed']:.0f} failed)" if one["failed"] else ""
    shares = [one["snapshots"], one["writers"], one["snapshots"] + one["writers"]]
    return [
        f"{one['interval']:,}",
        f"{one['checkpoints']:.0f}{failed}",
        *[f"{100 * share:.2f}" for share in shares],
        "" if goal is None else _goal(goal * 100, "%"),
        f"{one['wall_ratio']:.3f}",
        f"{one['cpu_ratio']:.3f}",
    ]


def _goal(most: float, unit: str) -> str:
    return f"at most {most:,g} {unit}"


def chart(found: Figures) -> Chart:
    """Return the chart of bytes over the percentage of changed keys, beside the base."""
    deltas = [one for one in found["states"] if one["changed"] != BASE]
    bases = [one for one in found["states"] if one["changed"] == BASE]
    series = {"delta": [Mark(x, one["size"] / 1e6) for x, one in enumerate(deltas)]}
    series["base"] = [Mark(x, one["size"] / 1e6) for one in bases for x in range(len(deltas))]
    ticks: dict[float, str] = {x: f"{one['changed']:g} %" for x, one in enumerate(deltas)}
    title = f"A checkpoint of {found['settings']['keys']:,} keys"
    return Chart(title, "keys changed since the last one", "MB", ticks, series, log=True)
