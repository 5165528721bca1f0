"""Random scripts of one task that starts with put-back rows, crashes, and is restored from its own checkpoints."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.background import Submit
from dataflow.clock import ManualClock
from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.operator import Operator, Out, Snapshot
from dataflow.protocol.actions import AbortReason
from dataflow.protocol.alignment import Aligner, EndOfInputPolicy
from dataflow.protocol.events import Barrier, BarrierKind, Cancel, Data, EndOfInput
from dataflow.protocol.handler import BarrierHandler
from dataflow.protocol.overtaking import Overtaker
from dataflow.protocol.tracking import Tracker
from dataflow.runners.binding import LIBRARY
from dataflow.runtime.task.chain import Chain, ChainNode
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.channel_input import ChannelInput
from dataflow.runtime.task.input_gate import InputGate
from dataflow.runtime.task.messages import AbortCheckpoint, Acknowledged, Ended, Mailbox
from dataflow.runtime.task.outputs import ForwardOutput
from dataflow.runtime.task.parts import ChannelState, TaskState
from dataflow.runtime.task.put_back import PutBack, PutBackQueue, put_back_id
from dataflow.runtime.task.services import Services
from dataflow.runtime.task.task import Task
from dataflow.store.memory import MemoryStore
from tests.runtime.task.test_task import batch

TIMEOUT = 15
INLINE: Submit = lambda lane, job: job()  # noqa: E731


class Keeper(Operator):
    """Keeps the rows that it took, with their ports, as its state, and passes them on."""

    def __init__(self, taken: Sequence[Sequence[int]] = ()) -> None:
        self.taken = [tuple(row) for row in taken]

    def process(self, port: int, rows: pa.RecordBatch, out: Out) -> None:
        self.taken += [(port, value) for value in rows["x"].to_pylist()]
        out.emit(rows)

    def snapshot(self) -> Snapshot:
        return Snapshot({"taken": [list(row) for row in self.taken]})


def handler_of(mode: Mode, edges: set[int]) -> BarrierHandler:
    match mode:
        case Mode.ALIGNED:
            return Aligner(2, end_of_input=EndOfInputPolicy.ALIGN)
        case Mode.UNALIGNED:
            return Tracker(2)
        case _:
            return Overtaker(2, aligned_edges=edges, timeout=TIMEOUT if mode is Mode.ALIGNED_TIMEOUT else None)


class Attempt:
    """The task from its start to a crash or its end, in one mode, as ``state`` left it."""

    def __init__(self, mode: Mode, state: TaskState, rng: random.Random) -> None:
        overtakes = mode in (Mode.UNALIGNED_PERSISTED, Mode.ALIGNED_TIMEOUT)
        edges = {rng.randrange(2)} if rng.random() < 0.2 else set()
        self.mode, self.rng, self.clock, self.store = mode, rng, ManualClock(), MemoryStore()
        self.reports: Mailbox[Any] = Mailbox()
        self.channels = [Channel(4, name, overtakable=overtakes and i not in edges) for i, name in enumerate("ab")]
        self.output = Channel(rng.randint(1, 3), "y")
        taken: Any = state.operators["op"].values["taken"] if state.operators else ()
        self.keeper, node = Keeper(taken), ChainNode("op", None, self.clock)
        node.operator, node.outputs = self.keeper, {None: [ForwardOutput([self.output])]}
        gate = InputGate(self.channels, handler_of(mode, edges), lambda ready: rng.choice(ready), [0, 1])
        for channel in self.channels:
            (flown,) = [s for s in state.in_flight if s.channel == channel.name] or [None]
            channel.preload(flown.elements if flown else ())
        back = [flown for flown in state.in_flight if flown.generation]
        self.task = Task(
            "op[0]",
            ChannelInput(gate),
            Chain([node]),
            Services(self.store, INLINE, self.clock, self.reports, LIBRARY),
            put_back=PutBack([queue_of(one) for one in sorted(back, key=lambda one: (one.generation, one.port or 0))]),
        )

    def step(self) -> None:
        self.clock.advance(1)
        self.task.step()
        self.task.validate()

    def drain(self) -> None:
        while self.output.next is not None:
            self.output.take_urgent() if self.output.is_urgent else self.output.take()

    def parts(self) -> dict[int, TaskState]:
        found = [report for report in list(self.reports._queue) if isinstance(report, Acknowledged)]
        return {ack.checkpoint: TaskState.decode(self.store.read(ack.checkpoint, ack.parts[0])) for ack in found}


def queue_of(state: ChannelState) -> PutBackQueue:
    assert state.port is not None
    rows = Channel(1, put_back_id("op", 0, state.port, state.generation).name)
    assert state.channel == rows.name
    rows.preload(state.elements)
    return PutBackQueue("op", state.port, state.generation, rows)


@dataclass
class Input:
    """All that is ever put on a channel: rows and, by checkpoint, how many of them precede its barrier."""

    rows: list[int]
    marks: dict[int, int] = field(default_factory=dict)
    put: int = 0


def first_state(rng: random.Random) -> tuple[TaskState, list[tuple[int, int]]]:
    """A state with put-back rows only, and these with their ports, in their order."""
    states, expected = [], []
    for generation in (1, 2):
        for port in (0, 1):
            values = [-100 * generation - 10 * port - i for i in range(rng.randrange(6))]
            cut = rng.randint(0, len(values))
            name = put_back_id("op", 0, port, generation).name
            rows = [Data(batch(*some)) for some in (values[:cut], values[cut:]) if some]
            if rows:
                states.append(ChannelState("op", "op[0]", name, rows, port=port, generation=generation))
            expected += [(port, value) for value in values]
    return TaskState("op[0]", in_flight=states), expected


def feed(attempt: Attempt, one: Input, index: int, newest: list[int]) -> None:
    """Put the next row or barrier on a channel."""
    rng, channel = attempt.rng, attempt.channels[index]
    if channel.ended:
        return
    if rng.random() < 0.6 and one.put < len(one.rows) and channel.has_credit:
        channel.put(Data(batch(one.rows[one.put]), newest[index]))
        one.put += 1
    elif rng.random() < 0.5 and newest[index] < newest[1 - index] + 2:
        newest[index] += 1
        one.marks[newest[index]] = one.put
        if rng.random() < 0.1:
            channel.put(Cancel(newest[index]))
        else:
            channel.put(barrier(attempt, newest[index]))


def barrier(attempt: Attempt, n: int) -> Barrier:
    now = attempt.clock.now()
    attempt.task.ledger.triggered(n, [attempt.task.name], now)
    if n % 5 == 0:
        return Barrier(n, BarrierKind.SAVEPOINT, triggered_at=now)
    return Barrier(n, triggered_at=now, unaligned=attempt.mode is Mode.UNALIGNED_PERSISTED)


def feed_the_rest(attempt: Attempt, inputs: Sequence[Input]) -> None:
    for channel, one in zip(attempt.channels, inputs, strict=True):
        if not channel.ended:
            for value in one.rows[one.put :]:
                channel.put(Data(batch(value)))
            channel.put(EndOfInput())
    for _ in range(200):
        attempt.step()
        attempt.drain()
    ends = [report for report in list(attempt.reports._queue) if isinstance(report, Ended)]
    assert ends, "the task did not come to its end"


def run(seed: int) -> int:
    """Run one script, and check what was taken; return the put-back rows that restored checkpoints had left."""
    rng = random.Random(seed)
    state, put_back = first_state(rng)
    inputs = [Input(list(range(start, start + 12))) for start in (0, 1_000)]
    left, is_exact, highest = 0, True, 0
    for _ in range(3):
        begun = [one.put for one in inputs]
        attempt = Attempt(rng.choice(list(Mode)), state, rng)
        highest, parts = play(attempt, inputs, highest), attempt.parts()
        if parts:
            n = max(parts)
            state, begun = parts[n], [one.marks[n] for one in inputs]
            left += sum([flown.rows for flown in state.in_flight if flown.generation])
            is_exact = is_exact and not state.duplicates
        for one, start in zip(inputs, begun, strict=True):
            one.put = start
    attempt = Attempt(rng.choice(list(Mode)), state, rng)
    play(attempt, inputs, highest)
    feed_the_rest(attempt, inputs)
    taken = attempt.keeper.taken
    assert taken[: len(put_back)] == put_back, f"seed {seed}"
    for port, one in enumerate(inputs):
        values = [value for at, value in taken[len(put_back) :] if at == port]
        assert values == one.rows if is_exact else set(values) == set(one.rows), f"seed {seed}, port {port}: {values}"
    return left


def play(attempt: Attempt, inputs: Sequence[Input], highest: int) -> int:
    """Do random things with the task; return the highest checkpoint so far."""
    rng, newest = attempt.rng, [highest] * 2
    for _ in range(rng.randrange(60)):
        match rng.randrange(8):
            case 0 | 1 | 2 | 3 as turn:
                feed(attempt, inputs[turn % 2], turn % 2, newest)
            case 4 if rng.random() < 0.5:
                attempt.drain()
            case 5 if rng.random() < 0.1 and max(newest) > highest:
                attempt.task.mailbox.put(AbortCheckpoint(max(newest), AbortReason.EXPIRED))
            case _:
                attempt.step()
    return max(newest)


@given(st.integers(min_value=0))
def test_put_back_rows_are_taken_once_in_order_and_first_in_any_mode_and_across_restores(seed: int) -> None:
    run(seed)


def test_these_scripts_store_put_back_rows_that_are_left() -> None:
    assert sum([run(seed) for seed in range(25)]) > 20


@pytest.mark.extended
def test_the_same_for_more_scripts() -> None:
    assert sum([run(seed) for seed in range(40, 400)]) > 300
