"""The report of a comparison as a page: charts and a timeline of each mode, in one file that requests nothing."""

from __future__ import annotations

import re
from html import escape
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.compare.charts import Bar, cost_charts, draw_chart
from dataflow.compare.mode_report import Cost, ModeReport
from dataflow.compare.page import report_page
from dataflow.compare.report import CompareReport
from dataflow.compare.trial import RECORDING
from dataflow.contracts.checkpointing import Mode
from dataflow.views.events import Events
from dataflow.views.read_events import read_events
from tests.compare.conftest import Compared
from tests.drawing.browser import Browser
from tests.views.events_by_hand import JOIN, Story, plan


def _texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]


def _events(*durations: float) -> Events:
    """Checkpoints of these milliseconds, all of which barriers travelled but 3; they blocked an input for 2 more."""
    story = Story(JOIN)
    for n, duration in enumerate(durations, 1):
        begin = n * 1_000
        story.triggered(begin, n)
        for task in ("orders", "payments", "check", "join", "sums"):
            story.part(task, n, begin + duration - 3, begin + duration - 2, begin + duration - 1)
        story.blocked(("orders", "join"), n, begin, begin + duration - 5).durable(begin + duration, n, bytes=n * 1_000)
    return story.events()


def test_a_chart_has_the_median_and_the_most_of_each_mode() -> None:
    times, sizes, blocked = [_texts(svg) for svg in cost_charts({"aligned (exactly once)": _events(40, 10, 30)})]
    assert "median 30.0 ms, most 40.0 ms, of 3 checkpoints" in times
    assert "median 2.0 kB, most 3.0 kB, of 3 checkpoints" in sizes
    assert "median 25.0 ms, most 35.0 ms, of 3 checkpoints" in blocked
    even, *_ = cost_charts({"aligned": _events(40, 10)})
    assert "median 25.0 ms, most 40.0 ms, of 2 checkpoints" in _texts(even)
    assert {"barriers travel", "state is written", "manifest is written"} <= {*times}


def test_the_bar_of_durations_is_the_median_checkpoint_in_its_three_parts() -> None:
    (svg, *_) = cost_charts({"aligned": _events(40, 10, 30)})
    widths = {
        rect.get("class"): float(rect.get("width", 0))
        for rect in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect")
        if rect.find("{http://www.w3.org/2000/svg}title") is not None
    }
    assert widths == {"barrier": 283.5, "state": 21.0, "manifest": 10.5}  # 27, 2 and 1 of 40 ms, which are 420 pixels


def test_what_spark_does_not_measure_is_no_zero() -> None:
    shape = plan(("in", "sum", "hash"), engine="spark")
    events = Story(shape).triggered(10, 1).durable(30, 1).events()
    times, _, blocked = [_texts(svg) for svg in cost_charts({"spark": events})]
    assert "median 20.0 ms, most 20.0 ms, of 1 checkpoint" in times
    assert "not measured" in blocked
    empty = cost_charts({"aligned": Story(JOIN).events()})
    assert all("no periodic checkpoint" in _texts(svg) for svg in empty)


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "n" * 300])
def test_texts_of_a_chart_do_not_overlap_and_are_no_markup(name: str) -> None:
    chart = draw_chart("Bytes", [Bar(name, [("state", 5), ("barrier", 2)], [7, 9]), Bar("b", (), ())], str)
    assert chart.overlaps() == []
    assert name in _texts(chart.svg())
    assert "<img" not in chart.svg()


def test_a_page_has_tables_charts_and_a_timeline_of_each_mode(compared: Compared) -> None:
    page = compared.page
    assert "default-src 'none'" in page
    assert not re.search(r"<script|https?://(?!www\.w3\.org/)", page)
    for mode in compared.report["modes"]:
        assert f"<td>{mode['mode']} ({mode['guarantee']})</td>" in page
        first, *_ = read_events(Path(mode["undisturbed_folder"]) / "events.arrow").timeline().sentences
        assert escape(first) in re.sub(r"</?b>", "", page)
    assert page.count("<figure>") >= 3 + len(compared.report["modes"])


def test_headings_of_a_page_are_nested_and_say_each_thing_once(compared: Compared) -> None:
    headings = re.findall(r"<h(\d)>(.*?)</h", compared.page)
    levels = [int(level) for level, _ in headings]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert [text for _, text in headings if "What one checkpoint does" in text] == []
    assert not re.search(r'class="mode">Mode aligned', compared.page.split("The runs that were killed")[0])


@pytest.mark.extended
def test_a_page_holds_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    modes = []
    for mode in Mode:
        folder = tmp_path / mode.value
        folder.mkdir()
        with flow.Pipeline("<b>") as p:
            rows = p.source(op.from_arrow(pa.table({"x": range(100)}), batch_rows=5), name="numbers").rebalance()
            rows.map_batches(lambda batch: batch, schema=rows.schema, name="same").sink(op.collect(), name="out")
        checkpoint = flow.Checkpointing(flow.MemoryStore(), every="5ms", mode=mode)
        p.run(flow.SimulatedRunner(), parallelism=2, checkpoint=checkpoint, record=folder / RECORDING)
        cost = Cost(7, 1, 1_500, 12_000, {}, 9, 1_234, 3_000_000, {})
        modes.append(ModeReport(mode, folder, cost, killed=folder))
    modes.append(ModeReport(Mode.ALIGNED, tmp_path / "missing", modes[0].cost))
    assert browser.problems(report_page("<b>", CompareReport("<b>", "here", modes, 5), modes)) == []


def test_the_restored_run_is_a_second_attempt_in_the_recording_of_the_killed_one(compared: Compared) -> None:
    for mode in compared.report["modes"]:
        events = read_events(Path(mode["killed_folder"]) / "events.arrow")
        assert events.attempts == (1, 2)
    assert "The runs that were killed and restored" in compared.page


def test_a_mode_whose_recording_is_missing_is_named_with_the_reason(tmp_path: Path) -> None:
    cost = Cost(7, 1, 1_500, 12_000, {}, 9, 1_234, 3_000_000, {})
    modes = [ModeReport(Mode.ALIGNED, tmp_path, cost, killed=tmp_path)]
    page = report_page("<title>", CompareReport("mine", "here", modes, 5), modes)
    assert "there is no recording" in page
    assert "<h1>&lt;title&gt;</h1>" in page
