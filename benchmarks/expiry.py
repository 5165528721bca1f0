"""``python -m benchmarks.expiry``: memory and cost of keyed state whose keys come for ever and live one minute.

For int64, text and two-column keys, each in a process of its own, an aggregate with ``ttl="60s"`` gets new keys at a
fixed rate of event time. Resident memory is sampled; without a ttl it would grow with every row. The cost is CPU time a
row: insert, watermark, expiry. ``--out`` writes the samples as JSON, ``--chart`` a chart as SVG.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import pyarrow as pa

from benchmarks.charts import Chart, Mark, as_svg
from benchmarks.memory import resident

__all__ = ["KINDS", "Sample", "chart", "run"]

KINDS = {
    "int64": pa.schema({"a": pa.int64()}),
    "text": pa.schema({"a": pa.string()}),
    "two columns": pa.schema({"a": pa.int64(), "b": pa.string()}),
}
BATCH, SAMPLES, TTL = 16_384, 60, 60


@dataclass(frozen=True)
class Sample:
    """What a job holds at a minute of event time: keys in use, resident MiB; and its CPU time so far, in seconds."""

    minute: float
    live: int
    rss: float
    cpu: float


class _Dropping:
    """An Out that keeps nothing."""

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        pass


def run(kind: str, rate: int, minutes: float) -> list[Sample]:
    """Feed an aggregate ``rate`` new keys a second of event time, and sample it."""
    from dataflow.clock import ManualClock
    from dataflow.contracts.operator import OperatorContext
    from dataflow.contracts.windows import EventTime
    from dataflow.expressions import col, count
    from dataflow.planning.aggregate_specs import Emit
    from dataflow.state.ttl import Ttl
    from operators.aggregation.aggregate import AggregateOperator

    schema = pa.schema([*KINDS[kind], ("x", pa.int64()), ("t", pa.timestamp("us"))])
    aggregations = [count(), col("x").sum()]
    output = pa.schema([*KINDS[kind], *((a.name, a.dtype(schema)) for a in aggregations)])
    context = OperatorContext("expiry", 0, 1, (schema,), output, range(128), 128, None, ManualClock(), lambda due: None)
    keys = KINDS[kind].names
    ttl, time_of = Ttl(TTL * 1_000_000), EventTime("t")
    operator = AggregateOperator(context, keys, aggregations, Emit.UPDATES, None, ttl, time_of)
    total, out, samples = int(rate * 60 * minutes), _Dropping(), list[Sample]()
    every = max(total // SAMPLES, 1)
    spent, due = 0.0, 0
    for start in range(0, total, BATCH):
        numbers = np.arange(start, min(start + BATCH, total))
        times = numbers * (1_000_000 // rate)
        columns = [_column(numbers, type_) for type_ in KINDS[kind].types]
        batch = pa.RecordBatch.from_arrays(
            [*columns, pa.array(numbers), pa.array(times, pa.timestamp("us"))], schema=schema
        )
        before = time.process_time()
        operator.process(0, batch, out)
        operator.advance(int(times[-1]), out)
        spent += time.process_time() - before
        if start >= due:
            due += every
            samples.append(Sample(times[-1] / 60e6, operator._state.live, resident() / 2**20, spent))
    return samples


def _column(numbers: np.ndarray, type_: pa.DataType) -> pa.Array:
    return pa.array(numbers) if pa.types.is_integer(type_) else pa.array([f"session {n:012}" for n in numbers.tolist()])


def chart(found: dict[str, list[Sample]]) -> Chart:
    """Return the chart of resident memory over minutes of event time."""
    last = max(samples[-1].minute for samples in found.values())
    ticks = {minute: f"{minute:g}" for minute in np.linspace(0, np.ceil(last), 6).round(1).tolist()}
    series = {kind: [Mark(s.minute, s.rss) for s in samples] for kind, samples in found.items()}
    return Chart("New keys for ever, each kept for one minute", "minutes of event time", "resident MiB", ticks, series)


@click.command()
@click.option("--rate", default=20_000, show_default=True, help="New keys a second of event time.")
@click.option("--minutes", default=20.0, show_default=True, help="Minutes of event time.")
@click.option("--out", type=click.Path(path_type=Path), help="A file for the samples.")
@click.option("--chart", "picture", type=click.Path(path_type=Path), help="A file for the chart.")
@click.option("--child", type=click.Choice(list(KINDS)), hidden=True)
def main(rate: int, minutes: float, out: Path | None, picture: Path | None, child: str | None) -> None:
    """Measure keyed state that forgets."""
    if child is not None:
        print(json.dumps([asdict(sample) for sample in run(child, rate, minutes)]))
        return
    found: dict[str, list[Sample]] = {}
    for kind in KINDS:
        command = [sys.executable, "-m", "benchmarks.expiry", "--child", kind, f"--rate={rate}", f"--minutes={minutes}"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found[kind] = [Sample(**sample) for sample in json.loads(done.stdout.splitlines()[-1])]
        print(f"{kind:>12}: {_described(found[kind], rate)}")
    if out is not None:
        out.write_text(json.dumps({kind: [asdict(s) for s in samples] for kind, samples in found.items()}, indent=1))
    if picture is not None:
        picture.write_text(as_svg(chart(found)))


def _described(samples: Sequence[Sample], rate: int) -> str:
    """Return what the samples show: memory when the first keys have expired and at the end, and rows per CPU-second."""
    settled = [s for s in samples if s.minute > 2 * TTL / 60] or list(samples)
    rows = rate * 60 * samples[-1].minute
    return (
        f"{max(s.live for s in settled):,} keys at most, {settled[0].rss:.0f} MiB after "
        f"{settled[0].minute:.1f} minutes, at most {max(s.rss for s in settled):.0f} MiB later; "
        f"{rows / samples[-1].cpu / 1e6:.1f} M rows a CPU-second"
    )


if __name__ == "__main__":
    main()
