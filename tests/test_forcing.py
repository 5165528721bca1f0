"""Tests set a constant of the library only with `forced`, which fails if this forces nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.forcing import counted_calls, forced

TESTS = Path(__file__).parent
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
MAY_SET = re.compile(r"setattr|patch|\._?[A-Z][A-Z0-9_]*\b[^=\n]*[^=!<>\n]?=(?!=)")
SETTERS = ("setattr", "object", "patch")
"""Functions that set a name: ``setattr`` and ``monkeypatch.setattr``, ``patch.object`` and ``mock.patch``."""


def constants_set(code: str) -> Iterator[int]:
    """Yield the lines that set a constant of a module or class, or patch a name that is not written there."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in SETTERS and node.args:
                name = node.args[-2:][0]  # before the value
                patched = called == "setattr" and isinstance(node.func, ast.Attribute)
                if _is_constant(name) or (patched and not isinstance(name, ast.Constant)):
                    yield node.lineno
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name for target in targets for name in ast.walk(target)]
            if any(isinstance(name, ast.Attribute) and CONSTANT.fullmatch(name.attr) for name in names):
                yield node.lineno


def _is_constant(argument: ast.expr) -> bool:
    """Return whether an argument is the name of a constant, alone or at the end of a path."""
    name = argument.value if isinstance(argument, ast.Constant) else None
    return isinstance(name, str) and CONSTANT.fullmatch(re.split("[.:]", name)[-1]) is not None


def test_no_test_sets_a_constant_without_a_look_whether_this_forces_anything() -> None:
    files = {*TESTS.rglob("*.py"), *(TESTS.parent / "benchmarks").rglob("*.py")} - {TESTS / "forcing.py"}
    texts = {file: text for file in files if MAY_SET.search(text := file.read_text())}  # to parse all takes seconds
    found = [f"{file}:{line}" for file, text in texts.items() for line in constants_set(text)]
    assert not found, f"use the fixture `force`, or forced() of tests/forcing.py: {found}"


@pytest.mark.parametrize(
    "code",
    [
        'monkeypatch.setattr(module, "_MOST", 3)',
        'monkeypatch.setattr("package.module.CHUNK", 3)',
        'monkeypatch.setattr(f"package.{name}.MANY", 3)',
        "monkeypatch.setattr(module, name, 3)",
        'setattr(module, "FEW", 3)',
        'with patch.object(module, "BLOCK", 3): pass',
        'with mock.patch("package.module.BLOCK", 3): pass',
        "module.LARGEST = 3",
        "module.MOST, x = 3, 4",
        "package.module._MOST += 3",
    ],
)
def test_a_constant_that_is_set_is_found(code: str) -> None:
    assert list(constants_set(code)) == [1]


def test_what_sets_no_constant_is_not_found() -> None:
    code = 'monkeypatch.setattr(Task, "_decline", None)\nMOST = 3\nx.most = MOST\nforce(module, "MOST", 3, calls=f)'
    assert not list(constants_set(code))


class Library:
    """What takes another path if its limit is low."""

    MOST = 100

    def take(self, rows: int) -> int:
        return sum(self.part(range(start, min(start + self.MOST, rows))) for start in range(0, rows, self.MOST))

    def part(self, rows: range) -> int:
        return len(rows)

    @property
    def is_small(self) -> bool:
        return self.MOST < 10

    @staticmethod
    def never() -> None: ...


def test_a_path_that_ran_is_counted_and_the_constant_is_what_it_was() -> None:
    library = Library()
    with (
        forced(Library, "MOST", 3, calls=Library.part, within=Library.take, times=4),
        counted_calls(Library.is_small) as looks,  # type: ignore[arg-type]
    ):
        assert library.take(10) == 10
        assert library.is_small
    assert looks.total == 1
    assert (Library.MOST, library.is_small) == (100, False)
    assert not hasattr(Library.part, "__wrapped__")


@pytest.mark.parametrize(
    "path",
    [
        {"calls": Library.never},
        {"calls": Library.part, "times": 100},
        {"calls": Library.part, "within": Library.take, "times": 5},
        {"calls": Library.part, "giving": lambda rows: rows > 3},
        {"calls": Library.is_small, "giving": lambda small: not small},
        {"without": Library.part},
    ],
)
def test_a_path_that_did_not_run_is_an_error(path: dict[str, object]) -> None:
    with pytest.raises(AssertionError, match="MOST = 3 forces nothing"), forced(Library, "MOST", 3, **path):  # type: ignore[arg-type]
        assert [Library().take(10), Library().take(10), Library().is_small] == [10, 10, True]


def test_an_error_of_the_test_is_not_replaced() -> None:
    with pytest.raises(ValueError, match="its own"), forced(Library, "MOST", 3, calls=Library.never):
        raise ValueError("its own")


def test_a_constant_that_is_missing_is_an_error() -> None:
    with pytest.raises(AttributeError, match="LEAST"), forced(SimpleNamespace(), "LEAST", 3, without=Library.never):
        pass
