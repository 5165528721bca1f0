"""The judge of the demonstration must not be lenient: every kind of wrong result is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from dataflow.checkpointing import Mode
from dataflow.demo.flights import FlightFiles
from dataflow.demo.job import AGGREGATE, SINK
from dataflow.demo.oracle import Delay, departed, differences
from dataflow.demo.verdict import judge
from dataflow.events import Data
from dataflow.runtime.parts import ChannelState, Duplicates
from dataflow.runtime.restore import RestoreReport

if TYPE_CHECKING:
    from tests.demo.conftest import Shown

WANTED = {("JFK", "B6"): Delay(3, 12.5), ("LGA", "UA"): Delay(1, 0.0)}


def _reported(rows: pa.Table, count: int) -> RestoreReport:
    duplicates = [Duplicates(AGGREGATE, f"{AGGREGATE}[0]", "a channel", count, rows)] if count else []
    return RestoreReport(1, "here", Mode.ALIGNED, finished=False, duplicates=duplicates)


def _flowing(rows: pa.Table) -> list[ChannelState]:
    return [ChannelState(AGGREGATE, f"{AGGREGATE}[0]", "a channel", [Data(batch, 1) for batch in rows.to_batches()])]


def _failures(shown: Shown, mode: str, stored: int, counted: int, in_flight: int = 1) -> Sequence[str]:
    """The verdict on the undisturbed output, as if it came from a restore that reported so many rows."""
    folder = shown.folder / "flights"
    files = FlightFiles(str(folder / "fast.parquet"), str(folder / "slow.parquet"), 30_000, 10_000, 0)
    rows = departed(files)
    undisturbed = shown.folder / mode / "undisturbed" / "output" / SINK
    report = _reported(rows.slice(0, stored), counted)
    report = replace(report, in_flight=_flowing(rows.slice(0, in_flight)))
    return judge(Mode(mode), undisturbed, undisturbed, rows, report).failures


def test_an_aligned_run_without_duplicates_is_right(shown: Shown) -> None:
    assert not _failures(shown, "aligned", 0, 0)


def test_an_aligned_run_with_duplicates_is_wrong(shown: Shown) -> None:
    assert _failures(shown, "aligned", 2, 2) == ["expected no row to be delivered twice, the restore reported 2"]


def test_a_persisted_run_without_rows_in_flight_shows_nothing(shown: Shown) -> None:
    assert not _failures(shown, "unaligned-persisted", 0, 0, in_flight=1)
    (failure,) = _failures(shown, "unaligned-persisted", 0, 0, in_flight=0)
    assert failure == "expected rows in flight in the checkpoint, the restore re-injected none"


def test_an_unaligned_run_that_reports_nothing_is_wrong(shown: Shown) -> None:
    assert "expected duplicates" in _failures(shown, "unaligned", 0, 0)[0]


def test_an_unaligned_run_that_stored_only_a_sample_is_wrong(shown: Shown) -> None:
    assert "the restore reported 9 and stored 2" in _failures(shown, "unaligned", 2, 9)[0]


def test_an_unaligned_run_that_reports_rows_it_did_not_count_is_wrong(shown: Shown) -> None:
    apart, total = _failures(shown, "unaligned", 2, 2)
    assert "differ in" in apart
    assert total == "the restored run counted 0 flights too many, the restore reported 2"


@pytest.mark.parametrize(
    "found",
    [
        {},
        {**WANTED, ("EWR", "DL"): Delay(1, 1.0)},
        {**WANTED, ("JFK", "B6"): Delay(4, 12.5)},
        {**WANTED, ("JFK", "B6"): Delay(3, 12.5 * (1 + 2e-9))},
        {**WANTED, ("LGA", "UA"): Delay(1, float("nan"))},
    ],
)
def test_results_that_differ_are_told_apart(found: dict[tuple[str, str], Delay]) -> None:
    assert differences(found, WANTED)


def test_means_may_differ_by_rounding() -> None:
    assert not differences({**WANTED, ("JFK", "B6"): Delay(3, 12.5 * (1 + 1e-12))}, WANTED)
