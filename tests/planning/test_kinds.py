"""The engine asks a spec what it must know, and never tests its kind; ``contracts/spec.py`` has the exceptions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dataflow.contracts.spec import Spec
from dataflow.planning.operator_table import registered_specs

ROOT = Path(__file__).parents[2]
TABLES = ("dataflow/planning/operator_table.py", "dataflow/runners/spark/lowering/rules.py")
"""The tables from kinds to what implements them."""
ENDS = {"Read", "Write"}


@cache
def kinds() -> set[tuple[str, str]]:
    """The module and name of each class of specs of the library but for the ends of pipelines; bases as well."""
    bases = {base for spec in registered_specs() for base in spec.__mro__ if issubclass(base, Spec)} - {Spec}
    return {(kind.__module__, kind.__name__) for kind in bases if kind.__name__ not in ENDS}


def tests_of_kinds(module: str, source: str) -> list[str]:
    """The expressions of a module that test which kind a spec is, or which attributes its kind has."""
    tree = ast.parse(source)
    names = {name for home, name in kinds() if home == module}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names.update(_imported(node.module, alias))
    return [ast.unparse(node) for node in _deciding(tree) if _tests(node, names)]


def _imported(module: str, alias: ast.alias) -> Iterator[str]:
    """Yield the names of kinds that are imported from a module, or with it."""
    name = alias.asname or alias.name
    if (module, alias.name) in kinds():
        yield name
    yield from (f"{name}.{kind}" for home, kind in kinds() if home == f"{module}.{alias.name}")


def _deciding(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree, without conditions of ``assert``."""
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, ast.Assert):
            yield child
            yield from _deciding(child)


def _tests(node: ast.AST, names: set[str]) -> bool:
    match node:
        case ast.Call(ast.Name("isinstance" | "issubclass"), [_, kind]):
            return _names(kind, names)
        case ast.Call(ast.Name("getattr" | "hasattr"), [asked, *_]):
            return _is_spec(asked)
        case ast.Compare(left, _, others):
            return any(_is_kind(side) or _names(side, names) for side in (left, *others))
        case ast.Subscript(_, key) | ast.Call(ast.Attribute(_, "get"), [key, *_]):
            return _is_kind(key)
        case ast.MatchClass(kind):
            return _names(kind, names)
        case ast.Dict(keys):
            return any(key is not None and _names(key, names) for key in keys)
        case ast.FunctionDef():
            dispatched = any("register" in ast.unparse(decorator) for decorator in node.decorator_list)
            return dispatched and any(arg.annotation and _names(arg.annotation, names) for arg in node.args.args)
    return False


def _names(kinds: ast.AST, names: set[str]) -> bool:
    """Return whether an expression has one of these classes in it."""
    parts = [ast.unparse(part) for part in ast.walk(kinds) if isinstance(part, ast.Name | ast.Attribute)]
    return not names.isdisjoint(parts)


def _is_kind(value: ast.AST) -> bool:
    """Return whether a value is the class of a spec, or the name of its kind."""
    match value:
        case ast.Call(ast.Name("type"), [asked]):
            return _is_spec(asked)
        case ast.Attribute(ast.Name("node"), "kind"):
            return True
        case ast.Attribute(asked, "kind"):
            return _is_spec(asked)
    return False


def _is_spec(value: ast.AST) -> bool:
    return (isinstance(value, ast.Name) and value.id == "spec") or (
        isinstance(value, ast.Attribute) and value.attr == "spec"
    )


def test_the_engine_tests_of_no_spec_which_kind_it_is() -> None:
    found = {}
    for path in sorted((ROOT / "dataflow").rglob("*.py")):
        file, source = path.relative_to(ROOT), path.read_text()
        if str(file) not in TABLES and "spec" in source:  # most files have no specs, and parsing takes time
            found[str(file)] = tests_of_kinds(".".join(file.with_suffix("").parts), source)
    assert {file: tests for file, tests in found.items() if tests} == {}


@pytest.mark.parametrize(
    "test",
    [
        "isinstance(node.spec, Filter)",
        "isinstance(x, Filter | Project)",
        "isinstance(x, specs.Filter)",
        "type(node.spec) is Filter",
        "kind is Filter",
        "rules[type(spec)]",
        "rules.get(type(spec), None)",
        "getattr(node.spec, 'emit', None)",
        "hasattr(spec, 'function')",
        "node.kind == 'filter'",
        "{Filter: 1}",
    ],
)
def test_each_way_to_test_a_kind_is_found(test: str) -> None:
    imports = "from dataflow.planning import specs\nfrom dataflow.planning.specs import Filter, Project\n"
    assert tests_of_kinds("dataflow.toy", f"{imports}found = {test}") == [test]


def test_patterns_are_found_and_assertions_and_ends_are_not() -> None:
    imports = "from dataflow.planning.specs import Filter, Read\n"
    match = "match node.spec:\n    case Filter(predicate):\n        pass\n    case Read(source):\n        pass"
    assert tests_of_kinds("dataflow.toy", imports + match) == ["Filter(predicate)"]
    dispatched = "@rows_of.register\ndef of_filter(spec: Filter):\n    pass"
    assert tests_of_kinds("dataflow.toy", imports + dispatched) == [dispatched]
    assert tests_of_kinds("dataflow.toy", f"{imports}assert isinstance(spec, Filter)\nisinstance(spec, Read)") == []
