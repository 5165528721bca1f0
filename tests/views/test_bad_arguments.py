"""Arguments that are no paths, checkpoints or runs get an error that says what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dataflow as flow
from dataflow.errors import ConfigurationError, GraphError
from tests.views.events_by_hand import JOIN, Story

EVENTS = Story(JOIN).triggered(10, 3).durable(30, 3).events()


@pytest.mark.parametrize("path", [5, None, b"x.svg", "", "x\0.svg", "\ud800.svg"])
def test_what_is_no_path_is_refused(path: Any) -> None:
    for use in (flow.read_events, EVENTS.timeline().save, flow.Pipeline("empty").draw().save, flow.Record):
        with pytest.raises(ConfigurationError, match=r"expects the path|is no picture|is no path|must be the path"):
            use(path)


def test_an_id_of_numpy_is_an_id_and_a_truth_value_is_none() -> None:
    assert EVENTS.timeline(np.int64(3)).title == EVENTS.timeline(3).title  # type: ignore[arg-type]
    for checkpoint in (True, np.bool_(1), 3.0, "3"):
        with pytest.raises(ConfigurationError, match="checkpoint must be an id"):
            EVENTS.timeline(checkpoint)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ({1: EVENTS}, "the name of a run must be text, such as a mode; got 1"),
        ([EVENTS], "expects a mapping from names to events"),
        ({"a": EVENTS.table}, "expected the events of run 'a', got Table"),
        ({}, "needs at least one run"),
    ],
)
def test_runs_to_compare_have_names_and_events(runs: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        flow.compare_timelines(runs)


@pytest.mark.parametrize("name", [None, 5])
def test_a_name_that_is_no_text_is_refused_before_the_run(name: Any) -> None:
    with pytest.raises(GraphError, match=r"Pipeline\(name=\) must be text"):
        flow.Pipeline(name)
