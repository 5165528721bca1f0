"""From rounds to figures: means with the half-width of their 95 % confidence interval, a table and charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.charts import Chart, Mark
from benchmarks.checkpoints.job import BATCH_ROWS
from benchmarks.checkpoints.measuring import Plan, Round, run_of
from benchmarks.checkpoints.settings import FACTORS, NONE, VARIANTS, Point
from benchmarks.conditions import conditions
from benchmarks.student import Estimate, estimate

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["charts", "described", "table"]

FIGURES = {
    "rows_per_second": "rows/s",
    "cpu_ns_per_row": "CPU ns/row",
    "checkpoints_per_second": "checkpoints/s",
    "duration": "checkpoint, ms",
    "hold": "hold, ms",
    "size": "size, bytes",
    "in_flight": "rows in flight, bytes",
    "peak_rss": "peak RSS, bytes",
}
PACKAGES = ("pyarrow", "numba", "numpy")


def described(plan: Plan, rounds: Sequence[Round], arguments: Sequence[str]) -> dict[str, Any]:
    """Return all figures as JSON values: means with half-widths, every round, and where they were measured."""
    return {
        "command": ["python", "-m", "benchmarks.checkpoints", *arguments],
        "settings": {
            "variants": list(plan.variants),
            "repeats": plan.repeats,
            "seconds": plan.seconds,
            "batch_rows": BATCH_ROWS,
        },
        **conditions(PACKAGES),
        "points": [_point(point, plan, rounds) for point in plan.points],
        "rounds": [
            [
                {"setting": asdict(setting), "variant": variant, **asdict(figures)}
                for (setting, variant), figures in r.items()
            ]
            for r in rounds
        ],
    }


def _point(point: Point, plan: Plan, rounds: Sequence[Round]) -> dict[str, Any]:
    variants = {variant: _variant(point, variant, rounds) for variant in plan.variants}
    return {"factor": point.factor, "level": point.level, "setting": asdict(point.setting), "variants": variants}


def _variant(point: Point, variant: str, rounds: Sequence[Round]) -> dict[str, Any]:
    run, base = run_of(point.setting, variant), run_of(point.setting, NONE)
    figures = {name: _estimate([getattr(r[run], name) for r in rounds]) for name in FIGURES}
    if variant != NONE and all(base in r for r in rounds):
        lost = [1 - r[run].rows_per_second / r[base].rows_per_second for r in rounds]
        each = [
            1e3 * share / r[run].checkpoints_per_second if r[run].checkpoints_per_second else None
            for share, r in zip(lost, rounds, strict=True)
        ]
        figures |= {"lost_percent": _estimate([100 * share for share in lost]), "lost_ms_each": _estimate(each)}
    return {**figures, "failed": sum(r[run].failed for r in rounds)}


def _estimate(values: Sequence[float | None]) -> dict[str, Any] | None:
    """Return the estimate over the rounds that have a value; None if no round has one."""
    known = [value for value in values if value is not None]
    return asdict(estimate(known)) if known else None


def table(figures: Mapping[str, Any]) -> Table:
    """Return one row per point and variant of what `described` returned."""
    from rich.table import Table

    texts: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
        "M rows/s": lambda one: _text(one["rows_per_second"], 1e-6, 2),
        "lost, %": lambda one: _text(one.get("lost_percent"), 1, 1),
        "lost, ms each": lambda one: _text(one.get("lost_ms_each"), 1, 1),
        "CPU ns/row": lambda one: _text(one["cpu_ns_per_row"], 1, 0),
        "per s": lambda one: _text(one["checkpoints_per_second"], 1, 1) if one["duration"] else "",
        "checkpoint, ms": lambda one: _text(one["duration"], 1, 1),
        "hold, ms": lambda one: _text(one["hold"], 1, 1),
        "MB": lambda one: _text(one["size"], 1e-6, 1),
    }
    rows = Table()
    for name in ("factor", "variant", *texts):
        rows.add_column(name, justify="left" if name in ("factor", "variant") else "right", no_wrap=name == "variant")
    for point in figures["points"]:
        label = f"{point['factor']} {point['level']:,}"
        for variant, one in point["variants"].items():
            failed = f" ({one['failed']} failed)" if one["failed"] else ""
            rows.add_row(label, variant + failed, *[text(one) for text in texts.values()])
            label = ""
        rows.add_section()
    return rows


def _text(value: Mapping[str, Any] | None, factor: float, digits: int) -> str:
    if value is None:
        return ""
    half_width = None if value["half_width"] is None else value["half_width"] * factor
    return Estimate(value["mean"] * factor, half_width, value["repeats"]).text(digits)


def charts(figures: Mapping[str, Any]) -> dict[str, Chart]:
    """Return two charts per factor, by the name of their file: the throughput, and the time of a checkpoint."""
    made = {}
    for factor in dict.fromkeys([point["factor"] for point in figures["points"]]):
        points = [point for point in figures["points"] if point["factor"] == factor]
        made[f"{factor}-throughput"] = _chart(points, "Throughput", "M rows/s", "rows_per_second", 1e-6, log=False)
        made[f"{factor}-duration"] = _chart(points, "Time of a checkpoint", "ms", "duration", 1.0, log=True)
    return made


def _chart(points: Sequence[Mapping[str, Any]], title: str, unit: str, name: str, factor: float, *, log: bool) -> Chart:
    series: dict[str, list[Mark]] = {variant: [] for variant in VARIANTS}
    for x, point in enumerate(points):
        for variant, one in point["variants"].items():
            if one[name] is not None:
                beside = (VARIANTS.index(variant) - (len(VARIANTS) - 1) / 2) * 0.03  # so that error bars do not overlap
                half_width = (one[name]["half_width"] or 0.0) * factor
                series[variant].append(Mark(x + beside, one[name]["mean"] * factor, half_width))
    ticks: dict[float, str] = {x: f"{point['level']:,}" for x, point in enumerate(points)}
    return Chart(title, FACTORS[points[0]["factor"]].title, f"{title.lower()}, {unit}", ticks, series, log)
