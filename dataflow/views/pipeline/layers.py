"""Layers of a graph: which node is above which, and in which order the nodes of a layer are.

Source: Sugiyama, Tagawa and Toda, *Methods for Visual Understanding of Hierarchical System Structures* (1981): break
circles, assign layers by the longest path, put a dummy node in each layer that an edge passes, and order each layer by
the barycentres of its neighbours.

Nothing here knows pipelines: nodes are names or numbers, and an edge is a pair of them. Equal graphs give equal layers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import TypeVar

__all__ = ["back_edges", "components", "longest_path_layers", "narrow_layers", "ordered_layers"]

_N = TypeVar("_N", bound=Hashable)

_SWEEPS, _IN_VAIN = 24, 8
"""How often all layers are ordered, down and up by turns; fewer if no edges cross, or so many did not help."""


def back_edges(nodes: Sequence[_N], edges: Sequence[tuple[_N, _N]]) -> frozenset[int]:
    """Return the positions of edges that close a circle: with these turned round, the graph has none but loops.

    The search begins at nodes without inputs, then takes the rest in order, so an edge that a reader would call
    "back" is one. An edge from a node to itself is one of them.

    >>> sorted(back_edges(["a", "b", "c"], [("a", "b"), ("b", "c"), ("c", "b"), ("a", "a")]))
    [2, 3]
    """
    outputs = _positions(nodes, edges, end=0)
    inputs = _positions(nodes, edges, end=1)
    on_path: set[_N] = set()
    visited: set[_N] = set()
    backward: set[int] = set()
    for root in [*(node for node in nodes if not inputs[node]), *nodes]:
        if root in visited:
            continue
        visited.add(root)
        on_path.add(root)
        path = [(root, iter(outputs[root]))]
        while path:
            node, remaining = path[-1]
            for position in remaining:
                target = edges[position][1]
                if target in on_path:
                    backward.add(position)
                elif target not in visited:
                    visited.add(target)
                    on_path.add(target)
                    path.append((target, iter(outputs[target])))
                    break
            else:
                on_path.remove(node)
                path.pop()
    return frozenset(backward)


def components(nodes: Sequence[_N], edges: Sequence[tuple[_N, _N]]) -> list[list[_N]]:
    """Return the nodes of each connected part, in the order of ``nodes``.

    >>> components(["a", "b", "c", "d"], [("d", "a")])
    [['a', 'd'], ['b'], ['c']]
    """
    neighbours: dict[_N, list[_N]] = {node: [] for node in nodes}
    for source, target in edges:
        neighbours[source].append(target)
        neighbours[target].append(source)
    first: dict[_N, _N] = {}
    for root in nodes:
        pending = [root]
        while pending:
            node = pending.pop()
            if node not in first:
                first[node] = root
                pending += neighbours[node]
    groups: dict[_N, list[_N]] = {}
    for node in nodes:
        groups.setdefault(first[node], []).append(node)
    return list(groups.values())


def longest_path_layers(nodes: Sequence[_N], edges: Sequence[tuple[_N, _N]]) -> dict[_N, int]:
    """Return the layer of each node of a graph without circles: each edge leads to a higher number.

    A node that has no more inputs than outputs is moved next to the nearest node that reads it, so edges are short.

    >>> longest_path_layers(["a", "b", "c", "d"], [("a", "b"), ("b", "c"), ("d", "c")])
    {'a': 0, 'b': 1, 'c': 2, 'd': 1}
    """
    outputs = _positions(nodes, edges, end=0)
    inputs = _positions(nodes, edges, end=1)
    missing = {node: len(inputs[node]) for node in nodes}
    layer = dict.fromkeys(nodes, 0)
    order = [node for node in nodes if not missing[node]]
    for node in order:  # grows while it is walked
        for position in outputs[node]:
            target = edges[position][1]
            layer[target] = max(layer[target], layer[node] + 1)
            missing[target] -= 1
            if not missing[target]:
                order.append(target)
    assert len(order) == len(nodes), f"a circle in {edges}"
    for node in reversed(order):
        if outputs[node] and len(inputs[node]) <= len(outputs[node]):
            layer[node] = min([layer[edges[position][1]] for position in outputs[node]]) - 1
    return layer


def narrow_layers(
    layer: Mapping[_N, int], edges: Sequence[tuple[_N, _N]], width: Mapping[_N, float], most: float
) -> dict[_N, int]:
    """Return layers of which none is wider than ``most``, if nodes at the ends of the graph made it so.

    Nodes without inputs are dealt out to new layers above, nodes without outputs to new ones below: neighbours to
    different layers, so that there is room for their edges beside them.

    >>> edges = [(source, "union") for source in "abc"]
    >>> narrow_layers({"a": 0, "b": 0, "c": 0, "union": 1}, edges, dict.fromkeys(["a", "b", "c", "union"], 40), 100)
    {'a': 1, 'b': 0, 'c': 1, 'union': 2}
    """
    has_inputs, has_outputs = {target for _, target in edges}, {source for source, _ in edges}
    place = {node: (of, 0) for node, of in layer.items()}
    for step, others in ((-1, has_inputs), (1, has_outputs)):
        movable: dict[int, list[_N]] = {}
        for node, of in layer.items():
            if node not in others:
                movable.setdefault(of, []).append(node)
        for of, nodes in movable.items():
            rows = ceil(sum([width[node] for node in nodes]) / most)
            place |= {node: (of, step * (i % rows)) for i, node in enumerate(nodes)}
    number = {at: i for i, at in enumerate(sorted(set(place.values())))}
    return {node: number[at] for node, at in place.items()}


def ordered_layers(layers: Sequence[Sequence[int]], down: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Return the layers, each in an order with few crossings of edges.

    Args:
        layers: the nodes of each layer.
        down: for each node, its neighbours in the next layer.

    >>> ordered_layers([[0, 1], [2, 3]], {0: [3], 1: [2], 2: [], 3: []})
    [[0, 1], [3, 2]]
    """
    up: dict[int, list[int]] = {node: [] for layer in layers for node in layer}
    for node, targets in down.items():
        for target in targets:
            up[target].append(node)
    best = current = _by_depth_first_search(layers, down)
    fewest, helped = _crossings(best, down), 0
    for sweep in range(_SWEEPS):
        if not fewest or sweep - helped > _IN_VAIN:
            break
        ties = sweep // 2 % 4
        current = _swept(current, up, ties) if sweep % 2 == 0 else _swept(current[::-1], down, ties)[::-1]
        crossings = _crossings(current, down)
        if crossings < fewest:
            best, fewest, helped = current, crossings, sweep
    return best


