"""Processes that send each other messages along FIFO channels: the model whose snapshots Chandy and Lamport take.

A process is a machine with a state of its own that nobody else sees. It moves by atomic actions: one accepts at most
one message from each incoming channel, changes the state, and sends at most one message along each outgoing channel
(Dijkstra, EWD 864a). What a run leaves, its ``Trace``, is in ``dataflow.snapshots.traces``.

Runs live in ``dataflow.snapshots.runs``: by hand, by a seed, by every possible order, on threads.

>>> class Account(Process):
...     def __init__(self, balance: int) -> None:
...         self.balance = balance
...     def receive(self, sender: str, message: int) -> None:
...         self.balance += message
...     @action(when=lambda self: self.balance >= 10)
...     def pay(self) -> Sends:
...         self.balance -= 10
...         return {"shop": 10}
>>> bank = ProcessGraph()
>>> bank.add("customer", Account(30)).add("shop", Account(0)).connect("customer", "shop")
ProcessGraph(customer, shop; customer -> shop, shop -> customer)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from dataflow.errors import GraphError, did_you_mean

__all__ = [
    "Action",
    "Automaton",
    "Channel",
    "GlobalState",
    "Process",
    "ProcessGraph",
    "Sends",
    "action",
    "actions_of",
]

Sends = Mapping[str, Any] | None
"""What an action sends: a message by the name of the process that gets it; None: nothing."""


@dataclass(frozen=True, slots=True, order=True, repr=False)
class Channel:
    """The one-way FIFO channel from ``source`` to ``target``; there is at most one."""

    source: str
    target: str

    def __repr__(self) -> str:
        return f"{self.source} -> {self.target}"


@dataclass(frozen=True, slots=True)
class Action:
    """An atomic action of a process: what it accepts, and when it may happen (beside its messages being there)."""

    name: str
    accepts: tuple[str, ...]
    when: Callable[[Any], bool]
    spontaneous: bool
    """Whether it can happen without arguments from outside; others are for whoever runs the system by hand."""


class Process:
    """A process of yours: a class with a state, ``receive`` for what comes, and ``action``s it takes by itself.

    Calls come one at a time, whatever runs the system. Messages go by value: what is sent is copied, and who receives
    it gets a copy of its own; so both may go on changing what they have.
    """

    def receive(self, sender: str, message: Any) -> Sends:
        """Accept the next message of the channel from ``sender``. Without this, only actions accept messages."""
        raise NotImplementedError

    def snapshot(self) -> Any:
        """The state, such that nothing that happens later shows through. Here: a deep copy of all attributes."""
        return deepcopy(vars(self))


class Automaton(Process):
    """A process given by a function: ``function(state, sender, message)`` answers the next state and what is sent.

    >>> echo = Automaton(0, lambda state, sender, message: (state + 1, {sender: message}))
    >>> echo.receive("P1", "hello"), echo.snapshot()
    ({'P1': 'hello'}, 1)
    """

    def __init__(self, state: Any, function: Callable[[Any, str, Any], tuple[Any, Sends]]) -> None:
        self.state = state
        self._function = function

    def receive(self, sender: str, message: Any) -> Sends:
        """See ``Process.receive``."""
        self.state, sends = self._function(self.state, sender, message)
        return sends

    def snapshot(self) -> Any:
        """The state alone."""
        return deepcopy(self.state)


_Method = TypeVar("_Method", bound=Callable[..., Sends])


@overload
def action(method: _Method) -> _Method: ...
@overload
def action(
    *, accepts: str | Sequence[str] = (), when: Callable[[Any], bool] | None = None
) -> Callable[[_Method], _Method]: ...
def action(
    method: _Method | None = None,
    *,
    accepts: str | Sequence[str] = (),
    when: Callable[[Any], bool] | None = None,
) -> _Method | Callable[[_Method], _Method]:
    """A method of a ``Process`` that is an atomic action.

    Args:
        accepts: the processes from each of which it takes one message; they are its first arguments, in this order.
            None: an internal event, or one that only sends. The action can happen when all of them are there.
        when: what must hold of the process besides; it must change nothing.

    What it answers is sent, see ``Sends``. Arguments beyond the messages are for who runs the system by hand; an action
    that needs some never happens by itself.

    Raises: GraphError for two messages of one process, and for a method without a place for each message.
    """

    def mark(method: _Method) -> _Method:
        names = (accepts,) if isinstance(accepts, str) else tuple(accepts)
        _check_accepts(method, names)
        needed = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty][1 + len(names) :]
        free = all([p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in needed])
        made = Action(method.__name__, names, when or (lambda process: True), free)
        method.__action__ = made  # type: ignore[attr-defined]
        return method

    return mark if method is None else mark(method)


def _check_accepts(method: Callable[..., Sends], names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise GraphError(
            f"action {method.__name__!r}: accepts={names} has a name twice; an atomic action accepts at most one "
            "message of each channel"
        )
    signature = inspect.signature(method)
    try:
        signature.bind_partial(None, *names)
    except TypeError:
        raise GraphError(
            f"action {method.__name__!r} accepts a message from each of {list(names)}: expected a method of self and "
            f"{len(names)} more, got {method.__name__}{signature}"
        ) from None


def actions_of(process: Process) -> dict[str, Action]:
    """The actions of a process, in the order in which its classes define them; ``name = None`` takes one away."""
    found: dict[str, Action] = {}
    for cls in reversed(type(process).__mro__):
        for name, member in vars(cls).items():
            made = getattr(member, "__action__", None)
            if made is not None:
                found[name] = made
            elif member is None:
                found.pop(name, None)
    return found


@dataclass(frozen=True, slots=True)
class GlobalState:
    """The states of all processes and channels, as a snapshot recorded them, or as they were at a moment of a run.

    ``cut`` says how many events of each process lie before it, ``active`` which processes can act by themselves: an
    action of theirs that needs no message could happen. The others are passive.
    """

    processes: Mapping[str, Any]
    channels: Mapping[Channel, tuple[Any, ...]]
    cut: Mapping[str, int] = field(default_factory=dict)
    snapshot: int | None = None
    initiators: tuple[str, ...] = ()
    active: tuple[str, ...] = ()

    def channel(self, source: str, target: str) -> tuple[Any, ...]:
        """The messages of one channel, first sent first."""
        return self.channels[Channel(source, target)]

    @property
    def in_flight(self) -> list[Any]:
        """All messages in channels."""
        return [message for messages in self.channels.values() for message in messages]

    def __str__(self) -> str:
        head = "global state" if self.snapshot is None else f"snapshot {self.snapshot}"
        by = f", begun by {', '.join(self.initiators)}" if self.initiators else ""
        lines = [f"  {name}: {state}" for name, state in self.processes.items()]
        lines += [f"  {channel}: {list(messages)}" for channel, messages in self.channels.items()]
        return "\n".join([head + by, *lines])


class ProcessGraph:
    """Which processes there are, and which channels between them. A run begins with a copy: it may be built on."""

    def __init__(self) -> None:
        self._processes: dict[str, Process] = {}
        self._channels: dict[Channel, None] = {}

    def __repr__(self) -> str:
        return f"ProcessGraph({', '.join(self._processes)}; {', '.join(map(str, self._channels))})"

    @property
    def processes(self) -> Mapping[str, Process]:
        """The processes by name, in the order in which they were added."""
        return self._processes

    @property
    def channels(self) -> Sequence[Channel]:
        """The channels in the order in which they were added."""
        return list(self._channels)

    def add(self, name: str, process: Process) -> ProcessGraph:
        """A process called ``name``; answers the graph. Raises: GraphError where the name is taken or empty."""
        if not isinstance(name, str) or not name or name in self._processes:
            raise GraphError(f"expected a new name for a process, got {name!r}; there are {list(self._processes)}")
        if not isinstance(process, Process):
            raise GraphError(f"process {name!r}: expected a Process, got a {type(process).__name__}: derive it, or use "
                             "Automaton(state, function)")  # fmt: skip
        self._processes[name] = process
        return self

    def channel(self, source: str, target: str) -> ProcessGraph:
        """A channel from ``source`` to ``target``; answers the graph.

        Raises: GraphError for processes that are not there, and for a second channel between the two.
        """
        self._channels[self._new(source, target)] = None
        return self

    def connect(self, *names: str) -> ProcessGraph:
        """Channels both ways between each two of the processes, where there are none; answers the graph."""
        for source in [self.known(name) for name in names]:
            for target in names:
                if source != target and Channel(source, target) not in self._channels:
                    self.channel(source, target)
        return self

    def ring(self, *names: str) -> ProcessGraph:
        """Channels from each process to the next, and from the last to the first; answers the graph."""
        made = [self._new(source, target) for source, target in zip(names, [*names[1:], *names[:1]], strict=True)]
        self._channels |= dict.fromkeys(made)
        return self

    def _new(self, source: str, target: str) -> Channel:
        made = Channel(self.known(source), self.known(target))
        if made in self._channels:
            raise GraphError(f"there is a channel {made} already, and there can be one")
        return made

    def copy(self) -> ProcessGraph:
        """A graph of the same processes and channels, to go on with otherwise."""
        made = ProcessGraph()
        made._processes, made._channels = dict(self._processes), dict(self._channels)
        return made

    def known(self, name: str) -> str:
        """``name``. Raises: GraphError where there is no such process."""
        if not isinstance(name, str) or name not in self._processes:
            names = list(self._processes)
            raise GraphError(f"there is no process {name!r}{did_you_mean(name, names)}; there are {names}")
        return name

    def into(self, name: str) -> list[Channel]:
        """The incoming channels of a process."""
        return [channel for channel in self._channels if channel.target == name]

    def out_of(self, name: str) -> list[Channel]:
        """The outgoing channels of a process."""
        return [channel for channel in self._channels if channel.source == name]

    def unreachable(self, initiators: Iterable[str]) -> list[str]:
        """The processes that no marker reaches when ``initiators`` begin a snapshot.

        >>> one_way = ProcessGraph().add("a", Process()).add("b", Process()).channel("a", "b")
        >>> one_way.unreachable(["a"]), one_way.unreachable(["b"])
        ([], ['a'])
        """
        reached, new = set(), [self.known(name) for name in initiators]
        while new:
            name = new.pop()
            if name not in reached:
                reached.add(name)
                new += [channel.target for channel in self.out_of(name)]
        return [name for name in self._processes if name not in reached]

    def reaching(self, *names: str) -> list[str]:
        """``names``, and as few more as it takes to reach everybody along channels."""
        chosen = list(names)
        while missed := self.unreachable(chosen):
            chosen.append(min(missed, key=lambda name: len(self.unreachable([*chosen, name]))))
        return chosen

    def check_reached(self, initiators: Sequence[str]) -> None:
        """Raises: GraphError where a snapshot begun by ``initiators`` would never be complete, with who is missed."""
        missed = self.unreachable(initiators)
        if missed:
            together = ", ".join([*map(repr, initiators), repr(missed[0])])
            raise GraphError(
                f"a snapshot begun by {', '.join(initiators) or 'nobody'} never reaches {', '.join(missed)}: there is "
                f"no way along channels; let one of them begin it as well: snapshot({together})"
            )

    def check_not_empty(self) -> None:
        """Raises: GraphError where there is no process."""
        if not self._processes:
            raise GraphError("expected a graph with a process, found none: graph.add(name, process)")

    @property
    def strongly_connected(self) -> bool:
        """Whether a snapshot begun by any one process reaches all."""
        return not any([self.unreachable([name]) for name in self._processes])
