"""The judge of the demonstration must not be lenient: every kind of wrong result is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from dataflow.compare.options import RunnerName
from dataflow.compare.trial import LocalTrial
from dataflow.contracts.checkpointing import Mode
from dataflow.demo.flights import prepare
from dataflow.demo.job import AGGREGATE, SINK, subject
from dataflow.demo.oracle import Delay, departed, differences
from dataflow.demo.verdict import judge
from dataflow.protocol.events import Data
from dataflow.runtime.restore.find_checkpoint import RestoreReport
from dataflow.runtime.task.parts import ChannelState, Duplicates

WANTED = {("JFK", "B6"): Delay(3, 12.5), ("LGA", "UA"): Delay(1, 0.0)}


@dataclass(frozen=True)
class Undisturbed:
    """A run of the job that nothing disturbs: the flights that departed, and its output, the same in every mode."""

    rows: pa.Table
    output: Path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("verdict")
    files = prepare(folder / "flights", 40_000)
    unpaced = subject(folder / "flights", RunnerName.SPARK)
    trial = LocalTrial(subject=unpaced, folder=str(folder), parallelism=2, mode="aligned", every="1h", credit=4)
    trial.run("never")
    return Undisturbed(departed(files), trial.output(SINK))


def _reported(rows: pa.Table, count: int) -> RestoreReport:
    duplicates = [Duplicates(AGGREGATE, f"{AGGREGATE}[0]", "a channel", count, rows)] if count else []
    return RestoreReport(1, "here", Mode.ALIGNED, finished=False, duplicates=duplicates)


def _flowing(rows: pa.Table) -> list[ChannelState]:
    return [ChannelState(AGGREGATE, f"{AGGREGATE}[0]", "a channel", [Data(batch, 1) for batch in rows.to_batches()])]


def _failures(run: Undisturbed, mode: str, stored: int, counted: int, in_flight: int = 1) -> Sequence[str]:
    """The verdict on the undisturbed output, as if it came from a restore that reported so many rows."""
    rows, output = run.rows, run.output
    report = _reported(rows.slice(0, stored), counted)
    report = replace(report, in_flight=_flowing(rows.slice(0, in_flight)))
    return judge(Mode(mode), output, output, rows, report).failures


def test_an_aligned_run_without_duplicates_is_right(undisturbed: Undisturbed) -> None:
    assert not _failures(undisturbed, "aligned", 0, 0)


def test_an_aligned_run_with_duplicates_is_wrong(undisturbed: Undisturbed) -> None:
    assert _failures(undisturbed, "aligned", 2, 2) == ["expected no repeated delivery, the restore reported 2"]


def test_a_persisted_run_without_rows_in_flight_shows_nothing(undisturbed: Undisturbed) -> None:
    assert not _failures(undisturbed, "unaligned-persisted", 0, 0, in_flight=1)
    (failure,) = _failures(undisturbed, "unaligned-persisted", 0, 0, in_flight=0)
    assert failure == "expected in-flight rows in the checkpoint, but the restore put none back"


def test_an_unaligned_run_that_reports_nothing_is_wrong(undisturbed: Undisturbed) -> None:
    assert "expected repeated deliveries" in _failures(undisturbed, "unaligned", 0, 0)[0]


def test_an_unaligned_run_that_stored_only_a_sample_is_wrong(undisturbed: Undisturbed) -> None:
    assert "the restore reported 9 and stored 2" in _failures(undisturbed, "unaligned", 2, 9)[0]


def test_an_unaligned_run_that_reports_rows_it_did_not_count_is_wrong(undisturbed: Undisturbed) -> None:
    apart, total = _failures(undisturbed, "unaligned", 2, 2)
    assert "differ in" in apart
    assert total == (
        "the restored run counted 0 more deliveries than rows, but the restore reported 2 repeated deliveries"
    )


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
