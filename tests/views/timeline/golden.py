"""Stored pictures of one seed: ``python -m tests.views.timeline.golden`` draws them again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dataflow.views.timeline.section import draw_sections
from tests.views.timeline.runs import simulated
from tests.views.timeline.stories import failed, skewed_join, three_attempts

FOLDER = Path(__file__).parent / "pictures"

PICTURES = {
    "skewed-join": lambda: skewed_join().events().timeline(),
    "failed": lambda: failed().events().timeline(),
    "three-attempts": lambda: three_attempts().events().timeline("all"),
    "aligned": lambda: simulated("aligned").timeline(),
    "unaligned-persisted": lambda: simulated("unaligned-persisted").timeline(),
    "whole-run": lambda: simulated("aligned").timeline("all"),
}
"""Of events by hand, which change with the drawing alone; and of seeds, which change with the engine, too."""


def drawn(name):
    """Draw a picture without its sentences, which have tests of their own."""
    timeline = PICTURES[name]()
    sections = [replace(section, sentences=()) for section in timeline._sections]
    return draw_sections(timeline.title, sections).canvas.svg()


def main() -> None:
    """Draw all pictures again."""
    FOLDER.mkdir(exist_ok=True)
    for name in PICTURES:
        (FOLDER / f"{name}.svg").write_text(drawn(name), encoding="utf-8")


if __name__ == "__main__":
    main()
