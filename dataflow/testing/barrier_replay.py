"""Replays a script of arrivals through the real channels, gate and barrier handler, on a manual clock.

The scheduler is the simplest fair one: urgent elements first, then the earliest arrival on a channel that is not
blocked. The operator emits every row unchanged. The result is a log in a notation short enough to compare by eye.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dataflow.clock import ManualClock
from dataflow.contracts.checkpointing import Mode
from dataflow.protocol.actions import Abort, Action, Complete, Ignore, PassOver, TakeSnapshot
from dataflow.protocol.alignment import Aligner, EndOfInputPolicy
from dataflow.protocol.events import Barrier, Data, Element, EndOfInput, Idle, Watermark
from dataflow.protocol.handler import BarrierHandler
from dataflow.protocol.overtaking import Overtaker
from dataflow.protocol.tracking import Tracker
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.input_gate import InputGate
from dataflow.testing.replay_script import Arrive, Busy, Marks, Pass, Ready, parse

__all__ = ["Replay", "replay"]

ChannelRows = dict[int, dict[str, list[str]]]


@dataclass(frozen=True, slots=True)
class Replay:
    """The observations of one replayed script. All lists are in order of time.

    Attributes:
        log: the value of each row, ``S(n)`` for a snapshot, ``A(n,why)`` for an aborted checkpoint, ``i(n)`` for an
            ignored barrier and ``a$`` for the end of channel a. In the modes with channel state, ``S(nu)`` is an
            unaligned snapshot and ``D(n)`` the completion of its channel state; in ``aligned-timeout``, ``S(na)`` is an
            aligned snapshot.
        captured: for each checkpoint, the rows of each channel that are its channel state.
        duplicated: for each checkpoint, the rows of each channel that are in the snapshot and would be delivered again
            after a restore.
        sent: the output of the task: rows, barriers ``B(n)``, cancels ``X(n)``.
        blocked: one entry for each polled element after which channels are blocked: its token, and the letters of the
            channels.

    >>> observed = replay("aligned", channels="ab", script="a|1 a:2 b:3 b|1")
    >>> observed.log, observed.sent, observed.blocked
    (['3', 'S(1)', '2'], ['3', 'B(1)', '2'], [('a|1', 'a'), ('b:3', 'a')])
    """

    log: list[str] = field(default_factory=list)
    captured: ChannelRows = field(default_factory=dict)
    duplicated: ChannelRows = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    blocked: list[tuple[str, str]] = field(default_factory=list)


def replay(
    mode: str,
    channels: str,
    script: str,
    *,
    timeout: float | None = None,
    back_edges: str = "",
    aligned_edges: str = "",
    trigger_times: Mapping[int, int] | None = None,
    end_of_input: str = "aligned",
) -> Replay:
    """Run a script of arrivals through the gate and the barrier handler of one task, and return the observations.

    Args:
        mode: a checkpoint mode, such as ``"aligned"``.
        channels: the input channels, one letter each.
        script: the arrivals; ``dataflow.testing.replay_script`` defines the notation.
        timeout: in mode ``"aligned-timeout"``, milliseconds from the trigger until the checkpoint becomes unaligned.
            None or infinity: never.
        back_edges: not supported.
        aligned_edges: in the modes with channel state, the channels on which no barrier overtakes rows.
        trigger_times: for each checkpoint, the milliseconds on the clock at its trigger. The default is 0.
        end_of_input: ``"aligned"``: the end of a channel counts as its barrier. ``"abort"``: it aborts the pending
            checkpoint; not in mode ``"unaligned"``.

    Raises: ValueError for a malformed script, with the token and its position, and for invalid arguments;
        NotImplementedError for ``back_edges``, because checkpoints of graphs with cycles do not exist yet.

    >>> r = replay("unaligned", channels="ab", script="a:1 a|1 a:2 b:3 b|1")
    >>> r.log, r.duplicated
    (['1', '2', '3', 'S(1)'], {1: {'a': ['2']}})
    """
    if not channels.isalnum() or len(set(channels)) != len(channels):
        raise ValueError(f"channels: expected distinct letters, such as 'ab', found {channels!r}")
    if back_edges:
        raise NotImplementedError(
            f"back_edges={back_edges!r}: checkpoints of graphs with cycles do not exist yet; leave it out"
        )
    edges = _edges(mode, channels, aligned_edges)
    handler = _handler(mode, len(channels), _timeout(mode, timeout), edges, _policy(mode, end_of_input))
    triggered_at = {n: _microseconds(n, at) for n, at in (trigger_times or {}).items()}
    steps = parse(script, channels, triggered_at, _BARRIERS[mode])
    overtakable = set(range(len(channels))) - edges if mode in _OVERTAKING else set()
    run = _Run(channels, handler, mode, overtakable)
    busy = False
    for step in steps:
        match step:
            case Arrive(token=token, channel=channel, element=element):
                run.arrive(token, channel, element)
            case Pass(microseconds=microseconds):
                run.clock.advance(microseconds)
            case Busy():
                busy = True
            case Ready():
                busy = False
        if not busy:
            run.drain()
    return run.seen


def _microseconds(checkpoint: object, at: object) -> int:
    """Return the trigger time of ``checkpoint``, checked as an entry of ``trigger_times``, in microseconds."""
    if type(checkpoint) is not int or type(at) is not int or checkpoint < 1 or at < 0:
        raise ValueError(
            "trigger_times: expected checkpoint ids (from 1) mapped to whole milliseconds (from 0), "
            f"found {checkpoint!r}: {at!r}"
        )
    return at * 1_000


_OVERTAKING = (Mode.UNALIGNED_PERSISTED.value, Mode.ALIGNED_TIMEOUT.value)
_BARRIERS = {
    Mode.ALIGNED.value: Marks.IN_ORDER,
    Mode.UNALIGNED.value: Marks.IN_ORDER,
    Mode.UNALIGNED_PERSISTED.value: Marks.UNALIGNED,
    Mode.ALIGNED_TIMEOUT.value: Marks.EITHER,
}


def _edges(mode: str, channels: str, aligned_edges: str) -> set[int]:
    if mode not in _BARRIERS:
        raise ValueError(f"mode: expected one of {list(_BARRIERS)}, found {mode!r}")
    if aligned_edges and mode not in _OVERTAKING:
        raise ValueError(f"aligned_edges={aligned_edges!r}: in mode {mode!r} no barrier overtakes; leave it out")
    unknown = [name for name in aligned_edges if name not in channels]
    if unknown:
        raise ValueError(f"aligned_edges: expected some of the channels {channels!r}, found {unknown}")
    return {channels.index(name) for name in aligned_edges}


def _timeout(mode: str, timeout: float | None) -> int | None:
    """Return the timeout in microseconds; None: never."""
    if timeout is None or timeout == math.inf:
        return None
    if mode != Mode.ALIGNED_TIMEOUT.value:
        raise ValueError(f"timeout={timeout}: mode {mode!r} has no timeout; leave it out")
    if type(timeout) is not int or timeout < 0:
        raise ValueError(f"timeout: expected whole milliseconds (from 0), None or infinity, found {timeout!r}")
    return timeout * 1_000


def _policy(mode: str, end_of_input: str) -> EndOfInputPolicy:
    if end_of_input not in {policy.value for policy in EndOfInputPolicy}:
        raise ValueError(f"end_of_input: expected 'aligned' or 'abort', found {end_of_input!r}")
    policy = EndOfInputPolicy(end_of_input)
    if mode == Mode.UNALIGNED.value and policy is not EndOfInputPolicy.ALIGN:
        raise ValueError("end_of_input='abort': mode 'unaligned' always counts ends as barriers; leave it out")
    return policy


def _handler(
    mode: str, channels: int, timeout: int | None, edges: set[int], policy: EndOfInputPolicy
) -> BarrierHandler:
    match Mode(mode):
        case Mode.ALIGNED:
            return Aligner(channels, end_of_input=policy)
        case Mode.UNALIGNED:
            return Tracker(channels)
        case Mode.UNALIGNED_PERSISTED | Mode.ALIGNED_TIMEOUT:
            return Overtaker(channels, aligned_edges=edges, timeout=timeout, end_of_input=policy)


class _Run:
    """One replay: the real channels and gate, with a scheduler by order of arrival."""

    def __init__(self, names: str, handler: BarrierHandler, mode: str, overtakable: Collection[int]) -> None:
        self.seen = Replay()
        self.clock = ManualClock()
        self._mode = mode
        self._names = names
        self._channels = [Channel(credit=1, name=c, overtakable=i in overtakable) for i, c in enumerate(names)]
        self._gate = InputGate(self._channels, handler, self._earliest)
        self._unaligned = False  # True if the last snapshot was unaligned
        # Order of arrival and token of every element, by its identity, because equal elements may arrive.
        self._arrived: dict[int, tuple[int, str]] = {}
        self._chosen = 0

    def arrive(self, token: str, channel: int, element: Element) -> None:
        """Put an element into a channel."""
        self._arrived[id(element)] = (len(self._arrived), token)
        self._channels[channel].put(element)

    def drain(self) -> None:
        """Poll the gate until it has nothing more to give, and record what it does."""
        self._carry_out(self._gate.tick(self.clock.now()))
        while (taken := self._gate.poll(self.clock.now())) is not None:
            if isinstance(taken.element, Watermark | Idle):
                continue  # not of the script: the end of a channel implies it
            _, token = self._arrived[self._chosen]
            match taken.element:
                case Data(rows=rows):
                    self.seen.log.extend(_values(rows))
                    self.seen.sent.extend(_values(rows))
                case EndOfInput():
                    self.seen.log.append(token)
                case _:
                    pass
            self._carry_out(taken.actions)
            blocked = "".join(self._names[index] for index in sorted(self._gate.blocked))
            if blocked:
                self.seen.blocked.append((token, blocked))

    def _carry_out(self, actions: Sequence[Action]) -> None:
        seen = self.seen
        for action in actions:
            match action:
                case TakeSnapshot(barrier=barrier):
                    seen.sent.append(f"B({barrier.checkpoint})")
                    seen.log.append(f"S({barrier.checkpoint}{self._how(barrier)})")
                    self._unaligned = barrier.unaligned
                case Complete(checkpoint=checkpoint, in_flight=in_flight, duplicated=duplicated):
                    if self._unaligned:
                        seen.log.append(f"D({checkpoint})")
                    self._keep(seen.captured, checkpoint, in_flight)
                    self._keep(seen.duplicated, checkpoint, duplicated)
                case Abort(checkpoint=checkpoint, reason=reason):
                    seen.sent.append(f"X({checkpoint})")
                    seen.log.append(f"A({checkpoint},{reason.value})")
                case Ignore(checkpoint=checkpoint):
                    seen.log.append(f"i({checkpoint})")
                case PassOver():
                    pass  # a message to the coordinator, with no effect on the task

    def _how(self, barrier: Barrier) -> str:
        if barrier.unaligned:
            return "u"
        return "a" if self._mode == Mode.ALIGNED_TIMEOUT.value else ""

    def _keep(self, rows: ChannelRows, checkpoint: int, elements: Mapping[int, Sequence[Element]]) -> None:
        channels = {
            self._names[channel]: [
                value for element in sequence if isinstance(element, Data) for value in _values(element.rows)
            ]
            for channel, sequence in sorted(elements.items())
        }
        if present := {name: values for name, values in channels.items() if values}:
            rows[checkpoint] = present

    def _earliest(self, channels: Sequence[int]) -> int:
        chosen = min(channels, key=lambda channel: self._arrived[id(self._channels[channel].next)])
        self._chosen = id(self._channels[chosen].next)
        return chosen


def _values(rows: object) -> tuple[str, ...]:
    assert isinstance(rows, tuple), f"a script's rows are a tuple, got {rows!r}"
    return rows
