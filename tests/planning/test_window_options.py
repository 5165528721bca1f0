"""What windows and their triggers refuse, and what they emit by default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import ConfigurationError, DataflowError, GraphError

AT = pa.timestamp("s")


def keyed(*more: str, timed: bool = True) -> flow.KeyedStream:
    table = pa.table({"k": ["a"], "x": [1], "at": pa.array([1], AT)} | {name: [1] for name in more})
    rows = flow.Pipeline().source(op.from_arrow(table))
    return (rows.with_watermark("at") if timed else rows).key_by("k", *more)


WINDOW = op.tumbling("10s")
EARLY = op.after_rows(2)

WORDS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {}, "rows"),
    ({}, {"emit": "updates"}, "rows"),
    ({}, {"emit": "changes"}, "signed"),
    ({"lateness": "1s"}, {}, "updates"),
    ({"lateness": "1s"}, {"emit": "final"}, "rows"),
    ({"lateness": "1s", "late": EARLY}, {}, "updates"),
    ({"early": EARLY}, {}, "updates"),
    ({"early": EARLY}, {"emit": "changes"}, "signed"),
    ({"panes": "discarding"}, {}, "rows"),
    ({"early": EARLY, "panes": "discarding"}, {}, "rows"),
    ({"lateness": "1s", "panes": "discarding"}, {}, "rows"),
]


@pytest.mark.parametrize(("window", "agg", "word"), WORDS)
def test_what_windows_emit(window: dict[str, Any], agg: dict[str, Any], word: str) -> None:
    assert keyed().window(WINDOW, **window).agg(op.count(), **agg).changes == word


def test_the_columns_of_panes_are_after_the_window() -> None:
    windows = keyed().window(WINDOW, early=EARLY)
    assert windows.agg(op.count()).schema.names == ["k", "window_start", "window_end", "pane", "pane_index", "count"]
    assert windows.agg(op.count(), emit="changes").schema.names == [
        "k",
        "window_start",
        "window_end",
        "count",
        "change",
    ]


def test_update_keys_are_the_keys_and_the_window() -> None:
    assert keyed().window(WINDOW, early=EARLY).agg(op.count()).key_by("k", "window_start", "window_end")
    untimed = keyed().window(op.global_window(), early=EARLY).agg(op.count())
    assert untimed.key_by("k", "window_index")
    with pytest.raises(GraphError, match="'k', 'window_index'"):
        untimed.key_by("pane")


REFUSED: list[tuple[Callable[[], Any], type[DataflowError], str]] = [
    (lambda: keyed().window(WINDOW, late=EARLY), GraphError, r"late=after_rows\(2\)\) needs lateness="),
    (lambda: keyed().window(WINDOW, early=2), GraphError, r"window\(early=\): expected op.after_rows"),  # type: ignore[arg-type]
    (lambda: keyed().window(WINDOW, panes="all"), ConfigurationError, r"panes=\) must be one of"),
    (lambda: keyed().window(WINDOW, early=EARLY).agg(op.count(), emit="final"), GraphError, "early=after_rows"),
    (
        lambda: keyed().window(WINDOW, lateness="1s", late=EARLY).agg(op.count(), emit="final"),
        GraphError,
        "late=after_rows",
    ),
    (
        lambda: keyed().window(WINDOW, panes="discarding").agg(op.count(), emit="updates"),
        GraphError,
        "emit='updates'.*panes='discarding'",
    ),
    (lambda: keyed().window(WINDOW, early=EARLY).agg(pane=op.count()), GraphError, "duplicate column 'pane'"),
    (lambda: keyed("pane_index").window(WINDOW, early=EARLY).agg(op.count()), GraphError, "'pane_index'"),
    (lambda: keyed("change").window(WINDOW).agg(op.count(), emit="changes"), GraphError, "has a column 'change'"),
    (lambda: keyed().window(WINDOW).agg(change=op.count(), emit="changes"), GraphError, "duplicate column 'change'"),
    (lambda: keyed("window_index").window(op.count_window(2)).agg(op.count()), GraphError, "'window_index'"),
    (lambda: keyed().window(op.global_window(), lateness="1s"), GraphError, "no row is late"),
    (lambda: keyed().window(op.count_window(2), late=EARLY), GraphError, "no row is late"),
    (lambda: keyed().window(op.count_window(2), early=EARLY), GraphError, "early=.*count_window"),
    (lambda: keyed().window(op.count_window(2), panes="discarding"), GraphError, "panes=.*count_window"),
    (lambda: keyed(timed=False).window(op.global_window(), early=op.at_times("1s")), GraphError, "needs event time"),
    (lambda: keyed().window(op.global_window()).agg(op.count()).side("late"), GraphError, "no side output 'late'"),
    (lambda: op.count_window(0), ConfigurationError, "from 1"),
    (lambda: op.count_window(3, every=0), ConfigurationError, "every="),
    (lambda: op.count_window(3, every=4), ConfigurationError, "at most n"),
    (lambda: op.after_rows(0), ConfigurationError, "above 0"),
    (lambda: op.after_time("0s"), ConfigurationError, "above zero"),
    (lambda: op.at_times("0s"), ConfigurationError, "above zero"),
]


@pytest.mark.parametrize(("act", "error", "text"), REFUSED, ids=[text for _, _, text in REFUSED])
def test_what_is_refused(act: Callable[[], Any], error: type[DataflowError], text: str) -> None:
    with pytest.raises(error, match=text):
        act()


def test_signed_changes_cannot_be_cut_into_windows_of_rows() -> None:
    counts = keyed().agg(n=op.count(), emit="changes")
    with pytest.raises(GraphError, match="taken back"):
        counts.window(op.count_window(2))


def test_a_time_to_show_results_needs_no_event_time_by_the_clock() -> None:
    windows = keyed(timed=False).window(op.global_window(), early=op.after_time("1h"))
    assert windows.agg(n=op.count(), s=col("x").sum()).collect()["pane"].to_pylist() == ["on_time"]
