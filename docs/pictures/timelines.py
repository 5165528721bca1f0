"""The timelines of the guides: one job in each checkpoint mode, on one seed of the simulator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow.runners.faults import Faults

__all__ = ["MODES", "picture_of", "run"]

SEED: Final = 9
"""A seed by which the operator ``check`` is seldom stepped."""
MODES: Final = tuple(mode.value for mode in flow.Mode)


def run(mode: str) -> flow.RunResult:
    """Join orders with payments that pass a slow check, with a checkpoint every 8 simulated milliseconds."""
    rows = [n % 40 for n in range(400)]
    with flow.Pipeline("orders-payments") as p:
        orders = p.source(op.from_arrow(pa.table({"id": rows}), batch_rows=10), name="orders")
        payments = p.source(op.from_arrow(pa.table({"id": rows, "paid": rows}), batch_rows=10), name="payments")
        checked = payments.rebalance().filter(flow.col("paid") >= 0, name="check")
        joined = orders.join(checked, on="id", name="join")
        joined.key_by("id").agg(op.count().alias("n"), name="per-id").sink(op.collect(), name="out")
    timeout = "4ms" if mode == "aligned-timeout" else None
    settings = flow.Checkpointing(flow.MemoryStore(), every="8ms", mode=mode, alignment_timeout=timeout)
    return p.run(flow.SimulatedRunner(SEED, Faults(skew=0.3)), checkpoint=settings)


def picture_of(mode: str) -> Callable[[], str]:
    """Return the function that draws the timeline of ``mode``."""
    return partial(_svg, mode)


def _svg(mode: str) -> str:
    return run(mode).timeline().svg()
