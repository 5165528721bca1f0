"""Stored pictures are what is drawn, and hold in any font, light and dark, narrow and wide."""

from __future__ import annotations

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from tests.drawing.browser import Browser, looks
from tests.views.timeline.golden import FOLDER, PICTURES, drawn
from tests.views.timeline.runs import simulated
from tests.views.timeline.stories import chain_of_all_to_all, on_spark, skewed_join

NAMES = [f"<img src=x onerror=alert({n})>" for n in range(3)] + ["n" * 300, "列" * 40]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn_as_stored(name):
    stored = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn(name) == stored, "if this is meant, run: python -m tests.views.timeline.golden"


@pytest.mark.extended
@pytest.mark.parametrize("name", PICTURES)
def test_texts_hold_in_a_browser(browser: Browser, name):
    assert browser.problems(PICTURES[name]().svg()) == []


@pytest.mark.extended
@pytest.mark.parametrize("mode", ["aligned", "unaligned", "unaligned-persisted", "aligned-timeout"])
def test_pages_of_runs_hold_in_a_browser(browser: Browser, mode):
    for checkpoint in (None, "all"):
        assert browser.problems(simulated(mode, 3).timeline(checkpoint).html()) == []


@pytest.mark.extended
@pytest.mark.parametrize(
    "story", [skewed_join(NAMES), on_spark(), chain_of_all_to_all(12, 8, 12)], ids=["names", "spark", "large"]
)
def test_odd_pages_hold_in_a_browser(browser: Browser, story):
    assert browser.problems(story.events().timeline().html()) == []


@pytest.mark.extended
def test_a_page_of_100_operators_holds_in_a_browser(browser: Browser):
    browser.load(chain_of_all_to_all(samples=8).events().timeline().html())
    assert browser.measure(next(iter(looks()))) == []


@pytest.mark.extended
def test_what_a_notebook_shows_of_a_run_holds_in_a_browser(browser: Browser):
    with flow.Pipeline("copy") as p:
        rows = p.source(op.from_arrow(pa.table({"x": range(100)}), batch_rows=5), name="numbers-of-the-shop")
        rows.rebalance().map_batches(lambda batch: batch, schema=rows.schema, name="same").sink(
            op.collect(), name="out"
        )
    result = p.run(flow.SimulatedRunner(), checkpoint=flow.Checkpointing(flow.MemoryStore(), every="5ms"))
    for html in (result._repr_html_(), result.timeline()._repr_html_(), result.timeline("all")._repr_html_()):
        page = f"<!doctype html><meta charset='utf-8'><style>:root{{color-scheme:light dark}}</style>{html}"
        assert browser.problems(page) == []
