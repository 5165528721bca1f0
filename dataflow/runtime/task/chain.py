"""The operators fused in one task: a tree in which rows pass from call to call without a queue between threads.

Each operator has an inbox. One ``advance`` does one unit of work of the operator that is furthest downstream, so rows
leave before more are made, and a long emission (a generator) is resumed only after its earlier rows have left. A
barrier may be taken only if the chain is not ``busy``: then all elements that it was given have left it.

The end of an input consists of three calls of each operator, in this order: ``ended``, ``advance`` with the last
watermark, ``finish``. Between two operators it is one step: an operator passes on the last watermark with the end,
after the rows of its own ``finish``.

Colour (EWD 864a): an operator's rows carry the epoch of the batch they come from; a stateful operator's rows carry the
highest epoch it ever absorbed, because its state contains those rows.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from types import GeneratorType

import pyarrow as pa

from dataflow.clock import Clock, OperatorClock
from dataflow.contracts.kept_rows import RowKeeper
from dataflow.contracts.live_splits import HeldBySplit
from dataflow.contracts.operator import Operator, Snapshot
from dataflow.contracts.operator_metrics import OperatorMetrics
from dataflow.contracts.resources import MayHoldResources
from dataflow.contracts.row_errors import ERRORS, RowTally
from dataflow.contracts.sink import Handle, TwoPhaseWriter
from dataflow.errors import ContractViolation
from dataflow.protocol.events import Barrier, Cancel, Data, EndOfInput, Idle, LastWatermark, PortEnded, Watermark
from dataflow.protocol.red_log import RedLog
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.contract_checks import Declared, check_emission, check_handles, check_opened, check_snapshot
from dataflow.runtime.task.crash_points import Point, Probe, no_probe
from dataflow.runtime.task.outputs import Output
from dataflow.runtime.task.parts import StoredRange
from dataflow.runtime.task.ranged_operator import RangedOperator

__all__ = ["Chain", "ChainNode"]

Flow = Data | Watermark | Idle | PortEnded | LastWatermark | EndOfInput
"""The elements of a chain. ``EndOfInput`` means here that *all* inputs of the task ended."""


class ChainNode:
    """One operator with its inbox, its place in the tree, and its tally.

    ``delay``, if set, is called with the number of rows before the operator takes them: it slows the operator down for
    demonstrations. ``declared`` has the outputs that a user's operator declared, and emitted batches must match them;
    None: an operator of the library. ``task`` is the subtask, for messages. ``in_batch``: the node is part of a batch,
    where time moves only at the end. ``stores``: whether its state is stored; in a batch, only that of sinks. ``red``
    gets the rows that come from ``parent``; None: a restore delivers none of them again (or, at the head, the gate
    counts them). ``clock`` is the operator's, and ``meter`` measures how long it works.

    An operator that makes time decides alone when its output is idle, once it has had a row or made some time. Until
    then it has nothing that time could wait for, so the idleness of its input is passed on.

    Invariant: at most one generator is pending, and nothing is taken from the inbox while one is.
    Invariant: the watermarks that an operator passes on rise, across restores, too, except that one may be repeated
    after ``Idle``, which it ends.
    """

    operator: Operator
    delay: Callable[[int], None] | None = None
    declared: Declared | None = None
    task: str = ""
    in_batch: bool = False
    stores: bool = True

    def __init__(self, name: str, parent: str | None, clock: OperatorClock, red: RedLog[str] | None = None) -> None:
        self.name = name
        self.parent = parent
        self.children: dict[str | None, list[ChainNode]] = {}
        self.outputs: dict[str | None, list[Output]] = {}
        self.inbox: deque[tuple[int, Flow]] = deque()
        self.pending: Iterator[None] | None = None
        self.forward: Flow | None = None
        self.reached: int | None = None  # the last watermark that the operator was given, since a restore
        self._ended_ports: frozenset[int] = frozenset()  # the ports of which it was told before the restore
        self.passed: int | None = None  # the last one that was passed on instead; part of the snapshot
        self.made: int | None = None  # the last one that the operator made, for metrics
        self._restored: int | None = None  # ``passed`` of the snapshot that it starts from
        self._idle = False  # idleness was passed on after the last watermark
        self.timed = False  # an operator that makes time has had a row or made some; part of the snapshot
        self.epoch = 0
        self.current: Data | None = None
        self.red = red
        self.duplicated: Mapping[str, tuple[Data, ...]] = {}
        self.uncommitted: dict[int, tuple[Handle, ...]] = {}
        self.timers: list[int] = []  # a heap of times by ``clock.now()``
        self.timers_by_clock: list[int] = []  # a heap of times by ``clock.time()``
        self.rang = (0, 0)  # time of its last timer call, and the number of that call in the chain
        self.tally = RowTally()
        self.clock = clock
        self.meter: Clock = clock

    @property
    def busy(self) -> bool:
        return self.pending is not None or bool(self.inbox)

    @property
    def metrics(self) -> OperatorMetrics:
        """The metrics of the operator in this subtask, as they are now."""
        return OperatorMetrics(self.name) + self.tally

    @property
    def held_by(self) -> str | None:
        """The split that holds back the time that the operator makes; None: there is none, or it knows none."""
        return self.operator.held_by if isinstance(self.operator, HeldBySplit) else None

    @property
    def where(self) -> str:
        """The operator and its subtask, for messages."""
        return f"operator {self.name!r} ({type(self.operator).__name__}), subtask {self.task}"

    def restore_time(self, passed: int | None, *, timed: bool = False) -> None:
        """Start from a snapshot: ``passed`` is the last watermark that was passed on. Call this before any element."""
        self.passed = self._restored = passed
        self.timed = timed

    def restore_standing(self, reached: int | None, ended_ports: frozenset[int]) -> None:
        """Start where several old subtasks were: the operator gets only watermarks above ``reached``.

        Call this after ``restore_time`` and before any element.
        """
        self.reached, self._ended_ports = reached, ended_ports

    def send_time(self) -> None:
        """Send the last watermark that was passed on before a restore to other tasks, whose time starts again."""
        if self.passed is not None:
            for outputs in self.outputs.values():
                for output in outputs:
                    output.send(Watermark(self.passed))

    def replace_operator(self, operator: Operator) -> None:
        """Let ``operator`` take the place of the one before it, whose timers are dropped."""
        self.timers.clear()
        self.timers_by_clock.clear()
        self.operator = operator
        self.open()

    @property
    def holds_resources(self) -> bool:
        """Whether it must be closed: a user's operator, a writer, or a user's function that has its own ``close``."""
        operator = self.operator
        if isinstance(operator, MayHoldResources):
            return operator.holds_resources
        return self.declared is not None or isinstance(operator, TwoPhaseWriter)

    def unwire(self) -> None:
        """Prepare for another chain, between two elements: without receivers, and with all counts at zero."""
        assert not self.busy, f"{self.where} is unwired while it is busy"
        self.children, self.outputs = {}, {}
        self.tally.clear()

    def free(self) -> None:
        """Free the operator's memory now; the node has only its counts then.

        Operator and node refer to each other, and Python would look for both only much later.
        """
        del self.operator

    def open(self) -> None:
        """Open the operator."""
        check_opened(self.operator.open(), self.where)  # type: ignore[func-returns-value]

    def close(self) -> None:
        """Close the operator and its pending emission. An error gets the operator as a note."""
        abandon = getattr(self.pending, "close", None)  # a plain iterator has none
        try:
            try:
                if abandon is not None:
                    abandon()
            finally:
                self.operator.close()
        except BaseException as error:
            error.add_note(f"raised while {self.where} was closed")
            raise

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        """Send rows to children and outputs, unless there are none. Called by the operator: the node is its ``Out``."""
        if type(batch) is not pa.RecordBatch:
            raise ContractViolation(f"{self.where} emitted a {type(batch).__name__}; emit record batches, one by one")
        declared = self.declared
        if declared is not None:
            if tag not in declared:
                raise ContractViolation(self._undeclared(declared, tag))
            batch = declared[tag].conformed(batch)
        rows = batch.num_rows
        if rows == 0:
            return
        if tag is None:
            self.tally.rows_out += rows
        for output in self.outputs.get(tag, ()):
            output.emit(batch, self.epoch)
        children = self.children.get(tag)
        if children:
            data = Data(batch, self.epoch)
            for child in children:
                child.inbox.append((0, data))

    def _undeclared(self, declared: Declared, tag: object) -> str:
        if None not in declared:
            return f"{self.where} emitted rows, but it is the end of a stream, so no operator would take them"
        tags = [known for known in declared if known is not None]
        return (
            f"{self.where} emitted with tag {tag!r}, but it has {f'the side outputs {tags}' if tags else 'none'}; "
            f"declare it: apply(..., sides={{{tag!r}: schema}}), or None for the columns of the main output"
        )

    def watermark(self, time: int) -> None:
        """Send a watermark after the rows emitted so far. Called by an operator that makes time."""
        self._check_time("watermark", time)
        self.timed, self.made = True, int(time)  # also integers of numpy
        if not self.in_batch:
            self._send(Watermark(self.made))

    def idle(self) -> None:
        """Send idleness downstream. Called by an operator that makes time."""
        self._check_time("idle")
        if not self.in_batch:
            self._send(Idle())

    def _check_time(self, method: str, time: object = 0) -> None:
        if not self.operator.makes_time:
            raise ContractViolation(f"{self.where} calls out.{method}(), but does not set makes_time = True")
        if not isinstance(time, Integral):
            raise ContractViolation(f"{self.where}: out.{method}() takes microseconds as an int, got {time!r}")

    def work(self) -> None:
        """Resume the pending emission, or take one element from the inbox; the operator is charged for the time."""
        started = self.meter.now()
        self._work()
        self.tally.busy += self.meter.now() - started

    def _work(self) -> None:
        if self.pending is not None:
            yielded: object = next(self.pending, self)
            if yielded is self:
                self.pending = None
                self._pass_on()
            elif yielded is not None:
                raise ContractViolation(
                    f"{self.where}: a generator yields None, to wait for room, but it yielded a "
                    f"{type(yielded).__name__}; send rows with out.emit(batch)"
                )
            return
        port, element = self.inbox.popleft()
        operator = self.operator
        if isinstance(element, Data):
            if self.red is not None and self.parent is not None:
                self.red.record(self.parent, element)
            if element.epoch != self.epoch:
                self.emit_kept()
            self.tally.rows_in += len(element.rows)
            self.timed = self.timed or operator.makes_time
            self.epoch = element.epoch if operator.stateless else max(self.epoch, element.epoch)
            self.current = element
            if self.delay is not None:
                self.delay(len(element.rows))
            self._begin("process", operator.process(port, element.rows, self))
            self.current = None
            return
        self.emit_kept()
        self.forward = element
        match element:
            case Watermark(time) if self.reached is None or time > self.reached:
                self.reached = time
                self._begin("advance", operator.advance(time, self))
            case PortEnded(port) if port not in self._ended_ports:
                self._begin("ended", operator.ended(port, self))
            case LastWatermark():
                self.reached = MAX_WATERMARK
                self._begin("advance", operator.advance(MAX_WATERMARK, self))
            case EndOfInput():
                self._begin("finish", operator.finish(self))
            case _:
                self._pass_on()

    def emit_kept(self) -> None:
        """Emit the rows that the operator keeps back, with the colour of the last ones."""
        if isinstance(self.operator, RowKeeper):
            self.operator.emit_kept(self)

    def ring(self, due: int, number: int = 0) -> None:
        """Call a timer of this operator, as timer call ``number`` of the chain, which must not be busy."""
        assert not self.busy, f"a timer of {self.name} while it is busy"
        self.rang = (self.clock.now(), number)
        self._begin("timer", self.operator.timer(due, self))

    def _begin(self, method: str, emission: Iterator[None] | None) -> None:
        if emission is None:
            self._pass_on()
            return
        if type(emission) is not GeneratorType:
            check_emission(emission, method, self.where)
        self.pending = emission

    def _pass_on(self) -> None:
        """Forward the control element, after the rows that the operator emitted because of it."""
        control, self.forward = self.forward, None
        match control:
            case Watermark(time):
                self._pass_time(time)
            case Idle() if not self.timed:
                self._idle = True
                self._send(control)
            case EndOfInput():
                self._end()
            case _:  # no element, or one that concerns this operator only
                pass

    def _pass_time(self, watermark: int) -> None:
        """Pass on what the operator holds of ``watermark``, if that is news downstream; the last one is not held."""
        if watermark < MAX_WATERMARK:
            if self.operator.makes_time:
                return
            watermark = self._held(watermark)
        if self.passed is not None and watermark <= self.passed:
            if not self._idle:
                return
            watermark = self.passed
        self.passed, self._idle = watermark, False
        self._send(Watermark(watermark))

    def _held(self, watermark: int) -> int:
        held = self.operator.held(watermark)
        if not isinstance(held, Integral) or isinstance(held, bool):
            raise ContractViolation(f"{self.where}: held({watermark}) returns microseconds as an int, got {held!r}")
        if held > watermark:
            raise ContractViolation(
                f"{self.where}: held({watermark}) returned {held}, which is beyond the input; return at most the "
                "watermark that it is given"
            )
        return max(int(held), -MAX_WATERMARK)

    def _end(self) -> None:
        """Send the end of the output. For consumers it includes the last watermark, unless they had that earlier."""
        for outputs in self.outputs.values():
            for output in outputs:
                output.send(EndOfInput())
        last = () if self.passed == MAX_WATERMARK else (LastWatermark(),)
        for children in self.children.values():
            for child in children:
                child.inbox.extend((0, element) for element in (PortEnded(0), *last, EndOfInput()))

    def _send(self, control: Watermark | Idle) -> None:
        for outputs in self.outputs.values():
            for output in outputs:
                output.send(control)
        for children in self.children.values():
            for child in children:
                child.inbox.append((0, control))

    def schedule(self, due: int) -> None:
        """Schedule a call ``timer(due, out)`` at or after ``due``. Called by the operator."""
        heapq.heappush(self.timers, self._checked_due(due, "schedule"))

    def schedule_at(self, due: int) -> None:
        """Schedule a call ``timer(due, out)`` when time by the clock is at ``due`` or later. Called by the operator."""
        heapq.heappush(self.timers_by_clock, self._checked_due(due, "schedule_at"))

    def _checked_due(self, due: int, method: str) -> int:
        if not isinstance(due, Real) or not math.isfinite(due):
            raise ContractViolation(f"operator {self.name!r}: {method}() takes microseconds of the clock, got {due!r}")
        return due

    def next_due(self, now: int) -> int | None:
        """Return when the next timer is due, as far as is known at ``now``; None: there is none.

        Time by the clock may run slower or faster than the clock, so a timer that goes by it may be due at another time
        than now seems, but it is due now if it seems so.
        """
        due = self.timers[0] if self.timers else None
        if self.timers_by_clock:
            by_clock = now + self.timers_by_clock[0] - self.clock.time()
            due = by_clock if due is None else min(due, by_clock)
        return due

    def take_timer(self, now: int) -> int:
        """Remove the next timer, due or not; return the time that it was scheduled for."""
        first = self.timers[0] if self.timers else None
        by_clock = self.timers_by_clock and (first is None or self.next_due(now) != first)
        return heapq.heappop(self.timers_by_clock if by_clock else self.timers)

    def snapshots(self, checkpoint: int, probe: Probe = no_probe) -> Mapping[str, Snapshot]:
        """Return the operator's state at barrier ``checkpoint``, by the name under which it is stored."""
        if isinstance(self.operator, RangedOperator):
            if self.red is not None:
                self.duplicated = self.red.take(checkpoint)
            snapshots = self.operator.snapshots()
            if self.declared is not None:
                for operator, snapshot in zip(self.operator.operators, snapshots.values(), strict=True):
                    check_snapshot(operator, snapshot, self.where)
            return snapshots
        return {self.name: self._snapshot(checkpoint, probe)}

    def _snapshot(self, checkpoint: int, probe: Probe) -> Snapshot:
        """Return the state of one operator; a two-phase writer prepares its transaction first."""
        operator = self.operator
        if self.red is not None:
            self.duplicated = self.red.take(checkpoint)
        if isinstance(operator, TwoPhaseWriter):
            handles = check_handles(operator.prepare(checkpoint), self.where)
            if handles:
                self.uncommitted[checkpoint] = handles
                probe(Point.PREPARED)
        elif not self.stores:
            return Snapshot()
        snapshot = operator.snapshot()
        if self.declared is not None:
            check_snapshot(operator, snapshot, self.where)
        return snapshot

    def validate(self) -> None:
        """Assert the invariants that hold between two steps of the task."""
        passed, reached, restored = self.passed, self.reached, self._restored
        assert restored is None or (passed is not None and passed >= restored), (
            f"{self.where}: passed on the watermark {passed}, after {restored} before its restore"
        )
        assert passed == restored or (reached is not None and passed is not None and passed <= reached), (
            f"{self.where}: passed on the watermark {passed}, but was given {reached}"
        )

    def transactions(self) -> tuple[Handle, ...]:
        """Return every handle that may not be committed yet, oldest first."""
        return tuple(handle for handles in self.uncommitted.values() for handle in handles)

    @property
    def is_two_phase(self) -> bool:
        """Whether its rows become visible when a checkpoint is committed."""
        return isinstance(self.operator, TwoPhaseWriter)

    def committed(self, checkpoint: int) -> None:
        """Drop the handles up to ``checkpoint``, which are committed: later checkpoints need not name them."""
        for done in [n for n in self.uncommitted if n <= checkpoint]:
            del self.uncommitted[done]