def _by_depth_first_search(layers: Sequence[Sequence[int]], down: Mapping[int, Sequence[int]]) -> list[list[int]]:
    number = {node: i for i, layer in enumerate(layers) for node in layer}
    ordered: list[list[int]] = [[] for _ in layers]
    visited: set[int] = set()
    for root in sorted(number):
        pending = [root]
        while pending:
            node = pending.pop()
            if node not in visited:
                visited.add(node)
                ordered[number[node]].append(node)
                pending += reversed(down[node])
    return ordered


def _swept(layers: Sequence[list[int]], before: Mapping[int, Sequence[int]], ties: int) -> list[list[int]]:
    """Return the layers, each sorted by the mean place of the neighbours in the one before it.

    Nodes of equal means stay in their order, or in the opposite one: bit 0 of ``ties`` says so for every other layer,
    bit 1 for the others. Either order is as good here, but a later layer may prefer one.
    """
    ordered = [layers[0]]
    for number, unsorted in enumerate(layers[1:]):
        layer = unsorted[::-1] if ties >> number % 2 & 1 else unsorted
        place = {node: i for i, node in enumerate(ordered[-1])}
        scale = len(ordered[-1]) / max(len(layer), 1)
        mean = {
            node: sum([place[other] for other in before[node]]) / len(before[node]) if before[node] else i * scale
            for i, node in enumerate(layer)
        }
        ordered.append(sorted(layer, key=mean.__getitem__))
    return ordered


def _crossings(layers: Sequence[Sequence[int]], down: Mapping[int, Sequence[int]]) -> int:
    """Return how many pairs of edges cross, all layers together."""
    total = 0
    for upper, lower in pairwise(layers):
        place = {node: i for i, node in enumerate(lower)}
        ends: list[int] = []
        for node in upper:
            targets = [place[target] for target in down[node]]
            total += sum([len(ends) - bisect_right(ends, end) for end in targets])
            for end in targets:
                insort(ends, end)
    return total


def _positions(nodes: Sequence[_N], edges: Sequence[tuple[_N, _N]], *, end: int) -> dict[_N, list[int]]:
    """Return for each node the positions of the edges that have it at ``end``: 0 the source, 1 the target."""
    positions: dict[_N, list[int]] = {node: [] for node in nodes}
    for i, edge in enumerate(edges):
        positions[edge[end]].append(i)
    return positions
