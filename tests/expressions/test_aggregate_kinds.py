"""A kind of aggregate is named in one place of each layer: what it is, how operators compute it, and how Spark does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from dataflow.expressions import AggregateKind
from dataflow.expressions.aggregate_kinds import KINDS
from dataflow.runners.spark.lowering.aggregates import _RULES
from operators.aggregation import kinds

ROOT = Path(__file__).parents[2]
PLACES = {
    "dataflow/expressions/aggregate_kinds.py",
    "operators/aggregation/kinds.py",
    "dataflow/runners/spark/lowering/aggregates.py",
}


def named_kinds(tree: ast.AST) -> Iterator[str]:
    """The kinds that a module names, by the class or by another name that it gives to the class."""
    names = {"AggregateKind"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {each.asname for each in node.names if each.name == "AggregateKind" and each.asname}
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Name) and node.value.id in names:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in AggregateKind.__members__:
            owner = node.value
            if (owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")) in names:
                yield node.attr


def test_no_other_file_names_a_kind() -> None:
    files = [path for folder in ("dataflow", "operators") for path in sorted((ROOT / folder).rglob("*.py"))]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    trees = {path: ast.parse(text) for path, text in texts.items() if "AggregateKind" in text}
    found = {path: sorted(set(named_kinds(tree))) for path, tree in trees.items()}
    assert {path: names for path, names in found.items() if names and path not in PLACES} == {}
    assert all(found[path] for path in PLACES)


def test_a_kind_is_found_under_other_names_of_its_class() -> None:
    source = (
        "from dataflow.expressions import AggregateKind as A\n_K = A\nx = _K.SUM, A.MIN, flow.AggregateKind.MAX, y.MEAN"
    )
    assert sorted(named_kinds(ast.parse(source))) == ["MAX", "MIN", "SUM"]


def test_each_place_has_every_kind() -> None:
    assert [list(table) for table in (KINDS, kinds.KINDS)] == [list(AggregateKind)] * 2
    assert set(_RULES) == set(AggregateKind)


def test_a_kind_is_computed_by_words_of_its_own_or_of_a_group() -> None:
    for kind, each in kinds.KINDS.items():
        assert (each.choosing is not None) == KINDS[kind].chooses_a_row, kind
        assert (each.column is None) == (each.choosing is not None or "q" in KINDS[kind].needs), kind
