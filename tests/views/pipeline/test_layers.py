"""Layers of graphs: circles are broken first, edges lead down, and orders have few crossings."""

from __future__ import annotations

from itertools import pairwise

from dataflow.views.pipeline.layers import back_edges, components, longest_path_layers, ordered_layers
from tests.views.pipeline.sketches import random_edges


def test_without_circles_no_edge_is_a_back_edge() -> None:
    for seed in range(200):
        assert not back_edges(*random_edges(seed)), seed


def test_with_its_back_edges_turned_round_a_graph_has_layers() -> None:
    for seed in range(200):
        names, edges = random_edges(seed, circles=True)
        backward = back_edges(names, edges)
        acyclic = [(t, s) if i in backward else (s, t) for i, (s, t) in enumerate(edges) if s != t]
        layers = longest_path_layers(names, acyclic)
        assert all(layers[source] < layers[target] for source, target in acyclic), seed
        assert {i for i, (s, t) in enumerate(edges) if s == t} <= backward, seed


def test_the_edge_that_closes_a_loop_of_feedback_is_the_back_edge() -> None:
    edges = [("rows", "step"), ("step", "test"), ("test", "step"), ("test", "out")]
    assert back_edges(["step", "test", "rows", "out"], edges) == {2}


def test_a_circle_without_beginning_is_broken_at_its_first_node() -> None:
    assert back_edges(["a", "b", "c"], [("b", "c"), ("c", "a"), ("a", "b")]) == {1}


def test_chains_of_ten_thousand_need_no_recursion() -> None:
    names = [str(i) for i in range(10_000)]
    edges = list(pairwise(names))
    assert not back_edges(names, edges)
    assert longest_path_layers(names, edges)["9999"] == 9_999
    assert components(names, edges) == [names]


def test_a_source_is_right_above_the_join_that_reads_it() -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "join"), ("late", "map"), ("map", "join")]
    layers = longest_path_layers(["a", "b", "c", "late", "map", "join"], edges)
    assert (layers["late"], layers["map"], layers["join"]) == (1, 2, 3)


def test_two_crossed_trees_are_untangled() -> None:
    down = {0: [3, 5], 1: [2, 4], 2: [], 3: [], 4: [], 5: []}
    upper, lower = ordered_layers([[0, 1], [2, 3, 4, 5]], down)
    assert [set(lower[:2]), set(lower[2:])] == [set(down[node]) for node in upper]
