"""From rounds to figures: exponents beside their goals, memory, tables and charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import mean
from typing import TYPE_CHECKING, Any

from benchmarks.charts import Chart, Mark
from benchmarks.conditions import conditions
from benchmarks.growth import endurance
from benchmarks.growth.families import FAMILIES, OURS, Family
from benchmarks.growth.fit import exponent
from benchmarks.growth.inputs import ROW_GROUP
from benchmarks.growth.measuring import Plan, Round
from benchmarks.student import Estimate, estimate

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["charts", "described", "exponent_text", "exponents", "memory", "sizes"]

LEAST_SHARE = 0.1
"""A size is left out of a fit if its work is less than this share of the baseline that was subtracted."""
PACKAGES = ("pyarrow", "numba", "numpy", "duckdb")


def described(
    plan: Plan, rounds: Sequence[Round], watched: endurance.Figures | None, arguments: Sequence[str]
) -> dict[str, Any]:
    """Return all figures as JSON values, and where they were measured."""
    return {
        "command": ["python", "-m", "benchmarks.growth", *arguments],
        "settings": {"repeats": plan.repeats, "row_group": ROW_GROUP},
        **conditions(PACKAGES),
        "families": {
            family.name: {
                "title": family.title,
                "goal": family.goal,
                "engines": {engine: _engine(plan, family, engine, rounds) for engine in family.engines},
            }
            for family in plan.families
        },
        "memory": None if watched is None else _memory(watched),
        "rounds": [
            [{"family": name, "size": size, "engine": engine, **asdict(one)} for (name, size, engine), one in r.items()]
            for r in rounds
        ],
    }


def _engine(plan: Plan, family: Family, engine: str, rounds: Sequence[Round]) -> dict[str, Any]:
    points = []
    used: list[tuple[int, float, float]] = []
    for size in plan.sizes[family.name]:
        figures = [r[family.name, size, engine] for r in rounds]
        work = [(one.cpu - one.baseline_cpu, one.wall - one.baseline_wall) for one in figures]
        least = LEAST_SHARE * mean([one.baseline_cpu for one in figures])
        fits = min([min(cpu, wall) for cpu, wall in work]) > 0 and mean([cpu for cpu, _ in work]) >= least
        used += [(size, cpu, wall) for cpu, wall in work] if fits else []
        points.append(
            {
                "size": size,
                "cpu": asdict(estimate([cpu for cpu, _ in work])),
                "wall": asdict(estimate([wall for _, wall in work])),
                "baseline_cpu": asdict(estimate([one.baseline_cpu for one in figures])),
                "in_fit": fits,
                "peak_rss": max(one.peak_rss for one in figures),
                "rss_before": max(one.rss_before for one in figures),
            }
        )
    fitted = {
        name: exponent([size for size, *_ in used], [times[column] for times in used])
        for column, name in ((1, "cpu_exponent"), (2, "wall_exponent"))
    }
    return {"points": points, **{name: one and asdict(one) for name, one in fitted.items()}}


def _memory(watched: endurance.Figures) -> dict[str, Any]:
    """Return the growth of the resident memory after warm-up, with the bytes kept per checkpoint apart."""
    flowing, halted = watched.flowing, watched.halted
    quarter = len(flowing) // 4
    early, late = flowing[quarter : 2 * quarter], flowing[-quarter:]
    growth = mean([mark.rss for mark in late]) - mean([mark.rss for mark in early])
    kept = mean([mark.kept for mark in late]) - mean([mark.kept for mark in early])
    last = halted[-1]
    fitted = exponent([mark.count for mark in halted], [mark.cpu for mark in halted])
    return {
        "rows": flowing[-1].count,
        "rss_after_warm_up": mean([mark.rss for mark in early]),
        "rss_growth": growth,
        "rss_growth_kept": kept,
        "rss_growth_else": growth - kept,
        "checkpoints": last.count,
        "kept_per_checkpoint": last.kept / last.count,
        "rss_growth_per_checkpoint": None
        if len(halted) < 2
        else (last.rss - halted[0].rss) / (last.count - halted[0].count),
        "cpu_ms_per_checkpoint": 1e3 * last.cpu / last.count,
        "cpu_exponent": fitted and asdict(fitted),
        "flowing": [asdict(mark) for mark in flowing],
        "halted": [asdict(mark) for mark in halted],
    }


def sizes(figures: Mapping[str, Any]) -> Table:
    """Return one row per size and engine."""
    rows = _table("family", "size", "engine", "CPU s", "wall s", "subtracted, CPU s", "in fit", "peak RSS", "before")
    for name, family in figures["families"].items():
        for engine, found in family["engines"].items():
            for point in found["points"]:
                cpu, wall, baseline = (_text(point[key]) for key in ("cpu", "wall", "baseline_cpu"))
                rss = (f"{point[key] / 2**20:,.0f} MiB" for key in ("peak_rss", "rss_before"))
                in_fit = "yes" if point["in_fit"] else "no"
                rows.add_row(name, f"{point['size']:,}", engine, cpu, wall, baseline, in_fit, *rss)
        rows.add_section()
    return rows


def exponents(figures: Mapping[str, Any]) -> Table:
    """Return one row per family and engine, with the goal beside the exponent."""
    rows = _table("exponent in", "of", "CPU", "wall", "goal", "sizes in fit")
    for name, family in figures["families"].items():
        for engine, found in family["engines"].items():
            cpu, wall = found["cpu_exponent"], found["wall_exponent"]
            goal = "" if family["goal"] is None or engine != OURS else f"at most {family['goal']}"
            rows.add_row(name, engine, exponent_text(cpu), exponent_text(wall), goal, str(cpu["sizes"]) if cpu else "0")
    if figures["memory"] is not None:
        fitted = figures["memory"]["cpu_exponent"]
        rows.add_row("checkpoints", "ours", exponent_text(fitted), "", "", str(fitted["sizes"]) if fitted else "0")
    return rows


def memory(figures: Mapping[str, Any]) -> list[str]:
    """Return sentences on the memory of the long run."""
    found = figures["memory"]
    if found is None:
        return []
    per_checkpoint = found["rss_growth_per_checkpoint"]
    measured = "" if per_checkpoint is None else f"; resident memory grew by {per_checkpoint:,.0f} bytes for each"
    return [
        f"memory at {endurance.KEYS:,} keys, {found['rows'] / 1e6:,.0f} M rows: "
        f"{found['rss_after_warm_up'] / 2**20:,.0f} MiB after warm-up, then {found['rss_growth'] / 2**20:+,.1f} MiB, "
        f"of which {found['rss_growth_kept'] / 2**20:,.2f} MiB are kept for checkpoints",
        f"checkpoints: {found['kept_per_checkpoint']:,.0f} bytes are kept for each of {found['checkpoints']:,}"
        f"{measured}; {found['cpu_ms_per_checkpoint']:.1f} ms of CPU each",
    ]


def charts(figures: Mapping[str, Any]) -> dict[str, Chart]:
    """Return a chart of CPU seconds per family, both axes logarithmic, by the name of its file."""
    return {f"growth-{name}": _chart(FAMILIES[name], family["engines"]) for name, family in figures["families"].items()}


def _chart(family: Family, engines: Mapping[str, Any]) -> Chart:
    series = {
        engine: [
            Mark(math.log10(point["size"]), point["cpu"]["mean"], point["cpu"]["half_width"] or 0.0)
            for point in found["points"]
        ]
        for engine, found in engines.items()
    }
    every = dict.fromkeys([point["size"] for found in engines.values() for point in found["points"]])
    ticks = {math.log10(size): f"{size:g}" for size in every}
    return Chart(f"Growth with {family.name}", family.title, "CPU s, baseline subtracted", ticks, series, log=True)


def _table(*names: str) -> Table:
    from rich.table import Table

    rows = Table()
    for name in names:
        left = name in ("family", "engine", "exponent in", "of")
        rows.add_column(name, justify="left" if left else "right", no_wrap=left)
    return rows


def _text(value: Mapping[str, Any]) -> str:
    return Estimate(**value).text(3)


def exponent_text(fitted: Mapping[str, Any] | None) -> str:
    """Return a fitted exponent with its half-width; "" if there is none."""
    if fitted is None:
        return ""
    return Estimate(fitted["value"], fitted["half_width"], fitted["sizes"]).text(2)
