"""Draws layers.svg: the folders of the project as the import layers of pyproject.toml have them, the highest first."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dataflow.drawing import Canvas, wrapped

__all__ = ["layers", "svg"]

WIDTH, GAP, PAD, LINE = 920, 8, 8, 16
"""Pixels: the picture, the space between boxes and inside them, and from one line of text to the next."""

HOLDS: Final = {
    "api": "Pipeline, Stream, KeyedStream: build a graph",
    "arrow_values": "between Arrow and Python",
    "background": "threads for work beside the steps",
    "cli": "the command barrierflow",
    "clock": "time as an argument",
    "compare": "run one pipeline in several modes, kill and restore it",
    "contracts": "Operator, Source, Sink, Spec, Checkpointing",
    "demo": "flights, killed and restored in each mode",
    "drawing": "pictures as SVG",
    "errors": "every error and warning",
    "events": "what a job records",
    "expressions": "col, lit, when: types and evaluation",
    "kernel_cache": "compiled loops",
    "observe": "print checkpoints and restores",
    "operators": "sources, transforms, aggregates, windows, joins, sinks",
    "planning": "the graph, specs of operators, the physical plan",
    "protocol": "barriers: align, overtake, track",
    "registry": "names imported when used",
    "runners": "threads, the simulator, and Spark above them",
    "runtime": "job, restore and task: each imports only what follows",
    "snapshots": "Chandy and Lamport's algorithm on any process graph",
    "state": "keyed state and its encoding",
    "store": "directories of checkpoints",
    "testing": "sources, sinks and scripts for tests",
    "untrusted": "checks of data from others",
    "views": "timelines and pictures of pipelines",
}
"""What each folder holds."""


def layers() -> list[list[str]]:
    """Return the folders of each layer, the highest layer first."""
    path = Path(__file__).parents[2] / "pyproject.toml"
    contracts = tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    rows = next(contract["layers"] for contract in contracts if contract["name"].startswith("Layers:"))
    return [[name.strip(" ()").removeprefix("dataflow.") for name in row.split("|")] for row in rows]


def svg() -> str:
    """Return the picture.

    Raises:
        KeyError: a folder of a layer is not in ``HOLDS``.
    """
    rows = layers()
    canvas = Canvas(
        "layers",
        "The folders of barrierflow in layers; imports point down only",
        description="; ".join([", ".join(row) for row in rows]),
    )
    y = 0.0
    for row in rows:
        with canvas.group():
            y += _row(canvas, y, row) + GAP
    canvas.text(0, y + 18, "Imports point down only. Folders side by side do not import each other.", "soft")
    canvas.text(0, y + 36, "Below compare, demo and cli, only one file, runners/binding, imports operators.", "soft")
    return canvas.svg()


def _row(canvas: Canvas, y: float, names: Sequence[str]) -> float:
    """Draw a layer below ``y`` and return its height."""
    width = (WIDTH - GAP * (len(names) - 1)) / len(names)
    lines = {name: wrapped(HOLDS[name], width - 2 * PAD, 12) for name in names}
    height = 28 + LINE * max([len(each) for each in lines.values()]) + 4
    for place, name in enumerate(names):
        x = place * (width + GAP)
        canvas.rect(x, y, width, height, "panel edged", radius=6)
        canvas.text(x + width / 2, y + 20, name, "strong", anchor="middle", size=13, width=width - 2)
        for number, line in enumerate(lines[name]):
            canvas.text(x + width / 2, y + 38 + LINE * number, line, "soft", anchor="middle")
    return height