class Chain:
    """The nodes of one task, parents before children; ``nodes[0]`` is the head.

    Invariant: ``busy`` is false exactly when every inbox is empty and nothing is pending.
    Invariant: no operator comes after one that may keep rows back.
    """

    def __init__(self, nodes: Sequence[ChainNode]) -> None:
        assert nodes, "a chain without operators"
        self._keepers = tuple(node for node in nodes if isinstance(node.operator, RowKeeper))
        assert not any(node.children for node in self._keepers), "operators after one that keeps rows back"
        self.nodes = tuple(nodes)
        self.head = nodes[0]
        self._by_name = {node.name: node for node in nodes}
        self.outputs = tuple(o for node in nodes for outputs in node.outputs.values() for o in outputs)
        self._deepest_first = tuple(reversed(nodes))
        self._red = tuple(node.red for node in nodes if node.red is not None)
        self.working: ChainNode | None = None
        self._rings = 0

    @property
    def busy(self) -> bool:
        return any([node.pending is not None or node.inbox for node in self.nodes])

    def free(self) -> None:
        """Free the memory of all operators, and of rows on their way through the chain."""
        for node in self.nodes:
            node.pending = node.current = None
            node.inbox.clear()
            node.free()

    def has_credit(self) -> bool:
        """Return whether every output has room for one more batch."""
        return all([output.has_credit() for output in self.outputs])

    def queued(self) -> list[Channel]:
        """Return the channels in which rows are queued."""
        return [channel for output in self.outputs for channel in output.channels if channel.queued_rows]

    def forget_red(self, below: int) -> None:
        """Drop the rows logged only for checkpoints below ``below``, which will not be taken any more."""
        for red in self._red:
            red.forget(below)

    def full_channels(self) -> list[Channel]:
        """Return the channels without room for one more batch."""
        return [channel for output in self.outputs for channel in output.channels if not channel.has_credit]

    def push(self, port: int, element: Flow, operator: str | None = None) -> None:
        """Give the head, or the operator named, an element; call ``advance`` until the chain is no longer busy."""
        node = self.head if operator is None else self._by_name[operator]
        node.inbox.append((port, element))

    def set_aside(self, rejected: pa.RecordBatch, epoch: int) -> None:
        """Send rows that the source rejected through side output ``errors`` of the head."""
        self.head.epoch = epoch
        self.head.emit(rejected, ERRORS)

    def advance(self) -> bool:
        """Do one unit of work; return False if there was none, or it must wait for credit downstream.

        Only a pending emission waits. Elements in an inbox stem from rows that were taken while there was credit, and
        they must leave before a barrier that overtakes.
        """
        for node in self._deepest_first:
            if node.pending is not None and not self.has_credit():
                return False
            if node.pending is not None or node.inbox:
                self.working = node
                node.work()
                self.working = None
                return True
        return False

    def due(self, now: int) -> bool:
        """Call the earliest timer that is due; return whether there was one. The chain must not be busy."""
        node = self.first_due(now)
        if node is None:
            return False
        self.ring(node)
        return True

    def first_due(self, now: int) -> ChainNode | None:
        """Return the operator with the earliest timer that is due; None: no timer is due.

        A timer that is due before the last timer call of its operator counts as due at the time of that call.
        Otherwise an operator that schedules a past time in each timer would keep the timers of others waiting.
        """
        dues = [(node, node.next_due(now)) for node in self.nodes]
        waiting = [(max(due, node.rang[0]), node.rang[1], node) for node, due in dues if due is not None and due <= now]
        return min(waiting, key=lambda entry: entry[:2], default=(0, 0, None))[2]

    def ring(self, node: ChainNode) -> None:
        """Call the next timer of an operator, due or not. The chain must not be busy."""
        self.working = node
        self._rings += 1
        node.ring(node.take_timer(node.clock.now()), self._rings)
        self.working = None

    def next_timer(self, now: int) -> int | None:
        """Return when the earliest timer is due, as far as is known at ``now``; None: there is none."""
        dues = [node.next_due(now) for node in self.nodes]
        return min([due for due in dues if due is not None], default=None)

    def emit_kept(self) -> None:
        """Send the rows that operators keep back, before a barrier. They need no credit."""
        assert not self.busy, f"kept rows are sent while the chain of {self.head.name} is busy"
        for node in self._keepers:
            self.working = node
            started = node.meter.now()
            node.emit_kept()
            node.tally.busy += node.meter.now() - started
            self.working = None

    @property
    def passed(self) -> Mapping[str, int]:
        """The last watermark that each operator passed on, by name; operators without one are left out."""
        return {node.name: node.passed for node in self.nodes if node.passed is not None}

    @property
    def ranges(self) -> Mapping[str, Sequence[StoredRange]]:
        """The ranges of key groups of the operators that run as one instance for each, by name."""
        ranged = {node.name: node.operator for node in self.nodes}
        return {name: each.stored_ranges for name, each in ranged.items() if isinstance(each, RangedOperator)}

    @property
    def timed(self) -> Sequence[str]:
        """The operators that make time and have had a row or made some."""
        return [node.name for node in self.nodes if node.timed]

    def send(self, control: Barrier | Cancel, before: Callable[[Channel], None] | None = None) -> None:
        """Send a barrier or cancel on every output of every operator; ``before`` is called right before each put."""
        for output in self.outputs:
            for channel in output.channels:
                if before is not None:
                    before(channel)
                channel.put(control)

    def snapshot(self, checkpoint: int, probe: Probe = no_probe) -> Mapping[str, Snapshot]:
        """Return every operator's state, by the name under which it is stored."""
        assert not self.busy, f"barrier {checkpoint} while the chain of {self.head.name} is busy"
        states: dict[str, Snapshot] = {}
        for node in self.nodes:
            self.working = node
            states |= node.snapshots(checkpoint, probe)
            self.working = None
        return states

    def close(self) -> list[BaseException]:
        """Close every operator, also after an error; return the errors."""
        errors: list[BaseException] = []
        for node in self._deepest_first:
            try:
                node.close()
            except BaseException as error:
                errors.append(error)
        return errors
