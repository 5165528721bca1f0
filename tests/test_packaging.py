"""What a user gets: the wheel and the sdist are built for real, without a network, and the wheel is put to work."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SMOKE = """
import pyarrow as pa, dataflow as flow, operators as op
assert flow.__file__.startswith({home!r}), flow.__file__
with flow.Pipeline("smoke") as p:
    p.source(op.from_arrow(pa.table({{"x": [1, 2, 3]}}))).filter(flow.col("x") > 1).sink(op.collect(), name="out")
print(p.run().table("out")["x"].to_pylist())
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a fresh wheel and sdist."""
    target = tmp_path_factory.mktemp("dist")
    python("-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(target), cwd=ROOT)
    return target


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files, as an installer would lay them out."""
    target = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(target)
    return target


def python(*arguments: str, cwd: Path) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_exactly_two_packages(unpacked: Path) -> None:
    assert sorted(path.name for path in unpacked.iterdir()) == [
        "barrierflow-0.1.0.dist-info",
        "dataflow",
        "operators",
    ]


def test_both_packages_say_that_they_are_typed(unpacked: Path) -> None:
    assert (unpacked / "dataflow/py.typed").exists()
    assert (unpacked / "operators/py.typed").exists()


def test_the_wheel_holds_python_files_a_script_and_nothing_of_the_tests(unpacked: Path) -> None:
    files = [path for package in ("dataflow", "operators") for path in (unpacked / package).rglob("*")]
    others = [path.name for path in files if path.is_file() and path.suffix not in (".py", ".typed")]
    assert others == ["worker_python"]
    assert not [path for path in files if path.name.startswith(("test_", "bench_", "conftest"))]


def test_the_wheel_holds_every_module_of_the_checkout(unpacked: Path) -> None:
    for package in ("dataflow", "operators"):
        assert modules(unpacked / package) == modules(ROOT / package)


def modules(package: Path) -> list[str]:
    return sorted(str(path.relative_to(package)) for path in package.rglob("*.py"))


def test_a_pipeline_runs_from_the_wheel(unpacked: Path, tmp_path: Path) -> None:
    path = f"import sys; sys.path.insert(0, {str(unpacked)!r})\n"
    assert python("-P", "-c", path + SMOKE.format(home=str(unpacked)), cwd=tmp_path) == "[2, 3]\n"


def test_the_metadata_names_command_python_and_extras(unpacked: Path) -> None:
    wheel = Distribution.at(unpacked / "barrierflow-0.1.0.dist-info")
    assert [(e.name, e.value) for e in wheel.entry_points] == [("barrierflow", "dataflow.cli:main")]
    assert wheel.metadata["Requires-Python"] == ">=3.11"
    extras = ["bench", "demo", "docs", "spark", "spark-connect", "test"]
    assert sorted(wheel.metadata.get_all("Provides-Extra") or ()) == extras


def test_the_core_needs_no_pandas_no_spark_and_no_duckdb(unpacked: Path) -> None:
    needed = Distribution.at(unpacked / "barrierflow-0.1.0.dist-info").requires or []
    core = {line.partition(">")[0] for line in needed if "extra ==" not in line}
    assert core == {"click", "msgspec", "numba", "numpy", "pyarrow", "rich", "sortedcontainers", "xxhash"}


def test_the_sdist_holds_what_it_takes_to_run_the_tests(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        tops = {name.split("/")[1] for name in sdist.getnames()}
    assert {"dataflow", "operators", "tests", "docs", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml"} <= tops


def test_the_version_is_written_the_same_in_both_places(unpacked: Path) -> None:
    import dataflow

    assert Distribution.at(unpacked / "barrierflow-0.1.0.dist-info").version == dataflow.__version__
