"""Signed changes of windows: what is shown changes only by them, and is what updates would show."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from dataflow.contracts.windows import Window
from dataflow.expressions import Aggregation, col, count
from dataflow.planning.aggregate_specs import Emit
from tests.operators.operating import stored
from tests.operators.windows.test_kinds_of_windows import KINDS
from tests.operators.windows.windowed import END, MERGED, UNMERGED, Model, Windowed
from tests.seeds import each_once


class Shown:
    """The net of the changes so far, by key and window."""

    def __init__(self) -> None:
        self.rows: dict[Any, Any] = {}

    def apply(self, changes: Sequence[Any], keys: int) -> list[Any]:
        """Apply changes; return the new rows."""
        new = []
        for before, (*row, change) in zip([None, *changes], changes, strict=False):
            group = tuple(row[: keys + 2])
            if change < 0:
                assert self.rows.pop(group) == row, "a row is taken back that is not shown"
            else:
                taken_back = before is not None and before[-1] < 0 and before[: keys + 2] == group
                assert taken_back == (before is not None and before[-1] < 0), "the old row stands before the new one"
                assert group not in self.rows, "a row is shown twice"
                self.rows[group] = row
                new.append(tuple(row))
        return new


@pytest.mark.parametrize(("window", "way"), each_once(KINDS, ["merged", "not merged", "folded first", "all rows"]))
def test_changes_show_what_updates_show(window: Window, way: str) -> None:
    """Rows on time and late, and a restore now and then."""
    draw, keys = Random(f"{window} {way}"), int(way != "all rows")
    options: dict[str, Any] = {
        "lateness": 40,
        "keyed": bool(keys),
        "fold_first": way == "folded first",
        "aggregations": UNMERGED if way == "not merged" else MERGED,
        "emit": Emit.CHANGES,
    }
    w, model, shown = Windowed(window, **options), Model(window, 40, bool(keys), way == "not merged"), Shown()
    for step in range(0, 30, 2):
        rows = [(f"k{draw.randrange(9)}", draw.randrange(99), step * 2 + draw.randrange(8)) for _ in range(8)]
        rows += [(f"k{draw.randrange(9)}", 7, step * 2 - draw.randrange(60)) for _ in range(draw.randrange(6))]
        assert sorted(shown.apply(w.feed(*rows), keys)) == sorted(model.feed(*rows))
        assert sorted(shown.apply(w.advance(step * 2), keys)) == sorted(model.advance(step * 2))
        if draw.random() < 0.2:
            w = Windowed(window, **options, restored=stored(w.operator.snapshot()))
    assert sorted(shown.apply(w.advance(END), keys)) == sorted(model.advance(END))


def changes(*rows: Any, aggregations: Sequence[Aggregation], lateness: int = 40) -> list[Any]:
    """The changes of tumbling windows of 10 after the watermark 10, for rows of which the first one is on time."""
    w = Windowed(KINDS[0], lateness=lateness, aggregations=aggregations, emit=Emit.CHANGES)
    w.feed(rows[0])
    first = w.advance(10)
    return [*first, *w.feed(*rows[1:])] if len(rows) > 1 else first


def test_a_late_row_takes_the_old_row_back() -> None:
    assert changes(("a", 1, 5), ("a", 3, 6), ("b", 2, 0), aggregations=[count().alias("n")]) == [
        ("a", 0, 10, 1, 1),
        ("a", 0, 10, 1, -1),
        ("a", 0, 10, 2, 1),
        ("b", 0, 10, 1, 1),
    ]


def test_a_late_row_that_changes_nothing_is_not_shown() -> None:
    assert changes(("a", 3, 5), ("a", 1, 6), aggregations=[col("x").max().alias("max")]) == [("a", 0, 10, 3, 1)]


def test_a_window_without_lateness_is_added_once() -> None:
    assert changes(("a", 3, 5), lateness=0, aggregations=[count().alias("n")]) == [("a", 0, 10, 1, 1)]
