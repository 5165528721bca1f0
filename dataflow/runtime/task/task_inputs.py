"""Where a task's elements come from: an input gate, or the splits of a source. One face for both.

``poll`` answers what was taken and what the protocol made of it. A trigger starts a checkpoint where no barrier can
arrive through a channel: at a source at once; behind a gate when every channel has ended, for until then rows of the
checkpoint may still be queued there, or earlier where the barrier may overtake these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataflow.clock import duration_text
from dataflow.contracts.declared_schema import DeclaredSchema
from dataflow.contracts.row_errors import ERRORS
from dataflow.contracts.source import END, Json, Source, SourceContext, Split, SplitReader
from dataflow.errors import CheckpointDamaged, CleanupFailedWarning, closing_raised
from dataflow.protocol.actions import Abort, AbortReason, Action, Complete, TakeSnapshot
from dataflow.protocol.events import Barrier, Data, Idle, Watermark
from dataflow.runtime.task.chain import Flow
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.contract_checks import check_offset, check_polled, check_reader, check_rejected
from dataflow.runtime.task.input_gate import InputGate
from dataflow.runtime.task.progress import Progress
from dataflow.runtime.task.source_peers import Peers
from dataflow.untrusted import Count, parsed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ChannelMetrics", "GateInlet", "Inlet", "Input", "SourceInlet", "SplitState"]

_WHOLE = 1 << 30
"""No limit on a batch: the source's own batch size holds."""


@dataclass(frozen=True, slots=True)
class ChannelMetrics:
    """One channel so far: rows put into it, microseconds a barrier blocked it, and microseconds its writer waited for
    room in it.
    """

    name: str
    rows: int
    blocked: int
    back_pressured: int


@dataclass(frozen=True, slots=True)
class Input:
    """What one poll gave: something for the chain's head (or nothing), then actions to carry out behind it.

    ``rejected`` are rows that a source set aside; they come with ``Data``, and leave through a side output.
    """

    port: int
    flow: Flow | None
    actions: Sequence[Action] = ()
    rejected: pa.RecordBatch | None = None


class Inlet(ABC):
    """The head of a task. ``ended``: nothing will ever come from it again, although it stays to take checkpoints.

    ``is_source``: rows come from a source, which rings no bell when it has more, and does not announce the end of time.
    ``splits`` are those of a source, and ``reading`` is how long their readers took (microseconds).
    """

    is_source = False
    splits: Sequence[SplitState] = ()
    reading = 0

    def __init__(self) -> None:
        self.finished = False
        """Set by the task once it has finished (or was restored so): nothing is polled any more."""
        self._held: list[Barrier] = []

    @property
    @abstractmethod
    def ended(self) -> bool: ...

    @property
    @abstractmethod
    def floor(self) -> int:
        """The lowest checkpoint of which a snapshot may still be taken here; rows of a lower epoch are red for none."""

    @abstractmethod
    def poll(self, now: int, max_rows: int | None = None) -> Input | None:
        """The next element, at most ``max_rows`` rows (None: a whole batch); None: nothing now."""

    @abstractmethod
    def poll_control(self, now: int) -> Input | None:
        """The next barrier or cancel that can be reached without taking rows."""

    @abstractmethod
    def abort(self, checkpoint: int, reason: AbortReason, now: int) -> Sequence[Action]:
        """The coordinator gave a checkpoint up."""

    def tick(self, now: int) -> Sequence[Action]:
        """Time passed."""
        return ()

    @property
    def alignment(self) -> int:
        """Microseconds between the first and the last barrier of the checkpoint that was completed last."""
        return 0

    @property
    def input_channels(self) -> Sequence[Channel]:
        """The input channels, by number; a source has none."""
        return ()

    @property
    def blocked(self) -> Collection[int]:
        """The numbers of the channels that wait for the barriers of others."""
        return ()

    @property
    def aligning(self) -> bool:
        """Whether the first barrier of a checkpoint was taken, and its snapshot was not."""
        return False

    @property
    def watermark(self) -> int | None:
        """The watermark of all input channels together; None: there is none yet, or no channel."""
        return None

    def channels(self, now: int) -> Sequence[ChannelMetrics]:
        """Return what each input channel has seen so far."""
        return ()

    @abstractmethod
    def causes(self, state: Progress, now: int) -> list[str]:
        """Return why a task in ``state`` does nothing, as far as its input is the reason."""

    def validate(self) -> None:
        """Assert the invariants that hold between two steps of the task."""

    def close(self) -> list[Exception]:
        """Release resources. Returns: what failed."""
        return []

    def trigger(self, barrier: Barrier) -> None:
        """Start a checkpoint here; ``triggered`` answers when it is time."""
        self._held.append(barrier)

    @property
    def deadline(self) -> int | None:
        """When time alone will change something here (microseconds); None: never."""
        return None

    def triggered(self, now: int) -> Sequence[Action]:
        """The actions of a trigger whose time has come. The chain must not be busy."""
        if not self._held or not (self.finished or self._may_start):
            return ()
        barrier = self._held.pop(0)
        return (TakeSnapshot(barrier), Complete(barrier.checkpoint))

    @property
    @abstractmethod
    def _may_start(self) -> bool: ...

    def _forget(self, checkpoint: int, reason: AbortReason) -> list[Action]:
        kept = [b for b in self._held if b.checkpoint != checkpoint]
        dropped, self._held = len(kept) < len(self._held), kept
        return [Abort(checkpoint, reason)] if dropped else []

    @abstractmethod
    def snapshot(self) -> Mapping[str, Json]:
        """What belongs to the inlet in a checkpoint, as JSON."""


