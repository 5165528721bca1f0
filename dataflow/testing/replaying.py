"""Replays a script of arrivals through the real channels, gate and barrier handler, on a manual clock.

The scheduler is the simplest one that is fair: urgent elements first, then the earliest arrival on a channel that is
not blocked. The operator passes every row on. What can be seen is a log in a notation short enough to compare by eye.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dataflow.clock import ManualClock
from dataflow.events import Cancel, Data, Element, EndOfInput, Idle, Watermark
from dataflow.protocol.actions import Abort, Action, Complete, Ignore, TakeSnapshot
from dataflow.protocol.alignment import Aligner, EndOfInputPolicy
from dataflow.protocol.handler import BarrierHandler
from dataflow.protocol.tracking import Tracker
from dataflow.runtime.channel import Channel
from dataflow.runtime.gate import InputGate
from dataflow.testing.scripts import Arrive, Busy, Pass, Ready, parse

__all__ = ["Replay", "replay"]

ChannelRows = dict[int, dict[str, list[str]]]


@dataclass(frozen=True, slots=True)
class Replay:
    """What was seen while a script ran. All lists are in order of time.

    ``log`` holds a row's value, ``S(n)`` for a snapshot, ``A(n,why)`` for a checkpoint given up, ``i(n)`` for a barrier
    ignored and ``a$`` for the end of channel a. ``sent`` is what left the task: rows, barriers ``B(n)``, cancels
    ``X(n)``. ``captured`` and ``duplicated`` map a checkpoint to the rows of each channel that are its channel state,
    or that are in the snapshot and would be delivered again after a restore. ``blocked`` has one entry for each event
    taken that left channels blocked: its token, and their letters.
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
    timeout: int | None = None,
    back_edges: str = "",
    trigger_times: Mapping[int, int] | None = None,
    end_of_input: str = "aligned",
) -> Replay:
    """Run ``script`` (see ``dataflow.testing.scripts``) over ``channels``, one letter each, in checkpoint ``mode``.

    ``mode`` is ``"aligned"`` (exactly once) or ``"unaligned"`` (at least once). ``trigger_times`` maps a checkpoint to
    the milliseconds on the clock when it was triggered, 0 unless given. ``end_of_input="abort"`` lets an end give the
    pending aligned checkpoint up instead of standing for its barrier.

    Raises: ValueError for a malformed script, naming the token and its position, and for arguments that make no sense;
    NotImplementedError for modes that do not exist yet.

    >>> r = replay("unaligned", channels="ab", script="a:1 a|1 a:2 b:3 b|1")
    >>> r.log, r.duplicated
    (['1', '2', '3', 'S(1)'], {1: {'a': ['2']}})
    """
    if not channels.isalnum() or len(set(channels)) != len(channels):
        raise ValueError(f"channels: expected distinct letters, such as 'ab', found {channels!r}")
    handler = _handler(mode, len(channels), timeout=timeout, back_edges=back_edges, end_of_input=end_of_input)
    steps = parse(script, channels, {n: _microseconds(n, at) for n, at in (trigger_times or {}).items()})
    run = _Run(channels, handler)
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
    """When ``checkpoint`` was triggered, out of what the caller gave as an entry of ``trigger_times``."""
    if type(checkpoint) is not int or type(at) is not int or checkpoint < 1 or at < 0:
        raise ValueError(
            "trigger_times: expected checkpoint ids (from 1) mapped to whole milliseconds (from 0), "
            f"found {checkpoint!r}: {at!r}"
        )
    return at * 1_000


def _handler(mode: str, channels: int, *, timeout: int | None, back_edges: str, end_of_input: str) -> Aligner | Tracker:
    if back_edges:
        raise NotImplementedError(f"back_edges={back_edges!r}: checkpoints of graphs with cycles do not exist yet")
    if end_of_input not in {policy.value for policy in EndOfInputPolicy}:
        raise ValueError(f"end_of_input: expected 'aligned' or 'abort', found {end_of_input!r}")
    policy = EndOfInputPolicy(end_of_input)
    if mode in {"unaligned-persisted", "aligned-timeout"}:
        raise NotImplementedError(f"mode {mode!r} does not exist yet; there are 'aligned' and 'unaligned'")
    if timeout is not None:
        raise ValueError(f"timeout={timeout}: mode {mode!r} waits without a timeout; leave it out")
    match mode:
        case "aligned":
            return Aligner(channels, end_of_input=policy)
        case "unaligned":
            if policy is not EndOfInputPolicy.ALIGN:
                raise ValueError(
                    "end_of_input='abort' is a policy of mode 'aligned'; 'unaligned' counts ends as barriers"
                )
            return Tracker(channels)
        case _:
            raise ValueError(f"mode: expected 'aligned' or 'unaligned', found {mode!r}")


class _Run:
    """One replay: the real thing, and the order of arrival that its scheduler goes by."""

    def __init__(self, names: str, handler: BarrierHandler) -> None:
        self.seen = Replay()
        self.clock = ManualClock()
        self._names = names
        self._channels = [Channel(credit=1, name=name) for name in names]
        self._gate = InputGate(self._channels, handler, self._earliest)
        self._arrivals = 0
        # Per channel, (order of arrival, token) of what is queued, and of the urgent elements among it.
        self._queued: list[deque[tuple[int, str]]] = [deque() for _ in names]
        self._urgent: list[deque[tuple[int, str]]] = [deque() for _ in names]

    def arrive(self, token: str, channel: int, element: Element) -> None:
        self._arrivals += 1
        lane = self._urgent if isinstance(element, Cancel) else self._queued
        lane[channel].append((self._arrivals, token))
        self._channels[channel].put(element)

    def drain(self) -> None:
        self._carry_out(self._gate.tick(self.clock.now()))
        while (taken := self._gate.poll(self.clock.now())) is not None:
            channel = taken.channel
            match taken.element:
                case Watermark() | Idle():
                    continue  # scripts have none; this is what an end says about time before it is taken itself
                case Cancel():
                    _, token = self._urgent[channel].popleft()
                case _:
                    _, token = self._queued[channel].popleft()
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
                    seen.log.append(f"S({barrier.checkpoint})")
                case Complete(checkpoint=checkpoint, in_flight=in_flight, duplicated=duplicated):
                    self._keep(seen.captured, checkpoint, in_flight)
                    self._keep(seen.duplicated, checkpoint, duplicated)
                case Abort(checkpoint=checkpoint, reason=reason):
                    seen.sent.append(f"X({checkpoint})")
                    seen.log.append(f"A({checkpoint},{reason.value})")
                case Ignore(checkpoint=checkpoint):
                    seen.log.append(f"i({checkpoint})")

    def _keep(self, rows: ChannelRows, checkpoint: int, elements: Mapping[int, Sequence[Element]]) -> None:
        channels = {
            self._names[channel]: [
                value for element in kept if isinstance(element, Data) for value in _values(element.rows)
            ]
            for channel, kept in sorted(elements.items())
        }
        if kept := {name: values for name, values in channels.items() if values}:
            rows[checkpoint] = kept

    def _earliest(self, channels: Sequence[int]) -> int:
        lane = self._urgent if self._channels[channels[0]].is_urgent else self._queued
        return min(channels, key=lambda channel: lane[channel][0])


def _values(rows: object) -> tuple[str, ...]:
    assert isinstance(rows, tuple), f"a script's rows are a tuple, got {rows!r}"
    return rows
