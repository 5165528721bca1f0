"""Jobs that go on at another parallelism: every kind of operator, sources, users' state, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

import dataflow as flow
import operators as op
from dataflow.contracts.checkpointing import Mode
from dataflow.runners.faults import Attempt, Faults
from dataflow.testing import Pause, scripted
from tests.keeping_state import SCHEMA, STREAMS, sample

MODES = [mode.value for mode in Mode]


def script(seed: int, first: int, steps: int) -> list[Any]:
    """Batches of rows whose times go on, with pauses between."""
    rng = np.random.default_rng(seed)
    return [entry for step in range(steps) for entry in (Pause(4), sample(rng, first + 100 * step))]


def in_order(seed: int, first: int, steps: int) -> list[Any]:
    return [entry if isinstance(entry, Pause) else entry.sort_by("at") for entry in script(seed, first, steps)]


SPLITS = {"a": in_order(1, 0, 12), "b": in_order(2, 40, 9), "c": in_order(3, 700, 5)}
OTHERS = {"d": in_order(4, 0, 10), "e": in_order(5, 90, 7)}


def pipeline(names: Sequence[str]) -> flow.Pipeline:
    """Operators of these kinds side by side, over splits whose times are far apart, so that no row is late."""
    with flow.Pipeline("kinds") as p:
        rows, others = [
            p.source(scripted(SCHEMA, splits), name=name).with_watermark("at", delay="200us").key_by("k")
            for name, splits in (("in", SPLITS), ("others", OTHERS))
        ]
        for name in names:
            plain = name.replace(" ", "_")
            STREAMS[name](rows, others, plain).sink(op.collect(net=False), name=f"{plain}_out")
    return p


def tables(result: flow.RunResult) -> dict[str, Counter[str]]:
    return {name: Counter(map(repr, table.to_pylist())) for name, table in result.tables.items()}


def rescaled(p: flow.Pipeline, seed: int, mode: str, widths: Sequence[int] = (3, 1, 2)) -> flow.RunResult:
    """Run with crashes, each attempt at another parallelism."""
    faults = Faults(
        crashes=3, crash_after=(1, 2), crash_at=("step", "recording", "alignment"), skew=0.4, rescale_to=widths
    )
    settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=mode)
    return p.run(flow.SimulatedRunner(seed, faults), parallelism=2, checkpoint=settings)


def moves(attempts: Sequence[Attempt]) -> int:
    return sum([bool(attempt.restored_checkpoint) for attempt in attempts])
