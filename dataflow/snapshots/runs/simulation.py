"""A run whose schedule is drawn from a seed: the order of steps, and the times and initiators of snapshots.

Guarantees: the same graph, seed and calls give the same run, so a seed reproduces a failure. Errors name the seed.

This code assumes: processes use no randomness and no clocks of their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from dataflow.errors import ConfigurationError, SnapshotStuck
from dataflow.snapshots.processes import GlobalState, ProcessGraph
from dataflow.snapshots.runs.process_node import Deliver, DeliverReport, Join, Step
from dataflow.snapshots.runs.snapshot_check import check
from dataflow.snapshots.runs.system import Marker, System
from dataflow.snapshots.traces import Trace

__all__ = ["Simulation"]

_PATIENCE = 100_000
"""The maximum number of steps to complete the snapshots in progress."""


class Simulation:
    """A run of ``graph`` on one seeded schedule.

    Args:
        graph: the processes and channels.
        seed: the seed of all choices.
        rule: the algorithm: ``System`` takes snapshots by markers, ``ObservedSystem`` by an observer.

    Raises: GraphError as ``System`` does.

    >>> from dataflow.snapshots.processes import Automaton, ProcessGraph, Process, action
    >>> class Ping(Process):
    ...     def __init__(self, balls: int) -> None:
    ...         self.balls = balls
    ...     def receive(self, sender: str, message: str) -> None:
    ...         self.balls += 1
    ...     @action(when=lambda self: self.balls > 0)
    ...     def hit(self):
    ...         self.balls -= 1
    ...         return {"right": "ball"} if isinstance(self, Left) else {"left": "ball"}
    >>> class Left(Ping): ...
    >>> game = ProcessGraph().add("left", Left(2)).add("right", Ping(0)).connect("left", "right")
    >>> run = Simulation(game, seed=1).run(steps=200, snapshots=3)
    >>> [sum(p["balls"] for p in s.processes.values()) + len(s.in_flight) for s in run.snapshots.values()]
    [2, 2, 2]
    """

    def __init__(self, graph: ProcessGraph, seed: int = 0, *, rule: Callable[[ProcessGraph], System] = System) -> None:
        self.seed = seed
        self.system = rule(graph)
        self._draw = random.Random(seed)
        self._steps = 0

    def __repr__(self) -> str:
        quiet = ", quiet" if self.quiet else ""
        return f"Simulation(seed={self.seed}: {self._steps} steps, {len(self.snapshots)} snapshots{quiet})"

    @property
    def trace(self) -> Trace:
        """The trace of the run so far."""
        return self.system.trace

    @property
    def snapshots(self) -> Mapping[int, GlobalState]:
        """The complete snapshots by number, in the order of completion."""
        return self.system.snapshots

    @property
    def state(self) -> GlobalState:
        """The global state at this moment; no process inside the system can observe it."""
        return self.system.state

    @property
    def quiet(self) -> bool:
        """True if no step is possible, so nothing happens until a snapshot begins."""
        return not self.system.enabled()

    def run(self, steps: int = 10_000, snapshots: int = 0) -> Simulation:
        """Take up to ``steps`` steps, and return the simulation, which can be continued.

        Args:
            steps: the number of steps; the run stops earlier if the system is quiet.
            snapshots: the number of snapshots to begin meanwhile, at any time and by any processes. All are complete
                when this returns: the run continues after the last step until their markers have arrived.

        Raises: ConfigurationError for a negative number; SnapshotStuck if an observer waits for messages that no
            process accepts; any exception of a process. The last two name the seed.
        """
        if steps < 0 or snapshots < 0:
            raise ConfigurationError(f"expected steps >= 0 and snapshots >= 0, got {steps} and {snapshots}")
        pace, due = self._draw.choice([2, 8, 32]), snapshots
        for left in range(steps, 0, -1):
            if due and self._draw.random() < max(1 / pace, due / left):
                due -= 1
                self._begin()
            if not self._step(self.system.enabled()) and not due:
                break
        for _ in range(due):
            self._begin()
        self._finish()
        return self

    def snapshot(self, *initiators: str) -> GlobalState:
        """Begin a snapshot now, run until it is complete, and return it.

        Args:
            initiators: the processes that begin it. None: the seed chooses them.

        Raises: GraphError if the markers would not reach every process; otherwise as ``run``.
        """
        with self._seed_in_errors("a snapshot"):
            number = self.system.snapshot(*(initiators or self._initiators()))
        self._finish()
        return self.snapshots[number]

    def advance(self) -> None:
        """Take some steps; their number is drawn."""
        self.run(self._draw.randrange(1, 2 * len(self.system.graph.processes) + 8))

    def check(self) -> None:
        """Check all snapshots against the run. Raises: InconsistentSnapshot, with the seed."""
        with self._seed_in_errors("the check of the snapshots"):
            for state in self.snapshots.values():
                check(self.trace, state)

    def _begin(self) -> None:
        with self._seed_in_errors("the beginning of a snapshot"):
            self.system.snapshot(*self._initiators())

    def _initiators(self) -> list[str]:
        """Draw one or several initiators, and further ones until markers reach every process."""
        graph = self.system.graph
        names = list(graph.processes)
        chosen = self._draw.sample(names, self._draw.choice([1, 1, self._draw.randrange(1, len(names) + 1)]))
        while missed := graph.unreachable(chosen):
            chosen.append(self._draw.choice(missed))
        return chosen

    def _step(self, enabled: Sequence[Step]) -> bool:
        if self.system.under_way and self._draw.random() < 1 / 16:
            number = self._draw.choice(list(self.system.under_way))
            with self._seed_in_errors(f"joining snapshot {number}"):
                self.system.join(number, self._draw.choice(list(self.system.graph.processes)))
            enabled = self.system.enabled()
        if not enabled:
            return False
        step = self._draw.choice(enabled)
        with self._seed_in_errors(str(step)):
            self.system.step(step)
        self._steps += 1
        return True

    def _finish(self) -> None:
        """Run until no snapshot is in progress; deliver markers, requests and reports first."""
        for _ in range(_PATIENCE):
            if not self.system.under_way:
                return
            channels = self.system.channels
            enabled = self.system.enabled()
            ahead: list[Step] = [
                step
                for step in enabled
                if isinstance(step, Join | DeliverReport)
                or (isinstance(step, Deliver) and _has_marker(channels[step.channel]))
            ]
            if not self._step(ahead or enabled):
                break
        if self.system.under_way:
            missing = "; ".join(
                [f"snapshot {n} misses reports of {', '.join(who)}" for n, who in self.system.under_way.items()]
            )
            held = ", ".join([str(channel) for channel, items in self.system.channels.items() if items])
            raise SnapshotStuck(
                f"{missing}: an observer waits for copies of messages that no process accepts, in {held}; snapshots by "
                f"markers do not wait for them [seed {self.seed}, step {self._steps}]"
            )

    @contextmanager
    def _seed_in_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            error.add_note(f"seed {self.seed}, step {self._steps + 1}: {what}")
            raise


def _has_marker(items: Sequence[object]) -> bool:
    return any([isinstance(item, Marker) for item in items])
