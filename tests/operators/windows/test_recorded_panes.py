"""Panes recorded from another engine, replayed: the same rows and watermarks give the same panes."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dataflow.contracts.panes import AfterRows, Panes
from dataflow.contracts.window_kinds import Tumbling
from dataflow.expressions import col
from tests.operators.windows.session_panes import PanedSessions
from tests.operators.windows.triggering import Triggered
from tests.operators.windows.windowed import END

RECORDED = json.loads(Path(__file__).with_name("recorded_panes.json").read_text())
CASES = RECORDED["cases"]


def windows_of(case: Any) -> tuple[Triggered, bool]:
    """The operator of a case, and whether its results have the columns of panes."""
    (size,) = re.fullmatch(r"FixedWindows\((\d+)\)", case["window_fn"]).groups()  # type: ignore[union-attr]
    early, late = (re.search(rf"{phase}=AfterCount\((\d+)\)", case["trigger_fn"]) for phase in ("early", "late"))
    triggers = [None if match is None else AfterRows(int(match[1])) for match in (early, late)]
    options = {"panes": Panes(case["accumulation_mode"]), "lateness": case["allowed_lateness"] or 0}
    w = Triggered(Tumbling(int(size)), *triggers, **options, aggregations=(col("x").to_list().alias("values"),))
    return w, early is not None


def replayed(case: Any) -> list[tuple[Any, Any]]:
    """What is recorded after each step, and what comes out."""
    w, has_panes = windows_of(case)
    steps: list[tuple[list[Any], list[Any]]] = []
    for step in case["transcript"]:
        ((action, given),) = step.items()
        if action == "input":
            steps.append(([], w.feed(*(("k", time, time) for time in given))))
        elif action == "watermark":
            steps.append(([], w.advance(given)))
        else:
            steps[-1][0].extend(given)
    return [as_compared(recorded, results, has_panes=has_panes) for recorded, results in steps]


def as_compared(recorded: list[Any], results: list[Any], *, has_panes: bool) -> tuple[Any, Any]:
    """Both in the same form: windows, values, and of panes what is recorded."""
    expected = [[*pane["window"], sorted(pane["values"])] for pane in recorded]
    ours = [[start, end - 1, sorted(values or [])] for _, start, end, *_, values in results]
    if has_panes:
        for pane, result, row, panes in zip(recorded, results, ours, expected, strict=False):
            _, _, _, kind, index, _ = result
            row += [kind == "early", kind == "late", index]
            panes += [pane.get("early", kind == "early"), pane.get("late", kind == "late"), pane.get("index", index)]
    return sorted(expected), sorted(ours)


@pytest.mark.parametrize("case", [c for c in CASES if not c["must_be_rejected"]], ids=lambda case: str(case["name"]))
def test_the_recorded_panes_come_out(case: Any) -> None:
    for expected, ours in replayed(case):
        assert ours == expected


@pytest.mark.parametrize("case", [c for c in CASES if c["must_be_rejected"]], ids=lambda case: str(case["name"]))
def test_records_that_are_wrong_on_purpose_are_noticed(case: Any) -> None:
    assert any(ours != expected for expected, ours in replayed(case))


@pytest.mark.parametrize("case", RECORDED["sessions"], ids=lambda case: str(case["name"]))
def test_discarding_panes_of_sessions_are_what_the_recorded_panes_add(case: Any) -> None:
    (gap,) = re.fullmatch(r"Sessions\((\d+)\)", case["window_fn"]).groups()  # type: ignore[union-attr]
    early, late = (re.search(rf"{phase}=AfterCount\((\d+)\)", case["trigger_fn"]) for phase in ("early", "late"))
    assert early is not None
    assert late is not None
    w = PanedSessions(
        int(gap) - 1,  # what is less than a gap apart merges there
        AfterRows(int(early[1])),
        AfterRows(int(late[1])),
        lateness=case["allowed_lateness"],
        aggregations=(col("x").to_list().alias("values"),),
    )
    shown: Counter[int] = Counter()
    results: list[Any] = []
    for step in case["transcript"]:
        for pane in step.get("expect", []):
            new = sorted((Counter(pane["values"]) - shown).elements())
            shown = Counter(pane["values"])
            _, start, end, kind, _, values = results.pop(0)
            assert ([start, end], kind == "early", values) == (pane["window"], pane.get("early", False), new)
        assert not results
        if "input" in step:
            results = w.feed(*(("k", time, time) for time in step["input"]))
        elif "watermark" in step:
            results = w.advance(step["watermark"])
    assert [row[1:4] for row in w.advance(END)] == []
