"""Runs to draw, and what is found in a picture."""

from __future__ import annotations

import random
import re
from xml.etree import ElementTree

from dataflow.snapshots.diagrams.layout import DiagramLayout
from dataflow.snapshots.processes import Process, ProcessGraph, Sends, action
from dataflow.snapshots.runs.system import Marker, System
from tests.snapshots.test_classic_cases import CASES, replay

SVG = "{http://www.w3.org/2000/svg}"
LETTERS = {"P1": "ABCDE", "P2": "FGH", "P3": "IJK"}


class Player(Process):
    @action
    def throw(self, to: str, ball: str) -> Sends:
        return {to: ball}

    @action
    def rest(self) -> None:
        pass

    def receive(self, sender: str, message: str) -> None:
        pass


def players(*names: str) -> System:
    graph = ProcessGraph()
    for name in names:
        graph.add(name, Player())
    return System(graph.connect(*names))


def kuper() -> System:
    case = CASES["kuper_2019"]
    return replay(case, case["script"])


def kuper_with_all() -> System:
    """Kuper's run, with a second snapshot that two processes begin, under way at the end, and a message on its way."""
    system = kuper()
    assert system.snapshot("P2", "P3") == 1
    assert system.deliver("P2", "P1") == Marker(1)
    system.act("P1", "send", "L", "P2", "m5")
    return system


def at_random(seed: int) -> System:
    """Players who throw, catch and begin snapshots as a seed says."""
    chance = random.Random(seed)
    names = [f"P{i}" for i in range(chance.randint(2, 5))]
    system = players(*names)
    for number in range(60):
        process = chance.choice(names)
        if chance.random() < 0.05:
            system.snapshot(*chance.sample(names, chance.randint(1, 2)))
        elif chance.random() < 0.4:
            system.act(process, "throw", chance.choice([name for name in names if name != process]), f"m{number}")
        elif enabled := system.enabled():
            system.step(chance.choice(enabled))
    return system


def parsed(svg: str) -> ElementTree.Element:
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    return root


def groups(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [group for group in root.iter(f"{SVG}g") if name in group.attrib["class"].split()]


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?[\d.]+", text)]


def names_inside(layout: DiagramLayout, cut: int) -> str:
    return "".join(sorted([dot.name for dot in layout.dots if cut in dot.inside]))
