"""What an import costs, counted in modules and never in seconds; and that every public name is there and says why."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import dataflow
import operators

HEAVY = {
    "pyspark",
    "pandas",
    "numba",
    "llvmlite",
    "duckdb",
    "polars",
    "click",
    "rich",
    "asyncio",
    "pyarrow.parquet",
    "pyarrow.dataset",
}
LOGGERS = {
    "dataflow",
    "dataflow.build",
    "dataflow.fusion",
    "dataflow.job",
    "dataflow.kernel_cache",
    "dataflow.local",
    "dataflow.restore",
    "dataflow.source",
    "dataflow.spark",
    "dataflow.store",
    "py4j.clientserver",
}
"""The names that a user's settings of logging may have; modules move, and they stay."""
ENGINE = ("dataflow.runners", "dataflow.runtime", "dataflow.store.directory", "operators.")


def loaded_by(statement: str) -> set[str]:
    """The modules that ``statement`` adds to those of a fresh interpreter."""
    script = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("package", ["dataflow", "operators", "dataflow, operators"])
def test_an_import_loads_nothing_heavy(package: str) -> None:
    assert loaded_by(f"import {package}") & HEAVY == set()


def test_importing_dataflow_loads_no_engine() -> None:
    assert [name for name in sorted(loaded_by("import dataflow")) if name.startswith(ENGINE)] == []


def test_importing_operators_loads_nothing_but_itself() -> None:
    ours = {name for name in loaded_by("import operators") if name.startswith(("dataflow", "operators", "pyarrow"))}
    assert ours == {"operators"}


def test_a_star_import_gives_the_public_names_only() -> None:
    names: dict[str, object] = {}
    exec("from dataflow import *", names)
    assert set(names) - {"__builtins__"} == set(dataflow.__all__)


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package in (dataflow, operators) for name in package.__all__]
)
def test_a_public_name_resolves_and_is_documented(package: ModuleType, name: str) -> None:
    found = getattr(package, name)
    text = inspect.getdoc(found) or ""
    assert text, f"{package.__name__}.{name} has no docstring"
    assert not text.startswith(f"{name}("), f"{package.__name__}.{name} has only the signature a dataclass gets"


@pytest.mark.parametrize("package", [dataflow, operators])
def test_a_name_that_is_not_there_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nonsense'"):
        _ = package.nonsense


@pytest.mark.parametrize("package", [dataflow, operators])
def test_public_names_are_listed_once_and_by_dir(package: ModuleType) -> None:
    assert len(package.__all__) == len(set(package.__all__))
    assert set(package.__all__) <= set(dir(package))


def test_loggers_keep_their_names() -> None:
    root = Path(dataflow.__file__).parents[1]
    names = {
        name
        for path in [*root.glob("dataflow/**/*.py"), *root.glob("operators/**/*.py")]
        for name in re.findall(r'getLogger\("(.*?)"\)', path.read_text())
    }
    assert names == LOGGERS
