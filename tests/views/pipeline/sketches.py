"""Random graphs and pipelines for tests of pictures.

``python -m tests.views.pipeline.sketches`` writes the golden pictures again. Look at them before you commit them.
"""

from __future__ import annotations

import random
import re
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow.events.plan_shape import InputShape, OperatorShape, PlanShape
from dataflow.views.picture import Picture
from dataflow.views.pipeline.sketch import Sketch, logical_sketch

__all__ = [
    "GOLDEN",
    "HOSTILE",
    "golden_pictures",
    "hostile_plan",
    "join_pipeline",
    "random_edges",
    "random_sketch",
    "unstyled",
]

GOLDEN = Path(__file__).parent / "golden"

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "x" * 300,
    "say \"hi\" & 'bye'",
    "two\nlines\r\tand a tab",
    "`code` **bold** _a_ 1. #1; $$x$$",
    "brackets [a](b) {c} |d| (e) [[f]] ]]>",
    "</script><!--</svg>--> %%{init: {}}%%",
    "%% style:#fff; end",
    "名前は長い ünïcödé 🎉 ﷽",
    "half \ud800 \udfff pair",
    "right \u202eto\u202c left \u2066x",
    " leading and trailing  ",
    "n0 --> n1; click n0 call alert()",
    "#quot; &lt; ﬂ°°34¶ß",
)


def random_edges(seed: int, *, circles: bool = False) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the names and the edges of a graph of up to 18 nodes, which may fall into parts."""
    rng = random.Random(seed)
    names = [f"n{i}" for i in range(rng.randint(1, 18))]
    edges = [
        (source, target)
        for i, target in enumerate(names)
        for source in rng.sample(names[:i], k=min(i, rng.choice([0, 1, 1, 1, 2, 3])))
    ]
    if circles:
        edges += [(rng.choice(names), rng.choice(names)) for _ in range(rng.randint(1, 4))]
    elif edges and rng.random() < 0.3:
        edges.append(rng.choice(edges))  # one operator reads another one twice
    return names, edges


def random_sketch(seed: int, *, circles: bool = False) -> Sketch:
    """Return a sketch of such a graph; some arrows have labels."""
    rng = random.Random(seed)
    names, edges = random_edges(seed, circles=circles)
    sources = {target: [s for s, t in edges if t == target] for target in names}
    operators = []
    for name in names:
        inputs = [InputShape(s, None, ("k",), "hash") if rng.random() < 0.4 else InputShape(s) for s in sources[name]]
        operators.append(OperatorShape(name, "map", "transform" if inputs else "source", tuple(inputs)))
    return logical_sketch(f"graph {seed}", PlanShape("local", tuple(operators)))


def hostile_plan() -> PlanShape:
    """Return the plan of a chain of operators with hostile names, tags and keys."""
    operators = [OperatorShape(HOSTILE[0], HOSTILE[4], "source")]
    for before, name in pairwise(HOSTILE):
        operators.append(OperatorShape(name, name, inputs=(InputShape(before, before, (name, before), "hash"),)))
    return PlanShape("local", tuple(operators))


def join_pipeline() -> flow.Pipeline:
    """Return orders joined with payments, of which some are checked and late ones kept apart."""
    rows = pa.table({"id": [1], "at": pa.array([1], pa.timestamp("s"))})
    with flow.Pipeline("orders-payments") as p:
        orders = p.source(op.from_arrow(rows), name="orders").with_watermark("at", name="orders in time")
        payments = p.source(op.from_arrow(rows), name="payments").with_watermark("at", name="payments in time")
        checked = payments.rebalance().filter(flow.col("id") > 0, name="check")
        joined = orders.join(checked, on="id", within=("-4s", "10s"), name="join")
        joined.key_by("id").agg(op.count().alias("n"), name="per-id").sink(op.collect(), name="out", parallelism=1)
        joined.side("late").sink(op.collect(), name="late orders")
        checked.filter(flow.col("id") > 100, name="large").sink(op.collect(), name="large ones")
    return p


def golden_pictures() -> dict[str, Picture]:
    """Return the pictures that are stored, by the names of their files."""
    p = join_pipeline()
    return {"logical": p.draw(parallelism=2), "physical": p.draw(parallelism=2, physical=True)}


def unstyled(svg: str) -> str:
    """Return the elements of a picture without its style sheet, which all pictures share."""
    return re.sub(r"<style>.*?</style>", "<style/>", svg, flags=re.DOTALL)


if __name__ == "__main__":
    for name, picture in golden_pictures().items():
        (GOLDEN / f"{name}.svg").write_text(picture.svg(), encoding="utf-8")
        (GOLDEN / f"{name}.txt").write_text(picture.text() + "\n", encoding="utf-8")
