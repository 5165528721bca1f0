"""Jobs that change modes between crashes, with every sink: none fails, none is called exactly once after duplicates.

In mode "unaligned" a restore delivers rows twice. The state keeps this fact, whatever the mode of later runs.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.cli import main
from dataflow.contracts.sink import Guarantee
from dataflow.runners.attempts import Attempt
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from dataflow.testing import Ledger, delivered_again, ledger_sink
from tests.seeds import some_by_default
from tests.simulation.jobs import MODES

ROWS = 60
NUMBERS = [(x * x * 7 + x) % 11 for x in range(ROWS)]
TIMES = pa.array([x * 300_000 for x in range(ROWS)], pa.timestamp("us"))
pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")


@dataclass(slots=True)
class Outputs:
    """What the sinks of ``every_sink`` wrote, in the files of ``folder`` and outside of checkpoints."""

    folder: Path
    ledger: Ledger = field(default_factory=Ledger)
    written: list[int] = field(default_factory=list)
    upserted: set[int] = field(default_factory=set)

    def files(self) -> Iterator[tuple[str, Counter[int]]]:
        for name in FILES:
            yield name, Counter(op.read_committed(self.folder / name)["x"].cast(pa.int64()).to_pylist())


FILES: dict[str, Callable[[Path], flow.Sink]] = {
    "parquet": op.write_parquet,
    "folders": lambda path: op.write_parquet(path, partition_by="k"),
    "csv": op.write_csv,
    "json": op.write_json,
    "ipc": op.write_ipc,
}


def every_sink(rows: flow.Stream, outputs: Outputs) -> None:
    """Rows go to every sink, and signed changes of one and of two shuffles to every sink that takes changes."""
    for name, sink in FILES.items():
        rows.sink(sink(outputs.folder / name), name=name)
    rows.sink(ledger_sink(outputs.ledger), name="ledger")
    rows.sink(op.collect(), name="all")
    rows.sink(op.console(file=io.StringIO()), name="console")
    rows.sink(op.write_batches(lambda batch: outputs.written.extend(batch["x"].to_pylist())), name="function")
    rows.sink(op.upsert_batches(lambda batch: outputs.upserted.update(batch["x"].to_pylist())), name="upserts")
    counts = rows.key_by("k").agg(n=op.count(), emit="changes", name="counts")
    groups = counts.key_by("n").agg(low=col("k").min(), emit="changes", name="groups")
    for name, keys, changes in (("counts", "k", counts), ("groups", "n", groups)):
        changes.sink(op.collect(net=True), name=f"net of {name}")
        changes.sink(op.upsert_batches(lambda rows, gone: None, keys=keys), name=f"upserts of {name}")


def changes_modes(
    build: Callable[[flow.Stream], None], seed: int, modes: Sequence[str], crashes: int
) -> tuple[flow.RunResult, Sequence[Attempt], flow.MemoryStore]:
    """Run a job that crashes ``crashes`` times; it starts with the first mode, and restarts with any of the others."""
    store = flow.MemoryStore()
    first, *others = [settings(store, mode) for mode in modes]
    with flow.Pipeline("modes") as p:
        table = pa.table({"x": range(ROWS), "k": NUMBERS, "ts": TIMES})
        build(p.source(op.from_arrow(table, batch_rows=3, splits=3), name="in").with_watermark("ts", delay="2s"))
    faults = Faults(crashes=crashes, skew=0.5, stall=0.1, slices=0.5, crash_after=[1, 2, 3], restart_with=others)
    job = SimulatedRunner(seed, faults, max_turns=200_000).start(p, parallelism=2, checkpoint=first)
    return job.wait(), job.attempts, store


def settings(store: flow.MemoryStore, mode: str) -> flow.Checkpointing:
    patience = "200us" if mode == "aligned-timeout" else None
    return flow.Checkpointing(store, every="300us", mode=mode, alignment_timeout=patience, duplicates="rows", keep=99)


def repeated(attempts: Sequence[Attempt]) -> bool:
    """Return whether the state of the last attempt may have rows twice, by what the restores before it reported.

    Checks that the report of each restore says the same of its checkpoint.
    """
    facts: list[bool] = []
    for number, attempt in enumerate(attempts):
        report, before = attempt.restored, False
        if report is not None:  # the checkpoint is of the last attempt that began with only ids below its own
            before = next(facts[n] for n in reversed(range(number)) if attempts[n].highest < report.checkpoint)
            assert report.repeated is before, f"checkpoint {report.checkpoint}"
        facts.append(before or (report is not None and report.duplicated() > 0))
    return facts[-1]


@pytest.mark.parametrize(
    ("seed", "first", "second"), some_by_default([(3, "unaligned", "aligned")], range(60), MODES, MODES)
)
def test_every_sink_has_the_rows_and_those_that_were_reported_in_whatever_mode_the_job_goes_on(
    seed: int, first: str, second: str, tmp_path: Path
) -> None:
    outputs = Outputs(tmp_path)
    result, attempts, store = changes_modes(lambda rows: every_sink(rows, outputs), seed, [first, second, *MODES], 3)

    def expected(sink: str) -> Counter[int]:
        return Counter([*range(ROWS), *[row[0] for row in delivered_again(attempts, sink).elements()]])

    assert dict(outputs.files()) == {name: expected(name) for name in FILES}
    assert Counter(row[0] for row in outputs.ledger.rows().elements()) == expected("ledger")
    assert Counter(result.table("all")["x"].to_pylist()) == expected("all")
    assert set(outputs.written) == outputs.upserted == set(range(ROWS))
    again = [NUMBERS[row[0]] for row in delivered_again(attempts, "counts").elements()]
    assert Counter(dict(zip(*result.table("net of counts").to_pydict().values(), strict=True))) == Counter(
        [*NUMBERS, *again]
    )
    assert store.manifest(store.checkpoints()[-1]).repeated is repeated(attempts)


def sessions(rows: flow.Stream) -> None:
    windows = rows.key_by("k").window(op.session("1s"), lateness="30s").agg(n=op.count(), emit="changes", name="ses")
    windows.sink(op.upsert_batches(lambda rows, gone: None, keys=["k", "window_start", "window_end"]), name="out")


def joined(rows: flow.Stream) -> None:
    counts = rows.key_by("k").agg(n=op.count(), emit="changes", name="counts")
    last = rows.key_by("k").agg(last=col("x").max(), emit="changes", name="last")
    pairs = counts.join(last, on="k", how="full", emit="changes", name="pairs")
    pairs.sink(op.collect(net=True), name="net")
    pairs.key_by("n").top(2, by=["last", "k"], emit="changes", name="top").sink(op.collect(net=True), name="tops")


def moved(rows: flow.Stream) -> None:
    later = rows.rebalance().map(lambda row: {**row, "ts": row["ts"] + timedelta(milliseconds=1)}, name="later")
    counts = later.key_by("k").window(op.tumbling("2s")).agg(n=op.count(), emit="changes", name="windows")
    counts.sink(op.collect(net=True), name="net")


@pytest.mark.parametrize(
    ("seed", "second", "build"),
    some_by_default(
        [(4, "aligned", sessions), (36, "aligned-timeout", moved)],
        range(60),
        MODES,
        [sessions, joined, moved],
        extended=[(3, "aligned", moved)],
    ),
)
def test_a_job_that_leaves_mode_unaligned_ends_without_an_error(
    seed: int, second: str, build: Callable[[flow.Stream], None]
) -> None:
    result, attempts, _ = changes_modes(build, seed, ["unaligned", second], crashes=2)
    assert result.guarantee is Guarantee.AT_LEAST_ONCE or not repeated(attempts)


def test_the_guarantee_stays_at_least_once_in_every_later_run_that_continues_the_state(tmp_path: Path) -> None:
    with flow.Pipeline("numbers") as p:
        numbers = p.source(op.from_arrow(pa.table({"k": NUMBERS}), batch_rows=2, splits=3), name="in")
        counts = numbers.key_by("k").agg(n=op.count(), emit="changes", name="counts")
        counts.rebalance().sink(op.collect(net=True), name="out")
    taken, then = (flow.Checkpointing(tmp_path, every="100us", mode=mode) for mode in ("unaligned", "aligned"))
    faults = Faults(crashes=1, crash_at=["step"], crash_after=[2], skew=0.8, restart_with=[then])
    first = p.run(SimulatedRunner(1, faults, max_turns=200_000), parallelism=2, checkpoint=taken)
    later = p.run(SimulatedRunner(2), parallelism=2, checkpoint=then)
    before, after = first.restore_report, later.restore_report
    assert before is not None
    assert after is not None
    assert (before.duplicated() > 0, before.repeated) == (True, False)
    assert (after.duplicated() > 0, after.repeated, after.to_json()["guarantee"]) == (False, True, "at least once")
    assert [result.guarantee for result in (first, later)] == [Guarantee.AT_LEAST_ONCE] * 2
    shown = CliRunner().invoke(main, ["checkpoints", "show", str(tmp_path), str(after.checkpoint)]).output
    assert "at least once" in shown
    assert "yes, after an earlier restore" in shown
    assert "delivered rows again" in str(after)
    newest = flow.Checkpoint(tmp_path, after.checkpoint)
    assert (newest.mode.value, newest.repeated, newest.guarantee.value) == ("aligned", True, "at least once")