class GateInlet(Inlet):
    """Rows from other tasks. ``ports[i]`` is the input port that channel i of the gate feeds."""

    def __init__(self, gate: InputGate, ports: Sequence[int]) -> None:
        super().__init__()
        self.gate = gate
        self._ports = tuple(ports)

    @property
    def ended(self) -> bool:
        return self.gate.ended

    @property
    def floor(self) -> int:
        return self.gate.floor

    @property
    def _may_start(self) -> bool:
        return self.gate.ended

    def triggered(self, now: int) -> Sequence[Action]:
        if not self._held or self.finished or self.gate.ended:
            return super().triggered(now)
        actions = self.gate.start(self._held[0], now)
        if actions is None:
            return ()
        self._held.pop(0)
        return actions

    @property
    def deadline(self) -> int | None:
        started = [self.gate.starts_at(barrier) for barrier in self._held[:1]]
        return min([at for at in (self.gate.deadline, *started) if at is not None], default=None)

    def poll(self, now: int, max_rows: int | None = None) -> Input | None:
        taken = self.gate.poll(now, max_rows)
        if taken is None:
            return None
        element = taken.element
        flow = element if isinstance(element, Data | Watermark | Idle) else None
        return Input(self._ports[taken.channel], flow, taken.actions)

    def poll_control(self, now: int) -> Input | None:
        taken = self.gate.poll_control(now)
        return None if taken is None else Input(self._ports[taken.channel], None, taken.actions)

    def abort(self, checkpoint: int, reason: AbortReason, now: int) -> Sequence[Action]:
        return self._forget(checkpoint, reason) or self.gate.abort(checkpoint, reason, now)

    def tick(self, now: int) -> Sequence[Action]:
        return self.gate.tick(now)

    def validate(self) -> None:
        self.gate.validate()

    @property
    def alignment(self) -> int:
        return self.gate.alignment

    @property
    def input_channels(self) -> Sequence[Channel]:
        return self.gate.channels

    @property
    def blocked(self) -> Collection[int]:
        return self.gate.blocked

    @property
    def aligning(self) -> bool:
        return self.gate.aligning

    @property
    def watermark(self) -> int | None:
        return self.gate.watermark

    def causes(self, state: Progress, now: int) -> list[str]:
        gate, times = self.gate, self.gate.blocked_time(now)
        causes = [
            f"blocked by its barrier: {gate.channels[i].name} "
            f"({gate.channels[i].queued_rows} rows queued, {duration_text(times[i])} in all)"
            for i in sorted(gate.blocked)
        ]
        if state in (Progress.WAITING, Progress.BLOCKED):
            empty = [c.name for i, c in enumerate(gate.channels) if i not in gate.blocked and len(c) == 0]
            causes += [f"nothing in: {name}" for name in empty]
        return causes

    def channels(self, now: int) -> Sequence[ChannelMetrics]:
        blocked = self.gate.blocked_time(now)
        return [
            ChannelMetrics(c.name, c.rows, b, c.back_pressured)
            for c, b in zip(self.gate.channels, blocked, strict=True)
        ]

    def snapshot(self) -> Mapping[str, Json]:
        return {"watermarks": list(self.gate.watermarks)}


