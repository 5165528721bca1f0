"""The layout of pictures: boxes apart, arrows down and around them, labels uncovered, and the same each time."""

from __future__ import annotations

import random
from functools import cache
from itertools import combinations, pairwise

from dataflow.drawing import Box
from dataflow.views.pipeline.layout import Layout, LayoutEdge, Route, lay_out
from tests.views.pipeline.sketches import random_edges


def random_layout(seed: int, *, circles: bool = False) -> tuple[list[LayoutEdge], Layout]:
    rng = random.Random(seed)
    names, pairs = random_edges(seed, circles=circles)
    edges = [LayoutEdge(s, t, (rng.randint(20, 200), 18) if rng.random() < 0.4 else (0, 0)) for s, t in pairs]
    return edges, lay_out({name: (rng.randint(40, 250), rng.randint(30, 200)) for name in names}, edges)


def crossed(route: Route, boxes: list[Box]) -> list[Box]:
    """Return the boxes that the area of a piece of the route overlaps."""
    pieces = [
        Box(min(x1, x2) - 1, min(y1, y2) + 0.5, max(x1, x2) + 1, max(y1, y2) - 0.5)
        for (x1, y1), (x2, y2) in pairwise(route.points)
    ]
    return [box for box in boxes for piece in pieces if piece.overlaps(box)]


@cache
def layouts() -> list[tuple[int, list[LayoutEdge], Layout]]:
    return [(seed, *random_layout(seed)) for seed in range(200)]


@cache
def circular_layouts() -> list[tuple[int, list[LayoutEdge], Layout]]:
    return [(seed, *random_layout(seed, circles=True)) for seed in range(40)]


def test_neither_boxes_nor_labels_overlap() -> None:
    for seed, _, layout in layouts() + circular_layouts():
        labels = [route.label for route in layout.routes if route.label is not None]
        everything = [*layout.boxes.values(), *labels]
        assert not [pair for pair in combinations(everything, 2) if pair[0].overlaps(pair[1])], seed
        whole = Box(0, 0, layout.width, layout.height)
        assert all(box.within(whole) for box in everything), seed


def test_arrows_lead_down_from_the_lower_side_to_the_upper_one() -> None:
    for seed, edges, layout in layouts():
        for edge, route in zip(edges, layout.routes, strict=True):
            source, target = layout.boxes[edge.source], layout.boxes[edge.target]
            (x1, y1), (x2, y2) = route.points[0], route.points[-1]
            assert (y1, y2) == (source.bottom, target.top), seed
            assert source.left < x1 < source.right, seed
            assert target.left < x2 < target.right, seed
            assert all(upper[1] <= lower[1] for upper, lower in pairwise(route.points)), seed


def test_arrows_go_around_boxes_and_the_labels_of_others() -> None:
    for seed, edges, layout in layouts():
        for edge, route in zip(edges, layout.routes, strict=True):
            others = [box for name, box in layout.boxes.items() if name not in (edge.source, edge.target)]
            labels = [other.label for other in layout.routes if other.label and other is not route]
            assert not crossed(route, others + labels), (seed, edge)


def test_an_arrow_with_a_label_passes_it_in_the_middle() -> None:
    for seed, edges, layout in layouts() + circular_layouts():
        for edge, route in zip(edges, layout.routes, strict=True):
            assert (route.label is not None) == (bool(edge.label[0]) and edge.source != edge.target), seed
            if route.label is not None:
                middle = (route.label.left + route.label.right) / 2
                assert {(middle, route.label.top), (middle, route.label.bottom)} <= set(route.points), seed


def test_a_back_edge_begins_at_its_source_and_ends_at_its_target() -> None:
    for seed, edges, layout in circular_layouts():
        for edge, route in zip(edges, layout.routes, strict=True):
            ends = ((edge.source, route.points[0]), (edge.target, route.points[-1]))
            assert all(layout.boxes[name].left < x < layout.boxes[name].right for name, (x, _) in ends), seed
            assert all(y in (layout.boxes[name].top, layout.boxes[name].bottom) for name, (_, y) in ends), seed


def test_back_edges_lead_up_around_boxes_and_loops_around_their_own() -> None:
    for seed, edges, layout in circular_layouts():
        for edge, route in zip(edges, layout.routes, strict=True):
            own = (edge.source, edge.target)
            assert not crossed(route, [box for name, box in layout.boxes.items() if name not in own]), (seed, edge)


def test_equal_graphs_have_equal_layouts() -> None:
    for seed, _, layout in layouts()[:20]:
        assert random_layout(seed)[1] == layout


def test_a_chain_is_straight() -> None:
    sizes = {"a": (80.0, 40.0), "b": (200.0, 40.0), "c": (92.0, 40.0)}
    layout = lay_out(sizes, [LayoutEdge("a", "b", (50, 18)), LayoutEdge("b", "c")])
    assert {x for route in layout.routes for x, _ in route.points} == {100.0}


def test_unconnected_parts_are_beside_each_other_the_largest_first() -> None:
    layout = lay_out(dict.fromkeys("abc", (80.0, 40.0)), [LayoutEdge("b", "c")])
    assert layout.boxes["b"].left == 0 < layout.boxes["c"].right < layout.boxes["a"].left
    assert layout.boxes["a"].top == layout.boxes["b"].top


def test_many_unconnected_parts_share_some_rows() -> None:
    layout = lay_out({str(i): (100.0, 40.0) for i in range(100)}, [])
    assert layout.width < 1200
    assert layout.height < 1600


def test_no_boxes_have_a_layout() -> None:
    assert lay_out({}, []) == Layout({}, (), 0, 0)


def test_many_sources_of_one_union_are_in_some_rows() -> None:
    sizes = {str(i): (150.0, 40.0) for i in range(20)}
    layout = lay_out({**sizes, "union": (300, 40)}, [LayoutEdge(name, "union") for name in sizes])
    assert layout.width < 20 * 100
    assert len({layout.boxes[name].top for name in sizes}) == 4


def test_many_sinks_of_one_stream_are_in_some_rows() -> None:
    sizes = {str(i): (150.0, 40.0) for i in range(20)}
    layout = lay_out({"rows": (300, 40), **sizes}, [LayoutEdge("rows", name) for name in sizes])
    assert layout.width < 20 * 100
    assert len({layout.boxes[name].top for name in sizes}) == 4
