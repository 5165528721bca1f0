"""Places of boxes and arrows: every arrow leads down and around the boxes between its ends, and no label is covered.

A graph is laid out in rows from top to bottom. Boxes are in the rows of their layers (``layers``). If labels are above
a layer, they have a row of their own there, in which each label takes room as a box does. An arrow that passes a row
has a slot in it, so it never crosses a box or a label. Between rows there is free space, in which arrows move sideways.

Places in a row: each item is drawn to the mean of its neighbours; where items would overlap, the least squares solution
that keeps their order and distance is taken (Barlow and others, *Statistical Inference under Order Restrictions*, 1972:
pool adjacent violators).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Final, NamedTuple

from dataflow.drawing import Box
from dataflow.views.pipeline.layers import (
    back_edges,
    components,
    longest_path_layers,
    narrow_layers,
    ordered_layers,
)

__all__ = ["Layout", "LayoutEdge", "Route", "lay_out"]

Point = tuple[float, float]

_BESIDE: Final = 32
"""Pixels between two boxes of a row."""
_SLOT: Final = 14
"""Pixels between an arrow that passes a row and what is beside it; also the width of its slot."""
_BELOW: Final = (26, 64)
"""Pixels between two rows, the least and the most: more where arrows move far sideways."""
_LABEL_BELOW: Final = 17
"""The least between a row of boxes and a row of labels."""
_PORT: Final = 22
"""Pixels between two arrows at a box."""
_LOOP: Final = 16
"""Pixels beside a box for the arrow from the box to itself."""
_SHELF: Final = 1100
"""The width of a row if boxes can go to others, and of unconnected parts beside each other."""
_ROUNDS: Final = 10


class LayoutEdge(NamedTuple):
    """An arrow from box to box, and the size of its label; (0, 0) if it has none."""

    source: str
    target: str
    label: tuple[float, float] = (0, 0)


@dataclass(frozen=True, slots=True)
class Route:
    """The points of an arrow, from the source to the target, and the box of its label, if it has one.

    Between two points of different x and y the arrow may curve: nothing else is there. It passes its label in the
    middle, from top to bottom; both ends of the label are points.
    """

    points: tuple[Point, ...]
    label: Box | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes by name, the route of each edge in the order of the edges, and the size of all together."""

    boxes: Mapping[str, Box]
    routes: tuple[Route, ...]
    width: float
    height: float


def lay_out(sizes: Mapping[str, tuple[float, float]], edges: Sequence[LayoutEdge]) -> Layout:
    """Return places for boxes of these sizes and for the arrows between them. Circles are allowed.

    >>> layout = lay_out({"a": (80, 40), "b": (80, 40)}, [LayoutEdge("a", "b")])
    >>> layout.boxes["b"]
    Box(left=0.0, top=66.0, right=80.0, bottom=106.0)
    >>> layout.routes[0].points
    ((40.0, 40.0), (40.0, 66.0))
    """
    boxes: dict[str, Box] = {}
    routes: dict[int, Route] = {}
    names = list(sizes)
    parts = components(names, [(edge.source, edge.target) for edge in edges])
    part_of = {name: i for i, part in enumerate(parts) for name in part}
    positions: list[list[int]] = [[] for _ in parts]
    for i, edge in enumerate(edges):
        positions[part_of[edge.source]].append(i)
    placed = [
        _Part({name: sizes[name] for name in part}, [edges[i] for i in inside]).layout()
        for part, inside in zip(parts, positions, strict=True)
    ]
    x = y = width = height = 0.0
    shelf = max([_SHELF, *[part.width for part in placed]])
    for part, inside in sorted(zip(placed, positions, strict=True), key=lambda pair: -len(pair[0].boxes)):
        if x and x + part.width > shelf:
            x, y = 0.0, height + 2 * _BESIDE
        for name, box in part.boxes.items():
            boxes[name] = _shifted(box, x, y)
        for i, route in zip(inside, part.routes, strict=True):
            routes[i] = _moved(route, x, y)
        width, height = max(width, x + part.width), max(height, y + part.height)
        x += part.width + 2 * _BESIDE
    ordered = {name: boxes[name] for name in names}
    return Layout(ordered, tuple([routes[i] for i in range(len(edges))]), width, height)


