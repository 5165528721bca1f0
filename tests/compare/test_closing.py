"""The closing paragraph follows from the figures, whatever they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dataflow.compare.closing import conclude
from dataflow.compare.mode_report import Cost, ModeReport, Promise, Restoration
from dataflow.contracts.checkpointing import Mode
from dataflow.runtime.restore.report import RestoreReport

COST = Cost(7, 0, 1_500, 12_000, {"a -> b": 40, "c -> b": 2}, 9, 1_234, 3_000_000, {})
RESTORED = Restoration(in_progress=6, report=RestoreReport(5, "here", Mode.ALIGNED, finished=False), after=3)
ALIGNED = ModeReport(Mode.ALIGNED, Path("here"), COST, 1, Path("there"), RESTORED, "equals the run without a kill")
UNALIGNED = replace(ALIGNED, mode=Mode.UNALIGNED, cost=replace(COST, median=700, blocked={}, in_flight=0))


def test_a_mode_that_kept_its_promise_is_described_with_its_recovery_and_its_cost() -> None:
    assert conclude([ALIGNED]) == [
        "1 of 1 tested modes kept their promise after the kill.",
        "aligned promised exactly once: held. Killed while checkpoint 6 was written, it resumed from checkpoint 5. "
        "Its output: equals the run without a kill. Cost: a checkpoint took 1.5 ms (median), inputs were blocked for "
        "42 us in all, up to 9 in-flight rows were stored.",
    ]


def test_a_mode_that_broke_its_promise_is_named_with_the_failed_checks() -> None:
    broken = replace(ALIGNED, failures=["expected no repeated delivery, the restore reported 3"])
    summary, first, second, _ = conclude([broken, UNALIGNED])
    assert summary == "1 of 2 tested modes kept their promise after the kill."
    assert first.startswith("aligned promised exactly once: FAILED. ")
    assert "Failed checks: expected no repeated delivery, the restore reported 3." in first
    assert "equals the run without a kill" not in first
    assert second.startswith("unaligned promised at least once: held. ")


def test_evidence_is_shown_with_the_failed_checks() -> None:
    broken = replace(ALIGNED, failures=["they differ"])
    paragraph = conclude([broken], {Mode.ALIGNED: "It counted 3 deliveries for 2 rows"})[1]
    assert "It counted 3 deliveries for 2 rows. Failed checks: they differ." in paragraph


def test_a_mode_that_could_not_be_killed_is_not_tested() -> None:
    missed = replace(ALIGNED, restoration=None, failures=["in 5 attempts no process could be killed"])
    summary, paragraph, *_ = conclude([missed, UNALIGNED])
    assert summary.endswith("1 of 1 tested modes kept their promise after the kill, and 1 could not be tested.")
    assert "not tested. Nothing was restored: in 5 attempts no process could be killed." in paragraph


def test_without_a_kill_no_promise_was_tested() -> None:
    untouched = replace(ALIGNED, restoration=None, result="not killed")
    assert conclude([untouched])[0] == "No promise was tested."


def test_a_start_from_the_beginning_is_said() -> None:
    again = replace(ALIGNED, restoration=Restoration(in_progress=1, report=None, after=3))
    assert "Killed before any checkpoint was complete, it started from the beginning." in conclude([again])[1]


@pytest.mark.parametrize(
    ("mode", "promise"),
    [
        (ALIGNED, Promise.HELD),
        (replace(ALIGNED, failures=["so"]), Promise.FAILED),
        (replace(ALIGNED, checked=False), Promise.NOT_TESTED),
        (replace(ALIGNED, restoration=None, failures=["so"]), Promise.NOT_TESTED),
    ],
)
def test_a_promise_is_held_only_if_a_wrong_output_would_have_been_noticed(mode: ModeReport, promise: Promise) -> None:
    assert mode.promise is promise


def test_costs_are_compared_by_their_figures() -> None:
    last = conclude([ALIGNED, replace(UNALIGNED, cost=replace(UNALIGNED.cost, state_bytes=5_000))])[-1]
    assert last == (
        "Shortest checkpoints (median): unaligned, 700 us; longest: aligned, 1.5 ms. "
        "Smallest checkpoints: aligned, 1,234 bytes; largest: unaligned, 5,000 bytes."
    )
