"""Imports between files: circles are listed, late and within a folder; and no module only re-exports."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
Imports = Mapping[str, Mapping[str, bool]]

LATE_IMPORTS = {
    ("dataflow.api.columns", "dataflow.api.streams"),
    ("dataflow.api.custom_operators", "dataflow.api.keyed_streams"),
    ("dataflow.api.custom_operators", "dataflow.api.streams"),
    ("dataflow.api.functions", "dataflow.api.streams"),
    ("dataflow.api.joins", "dataflow.api.streams"),
    ("dataflow.api.keyed_streams", "dataflow.api.tops"),
    ("dataflow.api.lookups", "dataflow.api.streams"),
    ("dataflow.api.process", "dataflow.api.streams"),
    ("dataflow.api.splits", "dataflow.api.streams"),
    ("dataflow.api.stream_base", "dataflow.api.pipeline"),
    ("dataflow.api.stream_base", "dataflow.api.streams"),
    ("dataflow.api.streams", "dataflow.api.keyed_streams"),
    ("dataflow.api.streams", "dataflow.api.pipeline"),
    ("dataflow.api.streams", "dataflow.api.windowed_streams"),
    ("dataflow.api.tops", "dataflow.api.keyed_streams"),
    ("dataflow.api.tops", "dataflow.api.streams"),
    ("dataflow.api.tops", "dataflow.api.windowed_streams"),
    ("dataflow.api.uniques", "dataflow.api.streams"),
    ("dataflow.api.windowed_streams", "dataflow.api.keyed_streams"),
    ("dataflow.contracts.operator", "dataflow.contracts.rescale"),
    ("dataflow.contracts.rescale", "dataflow.contracts.operator"),
    ("dataflow.api.windowed_streams", "dataflow.api.tops"),
    ("dataflow.expressions.aggregated", "dataflow.expressions.aggregates"),
    ("dataflow.expressions.aggregated", "dataflow.expressions.nodes"),
    ("dataflow.expressions.coercion", "dataflow.expressions.typing"),
    ("dataflow.expressions.methods", "dataflow.expressions.calls"),
    ("dataflow.expressions.methods", "dataflow.expressions.nested"),
    ("dataflow.expressions.methods", "dataflow.expressions.nodes"),
    ("dataflow.expressions.methods", "dataflow.expressions.strings"),
    ("dataflow.expressions.methods", "dataflow.expressions.temporal"),
    ("dataflow.expressions.nodes", "dataflow.expressions.evaluation"),
    ("dataflow.expressions.nodes", "dataflow.expressions.text"),
    ("dataflow.expressions.nodes", "dataflow.expressions.typing"),
    ("dataflow.expressions.signatures", "dataflow.expressions.typing"),
    ("dataflow.runners.barrier_summary", "dataflow.runners.run_result"),
    ("dataflow.runners.run_warnings", "dataflow.runners.run_result"),
    ("dataflow.runners.spark.keyed_tasks", "dataflow.runners.spark.keyed_tasks"),
    ("dataflow.runners.spark.source_tasks", "dataflow.runners.spark.source_tasks"),
    ("dataflow.runners.summary", "dataflow.runners.run_result"),
    ("dataflow.runtime.restore.report", "dataflow.runtime.restore.report_text"),
    ("dataflow.runtime.restore.report_text", "dataflow.runtime.restore.report"),
    ("dataflow.views.attempt_mode", "dataflow.views.events"),
    ("dataflow.views.checkpoint_table", "dataflow.views.events"),
    ("dataflow.views.events", "dataflow.views.checkpoint_table"),
    ("dataflow.views.select_events", "dataflow.views.events"),
    ("operators.sources.watch_reader", "operators.sources.watch"),
}
"""Imports for types or inside functions that close a circle of files: (importer, imported)."""


def test_each_import_that_closes_a_circle_is_listed() -> None:
    imports = imports_of()
    circles = circles_of(imports)
    late = {
        (a, b) for circle in circles for a in circle for b, early in imports[a].items() if b in circle and not early
    }
    assert late == LATE_IMPORTS


def test_without_late_imports_there_is_no_circle() -> None:
    imports = imports_of()
    early = {file: {name: True for name, early in found.items() if early} for file, found in imports.items()}
    assert circles_of(early) == []


def test_a_circle_stays_within_a_folder() -> None:
    assert [
        circle for circle in circles_of(imports_of()) if len({name.rpartition(".")[0] for name in circle}) > 1
    ] == []


def _files() -> dict[str, Path]:
    """The file of each module, without ``__init__.py``."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for top in ("dataflow", "operators")
        for path in (ROOT / top).rglob("*.py")
        if path.name != "__init__.py"
    }


@cache
def imports_of() -> Imports:
    """For each module the modules of ours it imports, and whether it does so when it is imported itself."""
    files = _files()
    found: dict[str, dict[str, bool]] = defaultdict(dict)
    for name, path in files.items():
        for module, early in _imported(ast.parse(path.read_text())):
            if module in files:
                found[name][module] = early or found[name].get(module, False)
    return found


def test_no_module_only_re_exports() -> None:
    """A name has one import path, so only the ``__init__.py`` of a folder offers names of other modules."""
    trees = {file: ast.parse(path.read_text()) for file, path in _files().items()}
    assert [file for file, tree in trees.items() if all(_re_exports(node) for node in tree.body)] == []


def _re_exports(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)] == ["__all__"]
    return isinstance(node, ast.Import | ast.ImportFrom | ast.Expr)


def _imported(node: ast.AST, *, early: bool = True) -> Iterator[tuple[str, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):  # has no imports
            continue
        if isinstance(child, ast.ImportFrom) and child.module:
            yield child.module, early
            yield from ((f"{child.module}.{alias.name}", early) for alias in child.names)
        elif isinstance(child, ast.Import):
            yield from ((alias.name, early) for alias in child.names)
        else:
            late = isinstance(child, ast.FunctionDef) or (
                isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            )
            yield from _imported(child, early=early and not late)


def circles_of(imports: Imports) -> list[set[str]]:
    """The sets of modules each of which imports all others, directly or not."""
    imports = _without_ends(imports)
    reached = {name: _reached(imports, name) for name in imports}
    circles: list[set[str]] = []
    for name, others in reached.items():
        if name in others and not any(name in circle for circle in circles):
            circles.append({other for other in others if name in reached.get(other, ())})
    return circles


def _without_ends(imports: Imports) -> Imports:
    """Leave out modules that import nothing, or that nothing imports, until there are none: few are left."""
    while True:
        imported = {name for found in imports.values() for name in found}
        left = {name: found for name, found in imports.items() if name in imported and found}
        left = {name: {n: e for n, e in found.items() if n in left} for name, found in left.items()}
        if left == imports:
            return left
        imports = left


def _reached(imports: Imports, start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(imports.get(start, ()))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imports.get(name, ())
    return found