def _moved(route: Route, x: float, y: float) -> Route:
    label = None if route.label is None else _shifted(route.label, x, y)
    return Route(tuple([(px + x, py + y) for px, py in route.points]), label)


def _shifted(box: Box, x: float, y: float) -> Box:
    return Box(box.left + x, box.top + y, box.right + x, box.bottom + y)


class _Link(NamedTuple):
    """A piece of an arrow between two rows; ``weight`` is how strongly it wants to be straight."""

    upper: int
    lower: int
    weight: float


class _Part:
    """A connected part. Items are numbered: first the boxes, then the slots and labels of arrows."""

    def __init__(self, sizes: Mapping[str, tuple[float, float]], edges: Sequence[LayoutEdge]) -> None:
        self._names = list(sizes)
        self._edges = edges
        number = {name: i for i, name in enumerate(self._names)}
        loops = {number[edge.source] for edge in edges if edge.source == edge.target}
        pairs = [(number[edge.source], number[edge.target]) for edge in edges]
        self._turned = back_edges(range(len(number)), pairs)
        self._sizes = [sizes[name] for name in self._names]
        self._room = [w + 2 * (_LOOP + _SLOT) * (i in loops) for i, (w, _) in enumerate(self._sizes)]
        self._rows: list[list[int]] = []
        self._chains = self._with_slots(pairs)
        self._links = [
            _Link(a, b, (8.0 if min(a, b) >= len(number) else 2.0 if max(a, b) >= len(number) else 1.0))
            for chain in self._chains
            for a, b in pairwise(chain)
        ]
        down: dict[int, list[int]] = {item: [] for row in self._rows for item in row}
        for link in self._links:
            down[link.upper].append(link.lower)
        self._rows = ordered_layers(self._rows, down)
        place = {item: i for row in self._rows for i, item in enumerate(row)}
        self._below: list[list[int]] = [[] for _ in self._sizes]
        self._above: list[list[int]] = [[] for _ in self._sizes]
        for i in sorted(range(len(self._links)), key=lambda i: (place[self._links[i].lower], i)):
            self._below[self._links[i].upper].append(i)
        for i in sorted(range(len(self._links)), key=lambda i: (place[self._links[i].upper], i)):
            self._above[self._links[i].lower].append(i)
        self._ports = self._even_ports()
        self._x = self._columns()
        self._ports = self._straight_ports()

    def _with_slots(self, pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
        """Return the items of each arrow from top to bottom, none for a loop; fill the rows."""
        downward = [(t, s) if i in self._turned else (s, t) for i, (s, t) in enumerate(pairs)]
        between = [(s, t) for s, t in downward if s != t]
        width = {item: room + _BESIDE for item, room in enumerate(self._room)}
        layer = narrow_layers(longest_path_layers(range(len(width)), between), between, width, _SHELF)
        labelled = [2 * layer[t] - 1 for (s, t), edge in zip(downward, self._edges, strict=True)
                    if edge.label[0] and s != t]  # fmt: skip
        ranks = {rank: i for i, rank in enumerate(sorted({*labelled, *[2 * of for of in layer.values()]}))}
        self._rows = [[] for _ in ranks]
        for item, of in layer.items():
            self._rows[ranks[2 * of]].append(item)
        chains: list[list[int]] = []
        for (s, t), edge in zip(downward, self._edges, strict=True):
            chain = [s] if s != t else []
            for row in range(ranks[2 * layer[s]] + 1, ranks[2 * layer[t]]):
                has_label = bool(edge.label[0]) and row == ranks[2 * layer[t] - 1]
                self._rows[row].append(len(self._sizes))
                chain.append(len(self._sizes))
                self._sizes.append(edge.label if has_label else (0.0, 0.0))
                self._room.append(max(self._sizes[-1][0], _SLOT))
            chains.append([*chain, t] if s != t else [])
        return chains

    def _sides(self) -> Iterator[tuple[int, bool, list[int]]]:
        """Yield each item, whether its lower side is meant, and the links there from left to right."""
        for item in range(len(self._sizes)):
            for is_below, links in ((True, self._below[item]), (False, self._above[item])):
                if links:
                    yield item, is_below, links

    def _even_ports(self) -> dict[tuple[int, bool], float]:
        """Return by (link, whether at its upper end) how far from the item's middle the link meets it."""
        ports: dict[tuple[int, bool], float] = {}
        for item, is_below, links in self._sides():
            step = self._port_step(item, links)
            for j, link in enumerate(links):
                ports[link, is_below] = (j - (len(links) - 1) / 2) * step
        return ports

    def _port_step(self, item: int, links: Sequence[int]) -> float:
        return min(_PORT, self._sizes[item][0] / (len(links) + 1))

    def _straight_ports(self) -> dict[tuple[int, bool], float]:
        """Return the ports again, moved a little where that makes a link straight."""
        ports: dict[tuple[int, bool], float] = {}
        for item, is_below, links in self._sides():
            if item >= len(self._names):
                ports[links[0], is_below] = 0.0
                continue
            step = self._port_step(item, links)
            reach = min(self._sizes[item][0] / 2 - 8, (len(links) - 1) / 2 * step + _PORT)
            targets: list[float] = []
            for link in links:
                other = self._links[link].lower if is_below else self._links[link].upper
                towards = self._even_middle(link) if other < len(self._names) else self._x[other]
                targets.append(min(max(towards - self._x[item], -reach), reach))
            for j, place in enumerate(_apart(targets, [1.0] * len(links), [step] * (len(links) - 1))):
                beyond = (len(links) - 1 - j) * step
                ports[links[j], is_below] = min(max(place, -reach + j * step), reach - beyond)
        return ports

    def _even_middle(self, link: int) -> float:
        """Return the x in the middle of a link between boxes, if it met both in its even place."""
        upper, lower, _ = self._links[link]
        return (self._x[upper] + self._ports[link, True] + self._x[lower] + self._ports[link, False]) / 2

    def _columns(self) -> list[float]:
        """Return the x of the middle of each item."""
        x = [0.0] * len(self._sizes)
        distances = [[self._distance(a, b) for a, b in pairwise(row)] for row in self._rows]
        for row, between in zip(self._rows, distances, strict=True):
            for position, item in enumerate(row[1:]):
                x[item] = x[row[position]] + between[position]
        above: list[list[tuple[int, float, float]]] = [[] for _ in x]
        below: list[list[tuple[int, float, float]]] = [[] for _ in x]
        for i, (upper, lower, weight) in enumerate(self._links):
            shift = self._ports[i, True] - self._ports[i, False]
            above[lower].append((upper, shift, weight))
            below[upper].append((lower, -shift, weight))
        both = [a + b for a, b in zip(above, below, strict=True)]
        for turn in range(_ROUNDS):
            pull = both if turn >= _ROUNDS - 2 else below if turn % 2 else above
            rows = list(zip(self._rows, distances, strict=True))
            for row, between in reversed(rows) if turn % 2 else rows:
                wanted = [_mean(pull[item], x) for item in row]
                targets = [x[item] if want is None else want[0] for item, want in zip(row, wanted, strict=True)]
                weights = [0.1 if want is None else want[1] for want in wanted]
                for item, place in zip(row, _apart(targets, weights, between), strict=True):
                    x[item] = place
        left = min([x[item] - room / 2 for item, room in enumerate(self._room)])
        return [float(ceil(middle - left)) for middle in x]

    def _distance(self, left: int, right: int) -> float:
        are_boxes = max(left, right) < len(self._names)
        return (self._room[left] + self._room[right]) / 2 + (_BESIDE if are_boxes else _SLOT)

    def layout(self) -> Layout:
        """Return the places, from (0, 0) on."""
        tops = list(self._tops())
        boxes: dict[int, Box] = {}
        spans: dict[int, tuple[float, float]] = {}
        for row, (top, bottom) in zip(self._rows, tops, strict=True):
            for item in row:
                spans[item] = (top, bottom)
                if item < len(self._names):
                    (w, h), middle = self._sizes[item], self._x[item]
                    boxes[item] = Box(middle - w / 2, top, middle + w / 2, top + h)
        routes = list(self._routes(boxes, spans))
        width = max([self._x[item] + room / 2 for item, room in enumerate(self._room)])
        named = {name: boxes[i] for i, name in enumerate(self._names)}
        return Layout(named, tuple(routes), width, tops[-1][1])

    def _tops(self) -> Iterator[tuple[float, float]]:
        """Yield the top and the bottom of each row."""
        row_of = {item: i for i, row in enumerate(self._rows) for item in row}
        sideways = [0.0] * len(self._rows)
        for i, link in enumerate(self._links):
            shift = self._end(i, is_upper=False) - self._end(i, is_upper=True)
            sideways[row_of[link.lower]] = max(sideways[row_of[link.lower]], abs(shift))
        least, most = _BELOW
        bottom = 0.0
        has_boxes = [any([item < len(self._names) for item in row]) for row in self._rows]
        for i, row in enumerate(self._rows):
            near = least if i and has_boxes[i - 1] and has_boxes[i] else _LABEL_BELOW
            top = bottom + (round(min(near + sideways[i] / 8, most)) if i else 0)
            bottom = top + max([self._sizes[item][1] for item in row])
            yield top, bottom

    def _end(self, link: int, *, is_upper: bool) -> float:
        """Return the x of an end of a link."""
        upper, lower, _ = self._links[link]
        return round(self._x[upper if is_upper else lower] + self._ports[link, is_upper], 1)

    def _routes(self, boxes: Mapping[int, Box], spans: Mapping[int, tuple[float, float]]) -> Iterator[Route]:
        start = 0
        for i, chain in enumerate(self._chains):
            edge = self._edges[i]
            if not chain:
                yield _loop(boxes[self._names.index(edge.source)])
                continue
            points: list[Point] = []
            label: Box | None = None
            for j, (upper, lower) in enumerate(pairwise(chain)):
                leaves, enters = self._end(start + j, is_upper=True), self._end(start + j, is_upper=False)
                if upper in boxes:
                    points.append((leaves, boxes[upper].bottom))
                points += [(leaves, spans[upper][1]), (enters, spans[lower][0])]
                if self._sizes[lower][0] and lower not in boxes:
                    half = self._sizes[lower][0] / 2
                    label = Box(enters - half, spans[lower][0], enters + half, spans[lower][1])
            start += len(chain) - 1
            yield Route(tuple(dict.fromkeys(points[::-1] if i in self._turned else points)), label)


def _loop(box: Box) -> Route:
    """Return the way from a box to itself, around its right side."""
    inside, outside = box.right - _LOOP, box.right + _LOOP
    below, above = box.bottom + _LOOP / 2, box.top - _LOOP / 2
    corners = ((inside, box.bottom), (inside, below), (outside, below), (outside, above), (inside, above))
    return Route((*corners, (inside, box.top)))


def _mean(pull: Sequence[tuple[int, float, float]], x: Sequence[float]) -> tuple[float, float] | None:
    """Return the weighted mean place that the neighbours ask for, and the sum of their weights; None without any."""
    if not pull:
        return None
    total = sum([weight for _, _, weight in pull])
    return sum([(x[other] + shift) * weight for other, shift, weight in pull]) / total, total


def _apart(targets: Sequence[float], weights: Sequence[float], between: Sequence[float]) -> list[float]:
    """Return places as near to ``targets`` as the distances between neighbours allow, in the same order.

    >>> _apart([0, 0, 50], [1, 1, 1], [10, 10])
    [-5.0, 5.0, 50.0]
    """
    offsets = [0.0]
    for distance in between:
        offsets.append(offsets[-1] + distance)
    blocks: list[tuple[float, float, int]] = []  # the mean, the weight, and the number of items that move as one
    for target, weight, offset in zip(targets, weights, offsets, strict=True):
        mean, total, count = target - offset, weight, 1
        while blocks and blocks[-1][0] > mean:
            before, heavy, more = blocks.pop()
            mean = (before * heavy + mean * total) / (heavy + total)
            total, count = heavy + total, count + more
        blocks.append((mean, total, count))
    places = [mean for mean, _, count in blocks for _ in range(count)]
    return [place + offset for place, offset in zip(places, offsets, strict=True)]
