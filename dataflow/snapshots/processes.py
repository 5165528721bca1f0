"""Graphs of processes that send each other messages along FIFO channels, and their global states.

The model is that of Chandy and Lamport, *Distributed Snapshots* (1985), section 2, with the atomic actions of Dijkstra,
*The distributed snapshot of K.M. Chandy and L. Lamport* (EWD 864a): a process has a private state, and an action
accepts at most one message from each incoming channel, changes the state, and sends at most one message along each
outgoing channel.

``dataflow.snapshots.runs`` runs such a graph; ``dataflow.snapshots.traces`` records a run.

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
"""The messages that an action sends, by the name of the receiving process. None: no message."""


@dataclass(frozen=True, slots=True, order=True, repr=False)
class Channel:
    """The one-way FIFO channel from process ``source`` to process ``target``; there is at most one.

    >>> Channel("p", "q")
    p -> q
    """

    source: str
    target: str

    def __repr__(self) -> str:
        return f"{self.source} -> {self.target}"


@dataclass(frozen=True, slots=True)
class Action:
    """An atomic action of a process, as ``action`` declares it.

    Attributes:
        name: the name of the method.
        accepts: the processes from each of which it takes one message.
        when: the condition on the process, besides the presence of the messages.
        spontaneous: True if it needs no arguments from outside. The others happen only in a run by hand.

    >>> class Light(Process):
    ...     @action
    ...     def switch(self): ...
    >>> actions_of(Light())["switch"].spontaneous
    True
    """

    name: str
    accepts: tuple[str, ...]
    when: Callable[[Any], bool]
    spontaneous: bool


class Process:
    """The base class of processes: attributes are the state, ``receive`` takes messages, ``action`` methods act.

    Guarantees: calls of one process never overlap. Messages are passed by value: they are copied when they are sent and
    when they are received, so sender and receiver may change their objects afterwards.

    >>> class Echo(Process):
    ...     def receive(self, sender: str, message: str) -> Sends:
    ...         return {sender: message}
    >>> Echo().receive("p", "hello")
    {'p': 'hello'}
    """

    def receive(self, sender: str, message: Any) -> Sends:
        """Accept the next message of the channel from ``sender``. If not defined, only actions accept messages.

        Args:
            sender: the name of the process that sent the message.
            message: the message; a copy that belongs to this process.

        Returns: the messages to send, or None.
        """
        raise NotImplementedError

    def snapshot(self) -> Any:
        """Return the state, independent of later changes. The default is a deep copy of all attributes."""
        return deepcopy(vars(self))


class Automaton(Process):
    """A process defined by a function that maps (state, sender, message) to (next state, messages to send).

    Args:
        state: the initial state.
        function: called with the state, the sender's name and the message.

    >>> echo = Automaton(0, lambda state, sender, message: (state + 1, {sender: message}))
    >>> echo.receive("P1", "hello"), echo.snapshot()
    ({'P1': 'hello'}, 1)
    """

    def __init__(self, state: Any, function: Callable[[Any, str, Any], tuple[Any, Sends]]) -> None:
        self.state = state
        self._function = function

    def receive(self, sender: str, message: Any) -> Sends:
        """Accept a message by the function; see ``Process.receive``."""
        self.state, sends = self._function(self.state, sender, message)
        return sends

    def snapshot(self) -> Any:
        """Return a deep copy of the state."""
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
    """Declare a method of a ``Process`` as an atomic action; it returns the messages to send, see ``Sends``.

    Args:
        accepts: a name or names of processes. The action takes one message from each; they are its first arguments, in
            this order. It can happen when all of them have arrived. Empty: an internal event, or one that only sends.
        when: a further condition, called with the process; it must change nothing. None: always true.

    Arguments beyond the messages are passed in a run by hand (``System.act``). An action that requires some never
    happens by itself.

    Returns: the method, or a decorator for it.

    Raises: GraphError if a process is named twice, or the method has no parameter for each message.

    >>> class Adder(Process):
    ...     @action(accepts=("p", "q"))
    ...     def add(self, x: int, y: int) -> Sends:
    ...         return {"r": x + y}
    >>> actions_of(Adder())["add"].accepts
    ('p', 'q')
    """

    def mark(method: _Method) -> _Method:
        names = (accepts,) if isinstance(accepts, str) else tuple(accepts)
        _check_accepts(method, names)
        needed = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty][1 + len(names) :]
        free = all([p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in needed])
        declared = Action(method.__name__, names, when or (lambda process: True), free)
        method.__action__ = declared  # type: ignore[attr-defined]
        return method

    return mark if method is None else mark(method)


def _check_accepts(method: Callable[..., Sends], names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise GraphError(
            f"action {method.__name__!r}: accepts={names} has a name twice; name each process once, because an atomic "
            "action accepts at most one message of each channel"
        )
    signature = inspect.signature(method)
    try:
        signature.bind_partial(None, *names)
    except TypeError:
        raise GraphError(
            f"action {method.__name__!r} accepts a message from each of {list(names)}: expected a method of self and "
            f"{len(names)} more, got {method.__name__}{signature}; add a parameter for each message"
        ) from None


def actions_of(process: Process) -> dict[str, Action]:
    """Return the actions of a process by name, in the order of definition, those of base classes first.

    A subclass removes an inherited action by ``name = None``.

    Args:
        process: the process whose class declares them.

    >>> class Light(Process):
    ...     @action
    ...     def switch(self): ...
    >>> list(actions_of(Light()))
    ['switch']
    """
    actions: dict[str, Action] = {}
    for cls in reversed(type(process).__mro__):
        for name, member in vars(cls).items():
            declared = getattr(member, "__action__", None)
            if declared is not None:
                actions[name] = declared
            elif member is None:
                actions.pop(name, None)
    return actions


@dataclass(frozen=True, slots=True)
class GlobalState:
    """The states of all processes and channels, recorded by a snapshot or taken at one moment of a run.

    Attributes:
        processes: the result of ``Process.snapshot`` by process.
        channels: the messages in each channel, first sent first.
        cut: the number of events of each process before this state.
        snapshot: the number of the snapshot. None: the state was not recorded by one.
        initiators: the processes that began the snapshot.
        active: the processes that can act by themselves, by an action that accepts no message. The others are passive.

    >>> state = GlobalState({"p": 1, "q": 2}, {Channel("p", "q"): ("m",)})
    >>> state.channel("p", "q"), state.in_flight
    (('m',), ['m'])
    """

    processes: Mapping[str, Any]
    channels: Mapping[Channel, tuple[Any, ...]]
    cut: Mapping[str, int] = field(default_factory=dict)
    snapshot: int | None = None
    initiators: tuple[str, ...] = ()
    active: tuple[str, ...] = ()

    def channel(self, source: str, target: str) -> tuple[Any, ...]:
        """Return the messages of one channel, first sent first. Raises: KeyError if there is no such channel."""
        return self.channels[Channel(source, target)]

    @property
    def in_flight(self) -> list[Any]:
        """The messages in all channels."""
        return [message for messages in self.channels.values() for message in messages]

    def __str__(self) -> str:
        head = "global state" if self.snapshot is None else f"snapshot {self.snapshot}"
        by = f", begun by {', '.join(self.initiators)}" if self.initiators else ""
        lines = [f"  {name}: {state}" for name, state in self.processes.items()]
        lines += [f"  {channel}: {list(messages)}" for channel, messages in self.channels.items()]
        return "\n".join([head + by, *lines])


class ProcessGraph:
    """A directed graph of named processes and the channels between them.

    Each run copies the graph when it is created, so the graph may be extended or run again.

    >>> ProcessGraph().add("p", Process()).add("q", Process()).channel("p", "q")
    ProcessGraph(p, q; p -> q)
    """

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
        """Add a process called ``name`` and return the graph.

        Raises: GraphError if the name is in use or empty, or ``process`` is not a ``Process``.
        """
        if not isinstance(name, str) or not name or name in self._processes:
            raise GraphError(f"expected a new name for a process, got {name!r}; names in use: {list(self._processes)}")
        if not isinstance(process, Process):
            raise GraphError(f"process {name!r}: expected a Process, got a {type(process).__name__}: derive its class "
                             "from Process, or use Automaton(state, function)")  # fmt: skip
        self._processes[name] = process
        return self

    def channel(self, source: str, target: str) -> ProcessGraph:
        """Add a channel from ``source`` to ``target`` and return the graph.

        Raises: GraphError if a process does not exist, or the channel exists already.
        """
        self._channels[self._new(source, target)] = None
        return self

    def connect(self, *names: str) -> ProcessGraph:
        """Add the missing channels between each two of the processes, both ways, and return the graph.

        Raises: GraphError if a process does not exist; then no channel is added.
        """
        for source in [self.known(name) for name in names]:
            for target in names:
                if source != target and Channel(source, target) not in self._channels:
                    self.channel(source, target)
        return self

    def ring(self, *names: str) -> ProcessGraph:
        """Add a channel from each process to the next, and from the last to the first, and return the graph.

        Raises: GraphError if a process does not exist, or a channel exists already; then no channel is added.
        """
        channels = [self._new(source, target) for source, target in zip(names, [*names[1:], *names[:1]], strict=True)]
        self._channels |= dict.fromkeys(channels)
        return self

    def _new(self, source: str, target: str) -> Channel:
        channel = Channel(self.known(source), self.known(target))
        if channel in self._channels:
            raise GraphError(f"there is a channel {channel} already; expected at most one in each direction")
        return channel

    def copy(self) -> ProcessGraph:
        """Return a graph with the same processes and channels, which can be extended independently."""
        graph = ProcessGraph()
        graph._processes, graph._channels = dict(self._processes), dict(self._channels)
        return graph

    def known(self, name: str) -> str:
        """Return ``name``. Raises: GraphError if there is no such process."""
        if not isinstance(name, str) or name not in self._processes:
            names = list(self._processes)
            raise GraphError(f"there is no process {name!r}{did_you_mean(name, names)}; there are {names}")
        return name

    def into(self, name: str) -> list[Channel]:
        """Return the incoming channels of a process."""
        return [channel for channel in self._channels if channel.target == name]

    def out_of(self, name: str) -> list[Channel]:
        """Return the outgoing channels of a process."""
        return [channel for channel in self._channels if channel.source == name]

    def unreachable(self, initiators: Iterable[str]) -> list[str]:
        """Return the processes that no marker reaches when ``initiators`` begin a snapshot.

        Raises: GraphError if an initiator does not exist.

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
        """Return ``names`` and further processes, chosen greedily, so that markers from them reach every process."""
        chosen = list(names)
        while missed := self.unreachable(chosen):
            chosen.append(min(missed, key=lambda name: len(self.unreachable([*chosen, name]))))
        return chosen

    def check_reached(self, initiators: Sequence[str]) -> None:
        """Check that markers from ``initiators`` reach every process.

        Raises: GraphError that names the unreachable processes: the snapshot would never be complete.
        """
        missed = self.unreachable(initiators)
        if missed:
            together = ", ".join([*map(repr, initiators), repr(missed[0])])
            raise GraphError(
                f"a snapshot begun by {', '.join(initiators) or 'no process'} never reaches {', '.join(missed)}: no "
                f"path along channels leads there; begin it there as well: snapshot({together})"
            )

    def check_not_empty(self) -> None:
        """Check that the graph has a process. Raises: GraphError if it has none."""
        if not self._processes:
            raise GraphError("expected a graph with a process, found none: add one by graph.add(name, process)")

    @property
    def strongly_connected(self) -> bool:
        """True if a snapshot begun by any single process reaches all processes.

        >>> graph = ProcessGraph().add("a", Automaton(0, lambda state, sender, message: (state, None)))
        >>> graph.add("b", Automaton(0, lambda state, sender, message: (state, None))).connect("a", "b")
        ProcessGraph(a, b; a -> b, b -> a)
        >>> graph.strongly_connected
        True
        """
        return not any([self.unreachable([name]) for name in self._processes])
