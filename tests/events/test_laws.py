"""The simulator asserts the laws of events: with a fault in what is recorded, one of them fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import ConfigurationError
from dataflow.events.kinds import Kind
from dataflow.events.recorder import EventWriter
from dataflow.runners.event_laws import check_events
from dataflow.runners.faults import Faults
from dataflow.runtime.task.input_gate import InputGate
from dataflow.views.events import Events
from tests.forcing import counted_calls
from tests.seeds import seeds

MODES = ("aligned", "unaligned", "unaligned-persisted", "aligned-timeout")


def run(seed: int, mode: str = "aligned", **faults: Any) -> flow.RunResult:
    """Join two streams under a seed, with a checkpoint each few simulated milliseconds."""
    with flow.Pipeline("joined") as p:
        left = p.source(op.from_arrow(pa.table({"k": range(60)}), splits=2, batch_rows=3), name="left")
        right = p.source(op.from_arrow(pa.table({"k": range(60)}), splits=2, batch_rows=3), name="right")
        left.join(right, on="k", name="join").sink(op.collect(), name="out")
    settings = flow.Checkpointing(flow.MemoryStore(), every="5ms", mode=mode)
    runner, restarts = flow.SimulatedRunner(seed, Faults(skew=0.5, **faults)), flow.Restarts.fixed(3, "0s")
    return p.run(runner, parallelism=2, checkpoint=settings, restarts=restarts)


def with_kind(events: Events, kind: str) -> pa.Table:
    return events.table.filter(pc.equal(events.table["kind"].cast("string"), kind))


@pytest.mark.parametrize("mode", MODES)
def test_equal_seeds_give_equal_events(mode: str) -> None:
    first, second = run(3, mode, crashes=1).events, run(3, mode, crashes=1).events
    assert first.table.equals(second.table, check_metadata=True)
    assert len(set(first.table["attempt"].to_pylist())) == 2


def test_on_threads_a_checkpoint_is_durable_its_duration_after_its_trigger() -> None:
    with flow.Pipeline("numbers") as p:
        p.source(op.from_arrow(pa.table({"x": [1]})), name="in").sink(op.collect(), name="out")
    with p.start(checkpoint=flow.Checkpointing(flow.MemoryStore())) as job:
        result = job.wait()
    (triggered,), (durable,) = [with_kind(result.events, kind).to_pylist() for kind in ("triggered", "durable")]
    assert durable["time"] - triggered["time"] == durable["duration"] == result.checkpoints[0].duration


@pytest.mark.parametrize("mode", MODES)
def test_events_add_up_to_what_the_result_says(mode: str) -> None:
    result = run(5, mode)
    blocked = with_kind(result.events, "unblocked").group_by("channel").aggregate([("duration", "sum")]).to_pylist()
    assert {row["channel"]: row["duration_sum"] for row in blocked if row["duration_sum"]} == dict(result.blocked)
    for record in result.checkpoints:
        complete = with_kind(result.events, "complete")
        rows = pc.sum(complete.filter(pc.equal(complete["checkpoint"], record.checkpoint))["rows"]).as_py()
        assert rows == record.in_flight_rows
        durable = [
            row for row in with_kind(result.events, "durable").to_pylist() if row["checkpoint"] == record.checkpoint
        ]
        assert [(row["duration"], row["bytes"], row["rows"]) for row in durable] == [
            (record.duration, record.size, record.in_flight_rows)
        ]


def test_rows_that_a_restore_repeats_are_recorded_by_operator() -> None:
    results = [run(seed, "unaligned") for seed in range(4)]
    stored = [record for result in results for record in result.checkpoints if record.duplicated]
    assert stored
    for result in results:
        repeats = with_kind(result.events, "repeats").group_by(["checkpoint", "operator"]).aggregate([("rows", "sum")])
        most: dict[int, int] = {}
        for row in repeats.to_pylist():
            most[row["checkpoint"]] = max(row["rows_sum"], most.get(row["checkpoint"], 0))
        assert most == {record.checkpoint: record.duplicated for record in result.checkpoints if record.duplicated}


def without(kind: Kind) -> Callable[[pytest.MonkeyPatch], None]:
    """Record no event of a kind."""

    def put_back(monkeypatch: pytest.MonkeyPatch) -> None:
        record = EventWriter.record

        def skip(writer: EventWriter, which: Kind, *args: Any, **fields: Any) -> None:
            if which is not kind:
                record(writer, which, *args, **fields)

        monkeypatch.setattr(EventWriter, "record", skip)

    return put_back


def arrive_at_the_start_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived = InputGate._arrived

    def earlier(gate: InputGate, index: int, checkpoint: int, now: int, *rest: Any) -> None:
        arrived(gate, index, checkpoint, now - 1_000, *rest)

    monkeypatch.setattr(InputGate, "_arrived", earlier)


def meter_a_little_less(monkeypatch: pytest.MonkeyPatch) -> None:
    record = EventWriter.record

    def less(writer: EventWriter, which: Kind, time: int, *args: Any, **fields: Any) -> None:
        if which is Kind.UNBLOCKED:
            fields["duration"] -= 1
        record(writer, which, time, *args, **fields)

    monkeypatch.setattr(EventWriter, "record", less)


def unblock_by_the_next_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    record = EventWriter.record

    def another(writer: EventWriter, which: Kind, time: int, checkpoint: int | None = None, **fields: Any) -> None:
        number = (checkpoint or 0) + 1 if which is Kind.UNBLOCKED else checkpoint
        record(writer, which, time, number, **fields)

    monkeypatch.setattr(EventWriter, "record", another)


def be_durable_a_little_later(monkeypatch: pytest.MonkeyPatch) -> None:
    record = EventWriter.record

    def later(writer: EventWriter, which: Kind, time: int, *args: Any, **fields: Any) -> None:
        if which is Kind.DURABLE:
            fields["duration"] += 1
        record(writer, which, time, *args, **fields)

    monkeypatch.setattr(EventWriter, "record", later)


FAULTS = [
    (without(Kind.ARRIVED), "never arrived"),
    (without(Kind.SENT), "nobody sent it"),
    (without(Kind.UNBLOCKED), "was blocked"),
    (without(Kind.SNAPSHOT), "snapshot differ|have no part|KeyError"),
    (without(Kind.COMPLETE), "differ"),
    (without(Kind.PART), "differ"),
    (without(Kind.DURABLE), "have no outcome"),
    (arrive_at_the_start_of_the_step, "has a later time|sent later"),
    (meter_a_little_less, "it was blocked at"),
    (unblock_by_the_next_checkpoint, "events say"),
    (be_durable_a_little_later, "its duration is wrong"),
]


@pytest.mark.parametrize(("put_back", "why"), FAULTS)
def test_a_fault_in_what_is_recorded_breaks_a_law(
    put_back: Callable[[pytest.MonkeyPatch], None], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_back(monkeypatch)
    with pytest.raises(AssertionError, match=why):
        run(5)


@pytest.mark.parametrize("seed", seeds(4, 2_000, extended=40))
def test_the_laws_hold_under_faults(seed: int) -> None:
    mode = MODES[seed % len(MODES)]
    faults: dict[str, Any] = [
        {},
        {"crashes": 1},
        {"crashes": 2, "slow": 0.3, "stall": 0.02},
        {"fail": 0.05, "slow": 0.2},
    ][seed // 4 % 4]
    run(seed, mode, **faults)


def test_the_laws_are_asserted_after_a_crash_as_well() -> None:
    with counted_calls(check_events) as counted:
        result = run(3, crashes=1)
    assert counted.total == result.restarts + 1 == 2


def test_a_simulated_job_has_the_events_of_all_attempts() -> None:
    with flow.Pipeline("one") as p:
        p.source(op.from_arrow(pa.table({"x": range(9)}), batch_rows=1), name="in").sink(op.collect(), name="out")
    job = p.start(
        flow.SimulatedRunner(3, Faults(crashes=1)), checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms")
    )
    with pytest.raises(ConfigurationError, match="the job has not begun"):
        job.events()
    result = job.wait()
    assert job.events().table.equals(result.events.table)
