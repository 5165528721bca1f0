"""``python -m benchmarks.recording``: what it costs that a job records what barriers do.

A keyed job in mode ``aligned`` takes a checkpoint each second, with batches of 131,072 and of 1,000 rows. Three
variants run in turns: one that records nothing (the methods that record do nothing), the usual one, and one that writes
all events and a sample each 10 ms to a file. The figures are ratios of CPU times, each to the mean of the runs that
record nothing before and after it. The cost is also computed by counting: the number of events times what one takes.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import pyarrow as pa

import dataflow as flow
import operators as op
from benchmarks.conditions import conditions
from benchmarks.student import estimate
from dataflow import col
from dataflow.clock import SystemClock
from dataflow.events.event_rows import Origin
from dataflow.events.kinds import SAMPLES, Kind
from dataflow.events.recorder import EventWriter
from dataflow.runtime.task.channel_input import ChannelInput
from dataflow.runtime.task.source_input import SourceInput
from dataflow.runtime.task.task import Task

SIZES = (131_072, 1_000)
"""Rows of a batch."""
SECONDS = 4.0
"""How long a run takes, about: the rows are chosen by a first run."""


@contextmanager
def nothing_recorded() -> Iterator[None]:
    """Let gates, tasks and jobs record nothing."""

    def nothing(*arguments: object, **fields: object) -> None:
        pass

    with (
        patch.object(EventWriter, "record", nothing),
        patch.object(EventWriter, "sample", nothing),
        patch.object(Task, "_sample", nothing),
    ):
        yield


def run(batches: list[pa.RecordBatch], rows: int, **options: Any) -> tuple[float, flow.RunResult]:
    """Run the job over ``rows`` rows; return its CPU seconds and its result."""
    size = batches[0].num_rows
    repeated = [batches[n % len(batches)] for n in range(max(1, rows // size))]
    with flow.Pipeline("recorded") as p:
        keyed = p.source(op.from_arrow(repeated, batch_rows=size, splits=2), name="in").key_by("k")
        keyed.agg(col("v").sum().alias("s"), name="sums").sink(op.collect(), name="out")
    with tempfile.TemporaryDirectory() as folder:
        settings = flow.Checkpointing(Path(folder) / "checkpoints", every="1s")
        started = time.process_time()
        result = p.run(flow.LocalRunner(combine=False), parallelism=2, checkpoint=settings, **options)
        return time.process_time() - started, result


def cost_of(call: Callable[[], object], times: int = 20_000) -> float:
    """Return the CPU microseconds of a call: the least of five rounds."""
    rounds = []
    for _ in range(5):
        started = time.process_time()
        for _ in range(times):
            call()
        rounds.append(time.process_time() - started)
    return min(rounds) / times * 1e6


def costs(result: flow.RunResult) -> dict[str, float]:
    """Return what an event, a sample, a reading of the clock and the conversion of an event take, in microseconds."""
    writer, clock = EventWriter("sums[0]"), SystemClock()
    totals = (1, 2, 3, 4, 5, 6, 7, 8)
    for n in range(1_000):
        writer.record(Kind.SNAPSHOT, n, 1, duration=5)
    taken, origin = writer.take()[0], Origin(result.events.plan, 0, 1)
    return {
        "event": cost_of(
            lambda: writer.record(Kind.ARRIVED, 7, 1, channel="in[0] -> sums[0]", rows=5, bytes=40, detail="in order")
        ),
        "sample": cost_of(lambda: writer.sample(Kind.WORK, 7, totals=totals)),
        "clock": cost_of(clock.now),
        "conversion": cost_of(lambda: origin.batch(taken), 50) / len(taken),
    }


def counted_polls(batches: list[pa.RecordBatch], rows: int) -> int:
    """Return how often a run polls its inputs: each poll reads the clock once more."""
    polls = Counter[str]()

    def counting(poll: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            polls["all"] += 1
            return poll(*arguments)

        return wrapped

    with ExitStack() as patches:
        for owner in (ChannelInput, SourceInput):
            for name in ("poll", "poll_control"):
                patches.enter_context(patch.object(owner, name, counting(getattr(owner, name))))
        run(batches, rows)
    return polls["all"]


def counted(result: flow.RunResult, polls: int, cpu: float, each: dict[str, float]) -> dict[str, float]:
    """Return the numbers of events, samples and polls, and the share of the CPU time that they take."""
    kinds = result.events.table["kind"].to_pylist()
    samples = sum([kind in {sample.label for sample in SAMPLES} for kind in kinds])
    facts = len(kinds) - samples + result.events.missed
    spent = facts * each["event"] + samples * (each["sample"] + 2) + (facts + samples) * each["conversion"]
    spent += polls * each["clock"]
    return {"events": facts, "samples": samples, "polls": polls, "share": spent / 1e6 / cpu}


@click.command()
@click.option("--pairs", default=20, show_default=True, type=click.IntRange(2), help="Runs of each variant.")
@click.option("--seconds", default=SECONDS, show_default=True, help="Length of a run.")
@click.option("--json", "target", type=click.Path(path_type=Path, dir_okay=False), help="Write every figure there.")
def main(pairs: int, seconds: float, target: Path | None) -> None:
    """Measure what recording costs, in CPU time, in runs that take turns."""
    figures: dict[str, Any] = {"conditions": conditions(["pyarrow", "numba"]), "sizes": {}}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            figures["sizes"][size] = found = measured(size, pairs, seconds, Path(folder))
            for name, ratio in found["ratios"].items():
                low, high = ratio["mean"] - ratio["half_width"], ratio["mean"] + ratio["half_width"]
                click.echo(f"{size:>7,} rows a batch, {name}: {ratio['mean']:.3f} [{low:.3f}, {high:.3f}]")
            share, each = found["counted"]["share"], found["costs"]
            click.echo(f"{size:>7,} rows a batch, counted: {share:.3%} of the CPU time; microseconds: {each}")
    figures["load after"] = conditions([])["load"]
    click.echo(f"load: {figures['conditions']['load']:.2f} before, {figures['load after']:.2f} after")
    if target is not None:
        target.write_text(json.dumps(figures, indent=1))


def measured(size: int, pairs: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Return the figures for batches of ``size`` rows."""
    keys = pa.array([n * 7919 % 1_000 for n in range(size)])
    batches = [pa.record_batch({"k": keys, "v": pa.array(range(size))})] * 4
    rows = 40 * size
    while True:  # also warms up
        cpu, result = run(batches, rows)
        if result.duration > 0.8e6 * seconds:
            break
        rows = int(rows * min(20.0, 1.1 * seconds * 1e6 / result.duration)) + size
    options: dict[str, Callable[[int], dict[str, Any]]] = {
        "usual": lambda n: {},
        "into a file": lambda n: {"record": folder / f"{size}-{n}.arrow"},
    }
    ratios: dict[str, list[float]] = {name: [] for name in options}
    for pair in range(pairs):
        with nothing_recorded():
            before, _ = run(batches, rows)
        taken = {name: run(batches, rows, **options[name](pair))[0] for name in sorted(options, reverse=pair % 2 == 0)}
        with nothing_recorded():
            after, _ = run(batches, rows)
        for name, cpu_seconds in taken.items():
            ratios[name].append(2 * cpu_seconds / (before + after))
    each = costs(result)
    estimates = {name: estimate(some) for name, some in ratios.items()}
    return {
        "rows": rows,
        "counted": counted(result, counted_polls(batches, rows), cpu, each),
        "costs": each,
        "ratios": {name: {"mean": e.mean, "half_width": e.half_width} for name, e in estimates.items()},
    }


if __name__ == "__main__":
    main()
