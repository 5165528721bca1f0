"""``python -m benchmarks.published FOLDER``: the tables of docs/benchmarks.md, from the JSON of the benchmarks.

Every figure on that page comes from a file ``docs/figures/NAME.json``, which a benchmark wrote with ``--json``. This
command copies the files of FOLDER there, without the single rounds, and the charts that the page shows. Then it writes
the tables into the page, between ``<!-- figures NAME -->`` and ``<!-- end -->``. A test fails if page and files differ.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.deltas import report as deltas_report
from benchmarks.growth.families import DUCKDB, OURS
from benchmarks.growth.report import exponent_text, memory
from benchmarks.jobs.child import TUNED
from benchmarks.latency import report as latency_report
from benchmarks.student import Estimate

__all__ = ["FIGURES", "PAGE", "SHOWN", "TABLES", "pages", "tables"]

DOCS = Path(__file__).parents[1] / "docs"
FIGURES, PAGE = DOCS / "figures", DOCS / "benchmarks.md"
SHOWN = re.compile(r"\(figures/([\w-]+\.svg)\)")
"""Charts that the page shows."""
ROUNDS = ("rounds", "pairs", "flowing", "halted")


def jobs(found: Mapping[str, Any]) -> str:
    """Return the table of whole jobs beside DuckDB and Polars."""
    head = (
        *("job", "rows of a row group", "M bids/s, ours", "M bids per CPU-second, ours / DuckDB", "ratio to DuckDB"),
        *("ratio to Polars", "tuned / ours", "peak memory (MiB), ours / DuckDB"),
    )
    rows = []
    for one in found["jobs"].values():
        ours, duckdb = one["engines"][OURS], one["engines"][DUCKDB]
        per_cpu = [f"{engine['rows_per_cpu_second'] / 1e6:.0f}" for engine in (ours, duckdb)]
        memory = [f"{engine['peak_rss'] / 2**20:.0f}" for engine in (ours, duckdb)]
        ratios = [_interval(one["ratios"][name]) for name in (DUCKDB, "polars", TUNED)]
        name = f"{one['job']}: {one['title']}"
        fast = f"{ours['rows_per_second'] / 1e6:.0f}"
        rows.append([name, f"{one['row_group']:,}", fast, " / ".join(per_cpu), *ratios, " / ".join(memory)])
    return _markdown(head, rows)


def windows(found: Mapping[str, Any]) -> str:
    """Return the table of windows, sessions, signed changes or joins beside DuckDB, without expert settings."""
    head = (
        *(
            "job",
            "M bids/s, ours",
            "M bids per CPU-second, ours",
            "beside",
            "its wall time / ours",
            "its CPU time / ours",
        ),
        "peak memory (MiB), ours / the other",
    )
    rows = []
    for one in found["jobs"].values():
        ours = one["engines"][OURS]
        for other, ratio in one["ratios"].items():
            memory = [f"{engine['peak_rss'] / 2**20:.0f}" for engine in (ours, one["engines"][other])]
            speeds = [f"{ours[speed] / 1e6:.1f}" for speed in ("rows_per_second", "rows_per_cpu_second")]
            ratios = [_interval(ratio), _interval(ratio["cpu"])]
            rows.append([f"{one['job']}: {one['title']}", *speeds, other, *ratios, " / ".join(memory)])
    return _markdown(head, rows)


def _interval(ratio: Mapping[str, float]) -> str:
    return f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"


def latency(found: Mapping[str, Any]) -> str:
    """Return the tables of latencies and of the costs of small batches and idle jobs."""
    return "\n\n".join([_markdown(head, rows) for head, rows in latency_report.contents(found)])


def growth(found: Mapping[str, Any]) -> str:
    """Return the table of exponents and largest sizes, and the sentences on memory."""
    rows = []
    for name, family in found["families"].items():
        for engine, fit in family["engines"].items():
            last = fit["points"][-1]
            goal = f"at most {family['goal']}" if family["goal"] and engine == OURS else ""
            size, peak = f"{last['size']:,}", f"{last['peak_rss'] / 2**20:,.0f} MiB"
            seconds = Estimate(**last["cpu"]).text(1)
            exponents = [exponent_text(fit["cpu_exponent"]), exponent_text(fit["wall_exponent"])]
            rows.append([name, engine, *exponents, goal, size, seconds, peak])
    head = ("exponent in", "of", "CPU", "wall", "goal", "largest size", "CPU s there", "peak memory there")
    sentences = [f"{sentence[0].upper()}{sentence[1:]}." for sentence in memory(found)]
    return "\n\n".join([_markdown(head, rows), *sentences])


def checkpoints(found: Mapping[str, Any]) -> str:
    """Return two tables with a row for each level of each factor: throughput lost, and the time of a checkpoint."""
    variants = found["settings"]["variants"]
    lost = _by_level(found, variants, "lost_percent", "throughput lost, %")
    return f"{lost}\n\n{_by_level(found, variants, 'duration', 'checkpoint, ms')}"


def _by_level(found: Mapping[str, Any], variants: Sequence[str], figure: str, title: str) -> str:
    shown = [name for name in variants if any(point["variants"][name].get(figure) for point in found["points"])]
    rows = [
        [f"{point['factor']} {point['level']:,}", *[_estimate(point["variants"][name].get(figure)) for name in shown]]
        for point in found["points"]
    ]
    return _markdown((title, *shown), rows)


def _estimate(value: Mapping[str, Any] | None) -> str:
    return "" if value is None else Estimate(**value).text(1)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def deltas(found: Mapping[str, Any]) -> str:
    """Return the tables of checkpoints of keyed state."""
    return "\n\n".join([_markdown(head, rows) for head, rows in deltas_report.contents(found)])


TABLES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "jobs": jobs,
    "windows": windows,
    "joins": windows,
    "latency": latency,
    "growth": growth,
    "growth-windows": growth,
    "growth-joins": growth,
    "checkpoints": checkpoints,
    "deltas": deltas,
}


def where(found: Mapping[str, Any]) -> str:
    """Return the sentence on how the figures were measured."""
    machine, versions = found["machine"], found["versions"]
    packages = ", ".join(f"{name} {versions[name]}" for name in ("duckdb", "polars", "pyarrow") if name in versions)
    return (
        f"`{shlex.join(found['command'])}`, commit {str(found['commit'])[:7]}: {machine['cores']} cores "
        f"({machine['processor']}), load {found['load']:.1f}, Python {versions['python']}, {packages}."
    )


def tables(name: str) -> str:
    """Return what the page says between the marks of ``name``."""
    found = json.loads((FIGURES / f"{name}.json").read_text(encoding="utf-8"))
    return f"{where(found)}\n\n{TABLES[name](found)}"


def pages(text: str) -> str:
    """Return the text of the page with the tables of the files in it."""
    for name in TABLES:
        marks = re.compile(rf"(<!-- figures {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text = marks.sub(lambda match, name=name: f"{match[1]}\n{tables(name)}\n\n{match[2]}", text)  # type: ignore[misc]
    return text


def _without_rounds(value: Any) -> Any:
    """Return JSON values without those of single rounds."""
    if isinstance(value, dict):
        return {name: _without_rounds(one) for name, one in value.items() if name not in ROUNDS}
    return [_without_rounds(one) for one in value] if isinstance(value, list) else value


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(folder: Path) -> None:
    """Publish the figures of FOLDER: NAME.json for each table of the page, and charts as SVG files."""
    FIGURES.mkdir(exist_ok=True)
    for name in TABLES:
        if (source := folder / f"{name}.json").exists():
            found = _without_rounds(json.loads(source.read_text(encoding="utf-8")))
            (FIGURES / source.name).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name in SHOWN.findall(PAGE.read_text(encoding="utf-8")):
        if (chart := folder / name).exists():
            shutil.copyfile(chart, FIGURES / name)
    PAGE.write_text(pages(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.published")
