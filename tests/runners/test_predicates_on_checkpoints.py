"""Predicates on the states of checkpoints: money is neither lost nor made, whichever way a checkpoint is taken."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import CheckpointState, col
from dataflow.errors import ConfigurationError
from dataflow.runners.faults import Faults
from dataflow.runtime.job.predicates import WAITING
from dataflow.runtime.task.progress import JobState
from tests.runners.bank import ACCOUNTS, OPENING, ForgetsChannels, bank, conserved, held, transfers
from tests.seeds import in_soak, seeds

ALL = ACCOUNTS * OPENING


class Side(flow.Operator):
    """Counts the rows of all its inputs."""

    def __init__(self, context: flow.OperatorContext) -> None:
        self.rows = context.restored.values["rows"] if context.restored else 0

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        self.rows += batch.num_rows

    def snapshot(self) -> flow.Snapshot:
        return flow.Snapshot({"rows": self.rows})


OVERTAKING = ["unaligned-persisted", "aligned-timeout"]


def checkpoints(mode: str, store: flow.MemoryStore | Path | None = None, **settings: object) -> flow.Checkpointing:
    if mode == "aligned-timeout":
        settings["alignment_timeout"] = "0us"
    return flow.Checkpointing(store or flow.MemoryStore(), every="1ms", mode=mode, **settings)


def simulated(seed: int, settings: flow.Checkpointing, crashes: int = 0) -> flow.SimulatedRunner:
    return bank().start(
        flow.SimulatedRunner(seed, Faults(crashes=crashes, skew=0.5)), parallelism=2, checkpoint=settings
    )


@pytest.mark.parametrize("mode", ["aligned", *OVERTAKING])
def test_the_money_in_accounts_and_in_flight_is_constant_at_every_checkpoint_on_threads(
    mode: str, tmp_path: Path
) -> None:
    flying: list[int] = []

    def constant(state: CheckpointState) -> bool:
        flying.append(state.rows_to("south").num_rows)
        return conserved(state)

    runner, settings = flow.LocalRunner(slow={"south": "100us"}), checkpoints(mode, tmp_path)
    with bank().start(runner, parallelism=2, checkpoint=settings) as job:
        answers = job.on_checkpoint(constant)
        done = job.wait()
    # on a busy machine checkpoints come faster than they are evaluated, and the oldest that wait are skipped
    assert sorted([*answers, *answers.skipped]) == [record.checkpoint for record in done.checkpoints]
    assert len(answers) > 1
    assert all(answers.values())
    assert sum(flying) > 0 if mode in OVERTAKING else sum(flying) == 0


def campaign(mode: str, seeds: range) -> tuple[int, int]:
    """Every second seed crashes once. How many checkpoints there were, and how many with money on its way."""
    asked = moving = 0
    for seed in seeds:
        job = simulated(seed, checkpoints(mode), crashes=seed % 2)
        answers = job.on_checkpoint(conserved)
        in_accounts = job.on_checkpoint(lambda state: held(state) == ALL)
        job.wait()
        assert all(answers.values()), f"seed {seed}: {answers}"
        asked += len(answers)
        moving += list(in_accounts.values()).count(False)  # without the channels money seems to vanish
    return asked, moving


@pytest.mark.parametrize("mode", [OVERTAKING[0], *in_soak("aligned", *OVERTAKING[1:])])
def test_the_money_is_constant_on_any_schedule_and_across_crashes(mode: str) -> None:
    asked, moving = campaign(mode, range(3))
    assert asked > 18
    assert moving > 6 if mode in OVERTAKING else moving == 0


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["aligned", *OVERTAKING])
def test_the_money_is_constant_on_many_schedules(mode: str) -> None:
    asked, moving = campaign(mode, range(100, 160))
    assert asked > 600
    assert moving > 150 if mode in OVERTAKING else moving == 0


@pytest.mark.parametrize("mode", [OVERTAKING[0], *in_soak(*OVERTAKING[1:])])
def test_a_protocol_that_forgets_channels_is_found_out(mode: str) -> None:
    job = simulated(1, checkpoints(mode, ForgetsChannels(["south[1]"])))
    answers = job.on_checkpoint(conserved)
    job.wait()
    assert list(answers.values()).count(False) > 3


def test_the_state_of_an_unaligned_checkpoint_is_that_of_no_moment() -> None:
    job = simulated(3, checkpoints("unaligned"))
    answers = job.on_checkpoint(conserved)
    job.wait()
    assert list(answers.values()).count(False) > 3


def test_duplicates_are_what_the_first_operator_counts_beyond_what_its_source_says_it_read() -> None:
    def counted(state: CheckpointState) -> bool:
        assert not any(state.channels.values())
        read = sum(split["rows"] for i in (0, 1) for split in state.processes[f"orders[{i}]"].values["splits"])
        early = sum(d.rows for d in state.duplicates if d.operator == "counts")
        return sum(state.table("counts")["rows"].to_pylist()) == read + early

    with flow.Pipeline("counts") as p:
        orders = p.source(transfers(), name="orders").key_by("payer")
        orders.agg(op.count().alias("rows"), emit="updates", name="counts").sink(op.collect(), name="out")
    job = p.start(flow.SimulatedRunner(3, Faults(skew=0.5)), parallelism=2, checkpoint=checkpoints("unaligned"))
    answers = job.on_checkpoint(counted)
    assert max(record.duplicated for record in job.wait().checkpoints) > 0
    assert all(answers.values())


# --- what is in a state


def test_the_state_names_subtasks_and_channels_as_the_rest_of_the_library_does() -> None:
    seen: list[CheckpointState] = []
    job = simulated(2, checkpoints("unaligned-persisted"))
    job.on_checkpoint(lambda state: seen.append(state) is None)
    job.wait()
    state = next(state for state in seen if any(state.channels.values()))
    assert [*state.processes][:2] == ["orders[0]", "orders[1]"]
    assert {str(channel) for channel in state.channels} >= {"north[0] -> south[0]", "north[1] -> south[0]"}
    assert len(state.channels) == 8
    assert sum(rows.num_rows for rows in state.in_flight) == sum(
        state.rows_to(name).num_rows for name in ("north", "south")
    )
    assert f"checkpoint {state.snapshot}, unaligned-persisted" in str(state)
    assert "rows in flight" in str(state)


def test_a_source_says_how_far_it_was_read() -> None:
    def as_far(state: CheckpointState) -> bool:
        splits = [split for i in (0, 1) for split in state.processes[f"orders[{i}]"].values["splits"]]
        return all([split["done"] and split["rows"] == 100 for split in splits])

    job = simulated(2, checkpoints("aligned"))
    answers = job.on_checkpoint(as_far)
    job.wait()
    assert (answers[1], list(answers.values())[-1]) == (False, True)


def test_two_channels_between_the_same_tasks_are_told_apart_by_their_input() -> None:
    with flow.Pipeline("twins") as p:
        orders = p.source(transfers(), name="orders")
        both = orders.key_by("payer").apply(Side, orders.key_by("payee"), name="both")
        both.sink(op.collect(), name="out")
    job = p.start(flow.SimulatedRunner(6, Faults(skew=0.5)), checkpoint=checkpoints("unaligned-persisted"))

    def taken_or_flying(state: CheckpointState) -> bool:
        read = sum(split["rows"] for split in state.processes["orders[0]"].values["splits"])
        names = [str(channel) for channel in state.channels]
        assert names == ["orders[0] -> both[0] (input 0)", "orders[0] -> both[0] (input 1)"]
        return state.rows_to("both").num_rows + state.processes["both[0]"].values["rows"] == 2 * read

    answers = job.on_checkpoint(taken_or_flying)
    job.wait()
    assert len(answers) > 1
    assert all(answers.values())


@pytest.mark.parametrize("name", ["both -> all", "orders -> x -> y", "b (input 1)"])
def test_rows_to_an_operator_are_found_whatever_it_is_called(name: str) -> None:
    with flow.Pipeline("arrows") as p:
        orders = p.source(transfers(), name="all -> orders")
        both = orders.key_by("payer").apply(Side, orders.key_by("payee"), name=name)
        both.sink(op.collect(), name="out")
    job = p.start(flow.SimulatedRunner(6, Faults(skew=0.5)), checkpoint=checkpoints("unaligned-persisted"))
    flying: list[int] = []

    def all_found(state: CheckpointState) -> bool:
        flying.append(state.rows_to(name).num_rows)
        return flying[-1] == sum(rows.num_rows for rows in state.in_flight)

    answers = job.on_checkpoint(all_found)
    job.wait()
    assert all(answers.values())
    assert sum(flying) > 0


def test_asking_for_an_operator_that_is_not_there_names_those_that_are() -> None:
    job = simulated(1, checkpoints("aligned"))
    job.on_checkpoint(lambda state: state.table("nroth").num_rows > 0)
    with pytest.raises(KeyError, match="did you mean 'north'"):
        job.wait()


def windowed(rows: int, *, batch_rows: int) -> flow.Pipeline:
    times = pa.array([i * 10_000_000 // rows for i in range(rows)], pa.timestamp("us"))
    table = pa.table({"t": times, "k": [i % 3 for i in range(rows)], "x": [1] * rows})
    with flow.Pipeline("windowed") as p:
        timed = p.source(op.from_arrow(table, batch_rows=batch_rows, splits=2), name="in").with_watermark(
            "t", delay="10s"
        )
        sums = timed.key_by("k").window(op.tumbling("1s")).agg(col("x").sum().alias("x"), name="sums")
        sums.sink(op.collect(), name="out")
    return p


@pytest.mark.parametrize(("rows", "batch_rows"), [(600, 10), (100_000, 5_000)])  # the larger batches are folded
def test_the_state_of_windows_is_shown_in_the_columns_they_emit(rows: int, batch_rows: int) -> None:
    folded: list[bool] = []

    def counted(state: CheckpointState) -> bool:
        places = [state.processes[f"in[{i}]"].values["splits"] for i in (0, 1)]
        kept, flying = state.table("sums"), state.rows_to("sums")
        folded.extend("window_end" in batch.schema.names for batch in state.in_flight)
        assert kept.schema.names == ["k", "window_start", "window_end", "x"]
        if all([split["done"] for splits in places for split in splits]):
            return True  # windows have come out, or are about to
        read = sum(split["rows"] for splits in places for split in splits)
        return read == sum(kept["x"].to_pylist()) + sum(flying["x"].to_pylist())

    job = windowed(rows, batch_rows=batch_rows).start(
        flow.SimulatedRunner(5, Faults(skew=0.5)), parallelism=2, checkpoint=checkpoints("unaligned-persisted")
    )
    answers = job.on_checkpoint(counted)
    job.wait()
    assert len(answers) > 3
    assert all(answers.values())
    assert any(folded) == (batch_rows > 4_096)


# --- what comes of an answer


def test_a_predicate_that_raises_fails_the_job_and_is_named() -> None:
    def no_more_than_ten(state: CheckpointState) -> bool:
        assert state.table("south").num_rows < 3
        return True

    job = simulated(1, checkpoints("aligned"))
    answers = job.on_checkpoint(no_more_than_ten)
    with pytest.raises(AssertionError) as caught:
        job.wait()
    assert "no_more_than_ten' on the state of checkpoint" in caught.value.__notes__[0]
    assert answers.error is caught.value


def test_an_answer_that_is_neither_true_nor_false_is_refused() -> None:
    job = simulated(1, checkpoints("aligned"))
    job.on_checkpoint(lambda state: pa.scalar(state.snapshot == 0))
    with pytest.raises(TypeError, match=r"expected True or False, got .*BooleanScalar.*as_py"):
        job.wait()


def test_a_job_stops_with_a_last_checkpoint_when_a_stable_predicate_holds() -> None:
    store = flow.MemoryStore()
    job = simulated(4, checkpoints("unaligned-persisted", store))
    answers = job.stop_when(lambda state: sum(state.table("south")["amount"].to_pylist()) > 500)
    done = job.wait()
    assert done.state is JobState.STOPPED
    assert answers.first is not None
    assert max(answers) > answers.first
    assert answers.lapsed is None
    again = simulated(4, checkpoints("unaligned-persisted", store))
    rest = again.on_checkpoint(conserved)
    assert again.wait().state is JobState.FINISHED
    assert min(rest) > max(answers)
    assert all(rest.values())


@pytest.mark.parametrize("seed", seeds(2, 5))
def test_a_predicate_that_first_holds_at_the_end_lets_the_job_finish(seed: int) -> None:
    job = simulated(seed, checkpoints("aligned"))
    everything = job.stop_when(
        lambda state: all([s["done"] for i in (0, 1) for s in state.processes[f"orders[{i}]"].values["splits"]])
    )
    assert job.wait().state in (JobState.FINISHED, JobState.STOPPED)
    assert everything.first is not None


def test_a_predicate_that_is_not_stable_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    job = simulated(1, checkpoints("aligned"))
    answers = job.on_checkpoint(lambda state: state.snapshot == 2)
    job.wait()
    assert (answers.first, answers.lapsed) == (2, 3)
    assert caplog.text.count("is not stable: it no longer held at checkpoint 3") == 1


# --- when it is asked


def test_a_predicate_that_comes_late_is_asked_about_the_newest_checkpoint_first() -> None:
    with bank().start(checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1h")) as job:
        done = job.wait()
        answers = job.on_checkpoint(conserved)
    assert dict(answers) == {done.checkpoints[-1].checkpoint: True}


def test_what_one_raises_that_came_too_late_to_fail_the_job_is_kept_in_its_answers() -> None:
    with bank().start(checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1h")) as job:
        job.wait()
        answers = job.on_checkpoint(lambda state: state.table("west").num_rows > 0)
    assert "there is no operator 'west'" in str(answers.error)
    assert job.state is JobState.FINISHED


def test_predicates_belong_to_jobs_with_checkpoints_and_can_be_called() -> None:
    with pytest.raises(ConfigurationError, match=r"predicate 'conserved' .* checkpoint=Checkpointing"):
        bank().start(flow.SimulatedRunner(1)).on_checkpoint(conserved)
    with pytest.raises(ConfigurationError, match=r"expected a function .*, got 3 \(int\)"):
        simulated(1, checkpoints("aligned")).on_checkpoint(3)


def test_a_predicate_cannot_wait_for_the_job_that_waits_for_it() -> None:
    with bank().start(checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1h")) as job:
        job.on_checkpoint(lambda state: job.stop() is not None)
        with pytest.raises(RuntimeError, match=r"would wait for the predicate; use job\.stop_when"):
            job.wait()


def test_a_slow_predicate_holds_up_neither_the_job_nor_its_commits_and_is_asked_about_what_it_can() -> None:
    go_on = threading.Event()
    slow = flow.LocalRunner(slow={"north": "10ms"})
    settings = flow.Checkpointing(flow.MemoryStore(), every="1h", keep=1)
    with bank().start(slow, checkpoint=settings) as job:
        answers = job.on_checkpoint(lambda state: go_on.wait(60) and conserved(state))
        taken = [job.checkpoint(timeout="60s") for _ in range(12)]
        assert "<lambda>' is being evaluated at checkpoint 1" in job.who_waits()
        assert not answers  # it still looks at the first, while twelve are durable and committed
        go_on.set()
        last = job.stop().checkpoints[-1].checkpoint
    assert sorted([*answers, *answers.skipped]) == [*taken, last]
    assert len(answers.skipped) >= 12 - 1 - WAITING
    assert all(answers.values())
