"""The report of the demo: the comparison of modes, and the flights that each restored run counted."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataflow.compare.closing import conclude
from dataflow.compare.mode_report import ModeReport
from dataflow.compare.report import CompareReport
from dataflow.compare.tables import ReportTable
from dataflow.contracts.checkpointing import Mode

__all__ = ["DemoReport", "FlightCount"]

_PROOF_LEGEND = {
    "rows": "flights in the input that departed; each flight is one row, however often it is delivered",
    "deliveries": "flights that the restored job counted; a flight that is delivered twice is counted twice",
    "repeated": "deliveries minus rows; it must be 0 for exactly once",
    "reported": "repeated deliveries that the restore reported; it must equal the column before",
    "promise": "held, if repeated and reported are as promised and the mean delays equal pyarrow's",
}


@dataclass(frozen=True, slots=True)
class FlightCount:
    """The flights that a restored job counted.

    Attributes:
        rows: flights in the input that departed.
        deliveries: flights that the job counted, each repeated delivery included.
        reported: repeated deliveries that the restore reported.
    """

    rows: int
    deliveries: int
    reported: int

    @property
    def repeated(self) -> int:
        """Deliveries beyond one per row; below zero if rows were lost."""
        return self.deliveries - self.rows

    def to_json(self) -> dict[str, int]:
        """Return the figures by name."""
        return {
            "rows": self.rows,
            "deliveries": self.deliveries,
            "repeated": self.repeated,
            "reported": self.reported,
        }


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The result of the demo.

    Attributes:
        compared: the comparison of the modes.
        read: flights in the input.
        cancelled: flights in the input without a departure, which the job drops.
        counts: the flights that the restored job counted, by mode; modes that were not restored have none.
        results: the CSV file with the result of each mode.
        page: the file with this report as a page, with charts and a timeline of each mode.
    """

    compared: CompareReport
    read: int
    cancelled: int
    counts: Mapping[Mode, FlightCount]
    results: Path
    page: Path

    @property
    def duration(self) -> int:
        """Microseconds of the whole demo, without the preparation of its input."""
        return self.compared.duration

    @property
    def problems(self) -> list[str]:
        """The failed checks, one sentence each."""
        return self.compared.problems

    @property
    def headline(self) -> str:
        """The input in one sentence."""
        departed = self.read - self.cancelled
        return f"{self.read:,} flights read, {self.cancelled:,} cancelled flights dropped, {departed:,} to count"

    @property
    def tables(self) -> list[ReportTable]:
        """The cost of checkpoints, the recoveries, and the count that proves the promises."""
        rows = [self._proof_cells(mode) for mode in self.compared.modes]
        proof = ReportTable("Proof, at the operator that counts flights in the restored run:", rows, _PROOF_LEGEND)
        return [*self.compared.tables, proof]

    def _proof_cells(self, mode: ModeReport) -> dict[str, str]:
        count = self.counts.get(mode.mode)
        figures = {} if count is None else count.to_json()
        names = ("rows", "deliveries", "repeated", "reported")
        cells = {name: f"{figures[name]:,}" if figures else "-" for name in names}
        return {"mode": str(mode.mode), **cells, "promise": mode.promise.value}

    @property
    def closing(self) -> list[str]:
        """The conclusions in words, one paragraph each, all derived from the figures."""
        evidence = {mode: _explain(count) for mode, count in self.counts.items()}
        return conclude(self.compared.modes, evidence)

    def where_to_look(self) -> list[str]:
        """Return lines that name the files of the demo, and a command that opens the results."""
        code = f"import pandas; print(pandas.read_csv({json.dumps(str(self.results))}).to_string())"
        folder = self.compared.folder
        lines = [
            f"Report with charts and a timeline of each mode, to open in a browser: {self.page}",
            f"Results, one line per mode, airport and airline: {self.results}",
            f"To open them: {shlex.join([sys.executable, '-c', code])}",
            f"Input, output, checkpoints and logs of every run: {folder}",
        ]
        if killed := next((mode.killed for mode in self.compared.modes if mode.killed), None):
            checkpoints = shlex.join([sys.executable, "-m", "dataflow", "checkpoints", str(killed / "checkpoints")])
            lines.append(f"To list the checkpoints of a killed run, as they are after its restore: {checkpoints}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return all values, with times in microseconds."""
        return {
            "flights_read": self.read,
            "cancelled_dropped": self.cancelled,
            "counted": {mode.value: count.to_json() for mode, count in self.counts.items()},
            "results": str(self.results),
            "page": str(self.page),
            **self.compared.to_json(),
        }


def _explain(count: FlightCount) -> str:
    """Return the count in one sentence without a full stop.

    >>> _explain(FlightCount(rows=100, deliveries=100, reported=0))
    'It counted 100 deliveries for 100 rows, none of them lost or repeated, and the restore reported 0 repeated'
    >>> _explain(FlightCount(rows=100, deliveries=103, reported=3))
    'It counted 103 deliveries for 100 rows, 3 of them repeated, and the restore reported 3 repeated'
    >>> _explain(FlightCount(rows=100, deliveries=98, reported=0))
    'It counted 98 deliveries for 100 rows, so 2 rows were lost, and the restore reported 0 repeated'
    """
    start = f"It counted {count.deliveries:,} deliveries for {count.rows:,} rows"
    if count.repeated < 0:
        middle = f"so {-count.repeated:,} rows were lost"
    else:
        middle = f"{count.repeated:,} of them repeated" if count.repeated else "none of them lost or repeated"
    return f"{start}, {middle}, and the restore reported {count.reported:,} repeated"
