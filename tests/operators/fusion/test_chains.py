"""Jobs with loops beside the same jobs without: rows, counts, checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.clock import ManualClock
from dataflow.planning.physical_plan import make_plan
from dataflow.runners.attempts import Attempts
from dataflow.runners.binding import LIBRARY
from dataflow.runners.run_result import result_of
from dataflow.runtime.job.build_job import Settings, build
from dataflow.runtime.job.job import Job
from dataflow.runtime.restore.job_ids import random_id
from operators.fusion import cache
from operators.fusion.chains import fuse
from operators.fusion.operator import Fused, Patience
from tests.seeds import each_once

AT_ONCE, NEVER = Patience(load=0, compile=0), Patience(load=1 << 40, compile=1 << 40)
ROWS = 400
TABLE = pa.table(
    {
        "auction": [n * 7919 % 1000 for n in range(ROWS)],
        "price": [None if n % 11 == 0 else n for n in range(ROWS)],
        "channel": pa.array([f"c{n % 3}" for n in range(ROWS)]).dictionary_encode(),
    }
)


def pipeline() -> flow.Pipeline:
    """A run behind the source that ends in a shuffle, and one behind the aggregate that ends in a sink."""
    with flow.Pipeline("bids") as p:
        bids = p.source(op.from_arrow(TABLE, batch_rows=50, splits=2), name="bids")
        some = bids.filter(col("auction") % 3 == 0, name="third")
        cheap = some.select(col("auction"), (col("price") * 0.5 + 1).alias("half"), col("channel"), name="half")
        kept = cheap.filter(col("half") > 20, name="dear")
        sums = kept.key_by("auction").agg(
            col("half").sum().alias("total"), col("channel").count().alias("c"), emit="final", name="sums"
        )
        made = sums.filter(col("total") < 180, name="small").with_columns((col("total") + 1).alias("more"), name="more")
        made.sink(op.collect(), name="out")
    return p


def job(
    patience: Patience,
    store: flow.MemoryStore | None = None,
    *,
    p: flow.Pipeline | None = None,
    mode: str = "aligned",
    delays: Mapping[str, Any] | None = None,
    encode: bool = False,
) -> Job:
    settings = Settings(
        library=replace(LIBRARY, fuse=partial(fuse, patience=patience)),
        pipeline="bids",
        run_id="r",
        make_id=random_id,
        checkpointing=flow.Checkpointing(store or flow.MemoryStore(), mode=mode, keep=50),
        restore="auto",
        clock=ManualClock(),
        submit=lambda lane, job: job(),
        delays=delays or {},
    )
    made = build(make_plan((p or pipeline()).graph, parallelism=2, encode=encode), settings)
    if patience is AT_ONCE:
        for loop in {loop.generated.text: loop for loop in loops(made)}.values():
            cache.load(loop.generated.text)
    return made


def step(job: Job) -> None:
    for task in job.tasks.values():
        task.step()
    job.step()


def finished(job: Job) -> flow.RunResult:
    while not job.over:
        step(job)
    job.close()
    return result_of(job, checkpointed=True, attempts=Attempts(flow.Restarts.none(), 0))


def rows(result: flow.RunResult) -> list[dict[str, Any]]:
    return sorted(result.table("out").to_pylist(), key=lambda row: row["auction"])


def fused(job: Job) -> list[str]:
    """Operators at the head of a run, with how many operators it has, of first subtasks."""
    nodes = [node for name, task in job.tasks.items() if name.endswith("[0]") for node in task.chain.nodes]
    return [f"{n.name}+{len(n.operator.run.steps) - 1}" for n in nodes if isinstance(n.operator, Fused)]


def loops(job: Job) -> list[Any]:
    operators: list[Any] = [node.operator for task in job.tasks.values() for node in task.chain.nodes]
    operators += [each.first for each in operators if isinstance(each, Fused)]  # those for rows with text
    return [loop for each in operators if isinstance(each, Fused) for loop in each.loops.values()]


def loaded(job: Job) -> int:
    return sum(loop.kernel.module is not None for loop in loops(job))


def test_a_job_with_loops_has_the_rows_and_counts_of_one_without() -> None:
    plain = finished(job(NEVER))
    looping = job(AT_ONCE)
    assert fused(looping) == ["third+2", "small+1"]
    result = finished(looping)
    assert loaded(looping) > 0
    assert rows(result) == rows(plain)
    assert rows(result)
    for name in ("bids", "third", "half", "dear", "small", "more", "out"):
        one, other = plain.operator(name), result.operator(name)
        assert (one.rows_in, one.rows_out) == (other.rows_in, other.rows_out), name


def test_loops_do_the_work_before_and_after_a_dictionary_becomes_text(tmp_path: Path) -> None:
    keys = [f"k{n % 5}" if n < ROWS // 2 else f"once {n}" for n in range(ROWS)]
    pq.write_table(pa.table({"k": keys, "x": range(ROWS)}), tmp_path / "a.parquet", row_group_size=ROWS // 4)
    with flow.Pipeline("bids") as p:
        bids = p.source(op.read_parquet(tmp_path, split_by="row_group"), name="bids", parallelism=1)
        kept = bids.filter(col("x") % 3 == 0, name="third").select(auction=col("k"), y=col("x") * 2)
        sums = kept.key_by("auction").agg(n=op.count(), s=col("y").sum(), emit="final", name="sums")
        sums.sink(op.collect(), name="out")
    plain, looping = (finished(job(patience, p=p, encode=True)) for patience in (NEVER, AT_ONCE))
    assert rows(looping) == rows(plain)
    values = [loop.values for loop in looping.tuning.of("loop", "third")]
    assert sum(each["interpreted"] + each["compiled"] for each in values) == ROWS
    assert sum(each["compiled"] for each in values) >= ROWS // 2  # the first batch of each type loads its loop


@pytest.mark.parametrize(
    ("pair", "mode"),
    each_once([(AT_ONCE, NEVER), (NEVER, AT_ONCE), (AT_ONCE, AT_ONCE)], ["aligned", "unaligned-persisted"]),
)
def test_a_job_with_loops_and_one_without_restore_each_other(pair: tuple[Patience, Patience], mode: str) -> None:
    before, after = pair
    store = flow.MemoryStore()
    first = job(before, store, mode=mode)
    while first.tasks["bids[0]"].chain.head.tally.rows_in < ROWS // 4:
        step(first)
    wanted = first.checkpoint()
    while not wanted.done():
        step(first)
    first.release()
    store.close()
    second = job(after, store, mode=mode)
    assert second.restore_report is not None
    assert rows(finished(second)) == rows(finished(job(NEVER)))


def test_where_red_rows_are_told_operators_see_their_own() -> None:
    assert fused(job(AT_ONCE, mode="unaligned")) == []


def test_an_operator_that_is_slowed_down_is_not_fused() -> None:
    waited: list[int] = []
    looping = job(AT_ONCE, delays={"dear": waited.append})
    assert fused(looping) == ["third+1", "small+1"]
    assert sum(waited) == 0
    assert finished(looping).operator("dear").rows_in == sum(waited)


def test_a_run_ends_where_rows_have_two_readers_or_an_expression_has_no_loop() -> None:
    with flow.Pipeline("bids") as p:
        bids = p.source(op.from_arrow(TABLE), name="bids").filter(col("price") > 1, name="a")
        bids.filter(col("price") > 2, name="b").filter(col("channel") != "c1", name="c").sink(op.collect(), name="out")
        bids.filter(col("price") > 3, name="d").filter(col("price") > 4, name="e").sink(op.collect(), name="two")
    assert fused(job(NEVER, p=p)) == ["a+0", "b+0", "d+1"]


def test_an_error_names_the_operator_inside_a_run() -> None:
    with flow.Pipeline("bids") as p:
        bids = p.source(op.from_arrow(TABLE, batch_rows=50), name="bids").filter(col("auction") >= 0, name="all")
        far = bids.select((col("auction") * (2**62 // 300)).alias("far"), name="far")
        far.sink(op.collect(), name="out")
    with pytest.raises(OverflowError, match=r"select 'far'.*overflow") as raised:
        finished(job(AT_ONCE, p=p))
    assert any("raised by operator 'far'" in note for note in raised.value.__notes__)
