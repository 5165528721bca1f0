"""Events that contradict each other are refused, or make a picture: never another error, and no endless drawing."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from dataflow.errors import EventsError
from dataflow.views.events import Events
from tests.seeds import seeds
from tests.views.timeline.drawn import wrong
from tests.views.timeline.runs import simulated
from tests.views.timeline.stories import failed, skewed_join, three_attempts

NUMBERS = ("time", "seq", "attempt", "checkpoint", "duration", "rows", "bytes", "value")
NAMES = ("kind", "task", "channel", "operator", "detail", "totals")
VALUES = (0, 1, 2, 5, 10**7, 10**15, 2**53, 2**60)


def forged(seed):
    """Return events in which some fields are those of other events, or any number that a recording may have."""
    draw = random.Random(seed)
    events = draw.choice(
        [simulated("aligned", 0), skewed_join().events(), failed().events(), three_attempts().events()]
    )
    rows = events.table.to_pylist()
    for _ in range(draw.choice([1, 3, 30])):
        row, name = draw.choice(rows), draw.choice(NUMBERS + NAMES)
        if name in NAMES:
            row[name] = draw.choice(rows)[name]
        elif row[name] is not None:
            row[name] = draw.choice(VALUES)
    rows.sort(key=lambda row: (row["attempt"], row["time"], row["seq"]))
    return Events(pa.Table.from_pylist(rows, schema=events.table.schema))


@pytest.mark.parametrize("seed", seeds(4, 2_000, extended=60))
def test_forged_events_are_refused_or_drawn(seed):
    for checkpoint in (None, "all"):
        try:
            timeline = forged(seed).timeline(checkpoint)
        except EventsError:
            continue
        assert wrong(timeline) == []