@dataclass(slots=True)
class SplitState:
    """A split and how far it has been read. ``offset`` None: not begun.

    ``rows`` counts those read from its beginning on; None: restored from a checkpoint that did not count them.
    """

    split: Split
    offset: Json = None
    done: bool = False
    rows: int | None = 0

    def to_json(self) -> dict[str, Json]:
        place: dict[str, Json] = {"offset": self.offset, "done": self.done, "rows": self.rows}
        return {"id": self.split.id, "info": self.split.info, **place}


class SourceInlet(Inlet):
    """Rows from the splits of a source that belong to one subtask.

    One split of a bounded source is read to its end before the next begins, unless it has nothing to give for now;
    those of an unbounded one take turns. The epoch of a batch is the id of the last barrier that was sent ahead of it.
    It tells the task's operators which split their rows come from (``LiveSplits``). While the task is too far ahead of
    its ``peers`` nothing is read.
    """

    current = ""
    current_batch = 0

    is_source = True

    def __init__(
        self, source: Source, splits: Sequence[SplitState], context: SourceContext, peers: Peers | None = None
    ) -> None:
        super().__init__()
        self._source = source
        self._context = context
        self._peers = peers or Peers(context.parallelism)
        self.splits = list(splits)
        self._readers: dict[int, SplitReader] = {}
        self._declared: dict[str | None, DeclaredSchema] = {}
        self._current = 0
        self._quiet: dict[str, tuple[int, int]] = {}  # first and last poll without rows, since the last rows
        self._batches: dict[str, int] = {}
        self.tally = context.tally
        self.epoch = 0
        self.reading = 0
        """Microseconds its readers worked, or waited for what they read."""

    @property
    def ended(self) -> bool:
        return all([state.done for state in self.splits])

    @property
    def floor(self) -> int:
        return self.epoch + 1

    @property
    def _may_start(self) -> bool:
        return True

    def triggered(self, now: int) -> Sequence[Action]:
        actions = super().triggered(now)
        for action in actions:
            if isinstance(action, TakeSnapshot):
                self.epoch = action.barrier.checkpoint
        return actions

    def poll(self, now: int, max_rows: int | None = None) -> Input | None:
        if self._peers.ahead(self._context.subtask):
            return None
        for _ in range(len(self.splits)):
            index = self._current
            state = self.splits[index]
            try:
                batch = None if state.done else self._poll(index, state, max_rows)
                rejected = None if batch is None else self._rejected(index)
            except Exception as error:
                self._blame(error, index)
                raise
            if batch is None or not self._source.bounded:  # a split without an end must not keep the others waiting
                self._current = (index + 1) % len(self.splits)
            if batch is not None:
                return self._gave(index, batch, rejected, whole=not self._readers[index].mid_batch)
            if not state.done:
                self._quiet[state.split.id] = (self._quiet.get(state.split.id, (now, now))[0], now)
        return None

    def _gave(self, index: int, batch: pa.RecordBatch, rejected: pa.RecordBatch | None, *, whole: bool) -> Input:
        """Rows that came of a split; ``whole``: they end a batch of the source's."""
        self.current = self.splits[index].split.id
        self._quiet.pop(self.current, None)
        self.current_batch = self.next_batch(self.current)
        self._batches[self.current] = self.current_batch + whole
        return Input(0, Data(batch, self.epoch), rejected=rejected)

    def _rejected(self, index: int) -> pa.RecordBatch | None:
        rejected = self._readers[index].rejected()
        if rejected is None:
            return None
        check_rejected(rejected, self._source, self._where_in(index))
        return self._fitting(index, rejected, ERRORS)

    @property
    def _where(self) -> str:
        name = self._context.name
        return f"source {name!r} ({type(self._source).__name__}), subtask {name}[{self._context.subtask}]"

    def _where_in(self, index: int) -> str:
        return f"{self._where}, split {self.splits[index].split.id!r}"

    def _fitting(self, index: int, batch: pa.RecordBatch, tag: str | None = None) -> pa.RecordBatch:
        """Return a reader's rows in the schema that the source declares for them."""
        declared = self._declared.get(tag)
        if declared is None:
            schema = self._source.schema if tag is None else self._source.sides[tag]
            found, advice = f"{self._where}: a batch of its reader", "change the reader or the schema of the source"
            declared = self._declared[tag] = DeclaredSchema(schema, found, advice)
        return declared.conformed(batch)

    def _blame(self, error: Exception, index: int) -> None:
        """Add a note to ``error`` that names the source and the split whose reader raised it."""
        name, split = self._context.name, self.splits[index].split.id
        error.add_note(f"raised by source {name!r} ({type(self._source).__name__}), split {split!r}")

    def next_batch(self, split: str) -> int:
        return self._batches.get(split, 0)

    def all(self) -> Sequence[str]:
        return [state.split.id for state in self.splits]

    def live(self) -> Sequence[str]:
        return [state.split.id for state in self.splits if not state.done]

    def earliest(self, split: str, column: str) -> int | None:
        (found,) = [state.split for state in self.splits if state.split.id == split]
        return self._source.earliest(found, column)

    def quiet(self, split: str) -> int:
        first, last = self._quiet.get(split, (0, 0))
        return last - first

    def reached(self, clock: str, time: int | None, drift: int) -> None:
        self._peers.reached(clock, self._context.subtask, time, drift)

    def _poll(self, index: int, state: SplitState, max_rows: int | None) -> pa.RecordBatch | None:
        reader = self._readers.get(index)
        if reader is None:
            reader = self._source.reader(state.split, state.offset, self._context)
            check_reader(reader, self._where_in(index))
            self._readers[index] = reader
        started = self._context.clock.now()
        batch = reader.poll(_WHOLE if max_rows is None else max_rows)
        self.reading += self._context.clock.now() - started
        check_polled(batch, lambda: self._where_in(index))
        if batch is END:
            self._end(index)
            return None
        if batch is not None:
            batch = self._fitting(index, batch)
        if batch is not None and state.rows is not None:
            state.rows += batch.num_rows
        return batch

    def _end(self, index: int) -> None:
        state = self.splits[index]
        state.done = True
        self._quiet.pop(state.split.id, None)
        reader = self._readers.pop(index, None)
        if reader is not None:
            self._keep_offset(index, reader)
            error = self._closed(index, reader)
            if error is not None:  # noted now, and not at the end of a job that may never end
                where = f"source {self._context.name!r}, subtask {self._context.subtask}"
                self._context.notify(CleanupFailedWarning, closing_raised(where, error))

    def _closed(self, index: int, reader: SplitReader) -> Exception | None:
        """Close a reader. Returns: what it raised. It has given its rows, so the job does not fail."""
        try:
            reader.close()
        except Exception as error:
            self._blame(error, index)
            return error
        return None

    def _keep_offset(self, index: int, reader: SplitReader) -> None:
        offset = reader.offset
        check_offset(offset, lambda: self._where_in(index))
        self.splits[index].offset = offset

    def causes(self, state: Progress, now: int) -> list[str]:
        return ["its source has nothing to give"] if state is Progress.WAITING else []

    def turns(self, now: int) -> Mapping[str, Json]:
        """For an inlet that goes on from here: whose turn it is, for how long splits were quiet, what peers know."""
        quiet: Json = {split: now - first for split, (first, _) in self._quiet.items()}
        clocks: Json = {name: list(told) for name, told in self._peers.told(self._context.subtask).items()}
        return {"turn": self._current, "quiet": quiet, "clocks": clocks}

    def go_on(self, turns: Mapping[str, Json], now: int) -> None:
        """Restore the read position that ``turns`` returned; entries may be missing. Raises: CheckpointDamaged."""
        what = f"the turns of source {self._context.name!r}"
        turn = parsed(Count, turns.get("turn", 0), what)
        if turn and turn >= len(self.splits):
            raise CheckpointDamaged(f"{what}: it is the turn of split {turn} of {len(self.splits)}")
        self._current = turn
        quiet = parsed(dict[str, Count], turns.get("quiet", {}), what)
        self._quiet = {split: (now - time, now) for split, time in quiet.items()}

    def poll_control(self, now: int) -> Input | None:
        return None

    def abort(self, checkpoint: int, reason: AbortReason, now: int) -> Sequence[Action]:
        return self._forget(checkpoint, reason)

    def snapshot(self) -> Mapping[str, Json]:
        for index, reader in self._readers.items():  # here, not after each poll: an offset may be large
            try:
                self._keep_offset(index, reader)
            except Exception as error:
                self._blame(error, index)
                raise
        return {"splits": [state.to_json() for state in self.splits]}

    def close(self) -> list[Exception]:
        """Close the readers that are open. Returns: what they raised."""
        errors = [self._closed(index, reader) for index, reader in self._readers.items()]
        self._readers.clear()
        return [error for error in errors if error is not None]
