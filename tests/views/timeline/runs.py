"""Simulated runs of a skewed join, for pictures of what really happened."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow.runners.faults import Faults

__all__ = ["simulated"]

ROWS = 90


@cache
def simulated(mode="aligned", seed=1, **faults):
    """Return the events of a run of fast orders that are joined with payments, which pass a slow step."""
    ids = list(range(ROWS))
    orders = pa.table({"id": ids, "amount": ids})
    payments = pa.table({"id": ids, "paid": ids})
    with flow.Pipeline("orders-payments") as p:
        left = p.source(op.from_arrow(orders, batch_rows=5), name="orders", parallelism=1)
        right = p.source(op.from_arrow(payments, batch_rows=5), name="payments", parallelism=1).rebalance()
        checked = right.map_batches(lambda batch: batch, schema=payments.schema, name="check", parallelism=1)
        joined = left.join(checked, on="id", ttl="1h", name="join")
        joined.key_by("id").agg(op.count().alias("n"), emit="updates", name="per-id").sink(op.collect(), name="out")
    checkpoint = flow.Checkpointing(flow.MemoryStore(), every="20ms", mode=mode)
    runner = flow.SimulatedRunner(seed=seed, faults=Faults(skew=0.3, stall=0.01, **faults))
    return p.run(runner, parallelism=2, checkpoint=checkpoint).events
