"""The guide on events names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import dataflow as flow
from dataflow.events.kinds import Kind, schema
from tests.views.events_by_hand import JOIN, Story

GUIDE = (Path(__file__).parents[2] / "docs/see-what-barriers-do.md").read_text(encoding="utf-8")


def _first_cells(heading: str) -> list[str]:
    """Return the names in the first column of the table that begins with ``heading``."""
    rows = GUIDE.partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def test_the_guide_has_each_kind_of_events() -> None:
    assert _first_cells("kind") == [kind.label for kind in Kind]


def test_the_guide_has_each_column_of_events_and_of_checkpoints() -> None:
    columns = GUIDE.partition("An event has the columns ")[2].partition(". ")[0]
    assert {*re.findall(r"`(\w+)`", columns)} >= {*schema().names}
    assert _first_cells("column of `.checkpoints`") == Story(JOIN).events().checkpoints.column_names


def test_the_guide_has_each_property_of_events() -> None:
    for name in ("table", "checkpoints", "attempts", "recorded", "missed"):
        assert hasattr(flow.Events, name)
        assert f"`.{name}`" in GUIDE
