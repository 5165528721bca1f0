"""From rounds to figures: medians, ratios with their uncertainty, and everything there is to know as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.conditions import conditions
from benchmarks.jobs.child import OURS
from benchmarks.jobs.measuring import Measured
from benchmarks.jobs.ours import JOBS
from benchmarks.jobs.rivals import RIVALS

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["described", "interval", "table"]

SEED = 20_261_121
RESAMPLES = 10_000
PACKAGES = ("pyarrow", "numba", "numpy")


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The median, and the 95 % interval of it by the percentile bootstrap (Efron 1979), seeded.

    >>> interval([1.0, 2.0, 3.0])
    (2.0, 1.0, 3.0)
    """
    drawn = np.random.default_rng(SEED).choice(np.asarray(values), (RESAMPLES, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(np.median(values)), float(low), float(high)


def described(measured: Sequence[Measured], settings: dict[str, Any], arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Every figure of every round, what follows from them, and where, with what and of what they were taken."""
    return {
        "command": ["python", "-m", "benchmarks.jobs", *arguments],
        "settings": settings,
        **conditions((*PACKAGES, *settings["rivals"])),
        "jobs": {f"{one.job}, {_layout(one)}": _job(one) for one in measured},
    }


def _job(measured: Measured) -> dict[str, Any]:
    engines = list(measured.rounds[0])
    return {
        "job": measured.job,
        "title": JOBS[measured.job].title,
        "row_group": measured.row_group,
        "rows": measured.rows,
        "repetitions": measured.repetitions,
        "engines": {engine: _engine(measured, engine) for engine in engines},
        "ratios": {rival: _ratio(measured, rival) for rival in engines if rival != OURS},
        "rounds": [{engine: asdict(found) for engine, found in figures.items()} for figures in measured.rounds],
    }


def _layout(measured: Measured) -> str:
    return f"row groups of {measured.row_group:,}"


def _engine(measured: Measured, engine: str) -> dict[str, Any]:
    found = [figures[engine] for figures in measured.rounds]
    wall, cpu = (float(np.median([getattr(one, name) for one in found])) for name in ("wall", "cpu"))
    return {
        "wall": wall,
        "cpu": cpu,
        "rows_per_second": measured.rows / wall,
        "rows_per_cpu_second": measured.rows / cpu,
        "peak_rss": max(one.peak_rss for one in found),
        "checkpoints": min(len(one.checkpoints) for one in found),
        "failed_checkpoints": sum(one.failed_checkpoints for one in found),
    }


def _ratio(measured: Measured, rival: str) -> dict[str, Any]:
    """Return the rival's wall and CPU times over ours, round by round: above 1, ours is faster, or takes less CPU."""
    walls, cpus = (
        [getattr(figures[rival], time) / getattr(figures[OURS], time) for figures in measured.rounds]
        for time in ("wall", "cpu")
    )
    return {**_described(walls), "cpu": _described(cpus)}


def _described(pairs: list[float]) -> dict[str, Any]:
    median, low, high = interval(pairs)
    return {"median": median, "low": low, "high": high, "pairs": pairs}


def table(jobs: dict[str, Any]) -> Table:
    """One row a job and engine, of what ``described`` says under "jobs"."""
    from rich.table import Table

    made = Table()
    names = ("M rows/s", "per CPU-second", "wall", "peak RSS", "checkpoints", "its wall / ours", "its CPU / ours")
    for name in ("job", "engine", *names):
        made.add_column(name, justify="left" if name in ("job", "engine") else "right")
    for job, found in jobs.items():
        for engine, figures in found["engines"].items():
            ratio = found["ratios"].get(engine)
            made.add_row(
                job if engine == OURS else "",
                engine,
                f"{figures['rows_per_second'] / 1e6:.1f}",
                f"{figures['rows_per_cpu_second'] / 1e6:.1f}",
                f"{figures['wall']:.2f} s",
                f"{figures['peak_rss'] / 2**20:.0f} MiB",
                str(figures["checkpoints"]) if engine not in RIVALS else "",
                *(_text(ratio), "" if ratio is None else _text(ratio["cpu"])),
            )
    return made


def _text(ratio: dict[str, Any] | None) -> str:
    return "" if ratio is None else f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
