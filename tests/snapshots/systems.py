"""Random graphs of processes with random behaviour, from seeds."""

from __future__ import annotations

import random
from typing import Any

from dataflow.snapshots.processes import Process, ProcessGraph, Sends, action


class Trader(Process):
    """Passes on coins that it got, to a few at a time, by rules of its own; it makes no coins and loses none."""

    def __init__(self, name: str, coins: int, seed: int) -> None:
        self.name, self.coins, self.turn, self.seed = name, coins, 0, seed
        self.targets: list[str] = []
        self.seen: list[tuple[str, int]] = []

    def receive(self, sender: str, message: int) -> Sends:
        self.coins += message
        self.seen = [*self.seen[-3:], (sender, message)]
        return self._give() if self._rolls(3) else None

    @action(when=lambda self: self.coins > 0 and self.turn < 60)
    def trade(self) -> Sends:
        return self._give()

    @action(when=lambda self: self.turn < 60 and self.turn % 5 == 0)
    def ponder(self) -> None:
        self.turn += 1

    def _give(self) -> Sends:
        self.turn += 1
        sent = {}
        for target in self.targets:
            if self.coins > 0 and self._rolls(2):
                sent[target] = 1 + self.turn % self.coins
                self.coins -= sent[target]
        return sent

    def _rolls(self, sides: int) -> bool:
        return random.Random(f"{self.seed}/{self.name}/{self.turn}/{self.coins}/{len(self.seen)}").randrange(sides) == 0


def _pairing(first: str, second: str) -> type[Trader]:
    class Paired(Trader):
        """Accepts from two channels at once where both have something, or from each alone."""

        @action(accepts=(first, second))
        def merge(self, one: int, other: int) -> Sends:
            self.coins += one + other
            return self._give()

    return Paired


def _shy(first: str, second: str) -> type[Trader]:
    class Shy(_pairing(first, second)):  # type: ignore[misc]
        """Accepts from two channels at once, and leaves everything else where it is."""

        receive = Process.receive

    return Shy


def random_graph(seed: int, *, strongly_connected: bool = True, shy: bool = False) -> ProcessGraph:
    draw = random.Random(seed)
    names = [f"P{i}" for i in range(1, draw.randrange(2, 7))]
    pairs = [(a, b) for a in names for b in names if (a != b or draw.random() < 0.1) and draw.random() < 0.4]
    if strongly_connected:
        order = draw.sample(names, len(names))
        pairs += zip(order, [*order[1:], order[0]], strict=True)
    channels = list(dict.fromkeys(pairs))
    draw.shuffle(channels)
    graph = ProcessGraph()
    for name in names:
        into = [source for source, target in channels if target == name]
        made: Any = (_shy if shy else _pairing)(*into[:2]) if len(into) > 1 and draw.random() < 0.3 else Trader
        process = made(name, draw.randrange(8), seed)
        process.targets = [target for source, target in channels if source == name]
        graph.add(name, process)
    for source, target in channels:
        graph.channel(source, target)
    return graph


def coins(state: Any) -> int:
    return sum(process["coins"] for process in state.processes.values()) + sum(state.in_flight)
