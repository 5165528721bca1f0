"""Import paths that README and the guides once named: modules that only re-export, and stay."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

OLD_PATHS = {
    "dataflow.cuts": "dataflow.snapshots.cuts",
    "dataflow.observe.spacetime": "dataflow.snapshots.diagrams",
    "dataflow.predicates": "dataflow.snapshots.predicates",
    "dataflow.processes": "dataflow.snapshots.processes",
    "dataflow.runners.processes": "dataflow.snapshots.runs",
    "dataflow.runtime.parts": "dataflow.runtime.task.parts",
    "dataflow.runtime.points": "dataflow.runtime.task.crash_points",
    "dataflow.traces": "dataflow.snapshots.traces",
}
"""Every module that only re-exports, and where its names are defined."""


@pytest.mark.parametrize("old", OLD_PATHS)
def test_an_old_path_offers_the_same_objects(old: str) -> None:
    module, moved = import_module(old), import_module(OLD_PATHS[old])
    assert sorted(module.__all__) == sorted(moved.__all__)
    assert [getattr(module, name) is getattr(moved, name) for name in moved.__all__] == [True] * len(moved.__all__)


def test_the_list_of_old_paths_is_complete_and_nothing_uses_them() -> None:
    root = Path(__file__).parents[1]
    re_exporting = set()
    for file in [path for top in ("dataflow", "operators") for path in (root / top).rglob("*.py")]:
        tree = ast.parse(file.read_text())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert not [node.module for node in imports if node.module in OLD_PATHS], f"{file} imports an old path"
        only_imports = all(_re_exports(node) for node in tree.body)
        if file.name != "__init__.py" and imports and only_imports:
            re_exporting.add(".".join(file.relative_to(root).with_suffix("").parts))
    assert re_exporting == set(OLD_PATHS)


def _re_exports(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)] == ["__all__"]
    return isinstance(node, ast.Import | ast.ImportFrom | ast.Expr)
