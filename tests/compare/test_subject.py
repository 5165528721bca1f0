"""A pipeline found by name: what is expected, what was found instead, and sinks that lead elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import dataflow as flow
from dataflow.cli import main
from dataflow.compare.subject import Subject, replace_sinks
from dataflow.errors import ConfigurationError
from operators.sinks.collect import collect
from operators.sinks.parquet import write_parquet
from operators.sources.arrow import from_arrow


@pytest.fixture(autouse=True)
def _at_home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "exits.py").write_text("raise SystemExit(3)", encoding="utf-8")
    monkeypatch.chdir(home)
    for folder in (tmp_path, home):
        monkeypatch.syspath_prepend(folder)
    yield
    sys.modules.pop("mine", None)


def _pipeline(**traits: bool) -> flow.Pipeline:
    source = from_arrow(pa.table({"x": [1]}))
    for trait, value in traits.items():
        setattr(source, trait, value)
    with flow.Pipeline("p") as p:
        p.source(source, name="in").sink(collect(), name="out")
    return p


@pytest.mark.parametrize("name", ["made", "pipeline"])
def test_a_pipeline_or_a_callable_that_gives_one_is_found(name: str) -> None:
    assert Subject(f"mine:{name}").pipeline().name == "mine"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("mine", "expected MODULE:PIPELINE, such as jobs.orders:pipeline, got 'mine'"),
        ("mine", "got 'mine'; give the name of the pipeline in the module: mine:PIPELINE"),
        ("jobs/mine.py:made", "got 'jobs/mine.py:made'; name the module, not its file: jobs.mine:PIPELINE"),
        ("../mine:made", "got '../mine:made'; name the module, not its file$"),
        ("mine:pipelin", r"module 'mine' has no 'pipelin' \(did you mean 'pipeline'\?\)"),
        ("nowhere:p", "module 'nowhere' cannot be imported from .*: ModuleNotFoundError: No module named 'nowhere'"),
        ("exits:p", "module 'exits' cannot be imported from .*: SystemExit: 3; run the command in"),
        ("mine:MODULE", "module 'mine' has no 'MODULE'; pipelines of the module: made"),
        ("mine:wrong", "without arguments that returns one; found a callable that returned str; pipelines of"),
        ("mine:op", "found module"),
        ("mine:broken", r"mine:broken\(\) raised ValueError: no way"),
    ],
)
def test_anything_else_is_an_error_that_says_what_was_found(target: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Subject(target).pipeline()


def test_sinks_are_replaced_and_names_stay(tmp_path: Path) -> None:
    copy = replace_sinks(_pipeline(), tmp_path)
    assert [node.name for node in copy.graph] == ["in", "out"]
    assert copy.graph.nodes[1].spec.sink.target == str(tmp_path / "out")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (_pipeline(bounded=False), "source 'in' never ends"),
        (_pipeline(replayable=False), "source 'in' cannot be read again from an offset"),
        (flow.Pipeline("empty"), "pipeline 'empty' has no sink"),
    ],
)
def test_what_cannot_be_compared_is_refused(pipeline: flow.Pipeline, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        replace_sinks(pipeline, tmp_path)


def test_rows_that_parquet_cannot_hold_are_refused_by_the_name_of_the_sink(tmp_path: Path) -> None:
    with flow.Pipeline() as p:
        p.source(from_arrow(pa.table({"x": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}))).sink(
            collect(), name="odd"
        )
    with pytest.raises(ConfigurationError, match=r"the rows of sink 'odd' as Parquet files: .*month_day_nano"):
        replace_sinks(p, tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--slow", "counts"], "--slow expects OPERATOR=DURATION, such as counts=100us, got 'counts'"),
        (["--slow", "count=1us"], "no operator 'count' to slow down (did you mean 'counts'?)"),
        (["--slow", "counts=5"], "the DURATION of --slow counts=5 must be a timedelta or text such as '250ms'"),
        (["--every", "soon"], "--every must be a timedelta or text such as '250ms'"),
        (["--every", "0s"], "--every must be above zero"),
        (["--alignment-timeout", "soon"], "--alignment-timeout must be a timedelta or text such as '250ms'"),
        (["--credit", "0"], "Invalid value for '--credit': 0 is not in the range x>=1"),
        (["--html", "report.pdf"], "--html expects a file whose name ends in .html, got 'report.pdf'"),
        (["--html", "no/r.html"], "--html cannot be written to no/r.html: there is no directory no"),
        (["--directory", "."], "--directory must be empty or missing, but . holds"),
        (["--parallelism", "0"], "parallelism must be a whole number of at least 1"),
    ],
)
def test_options_that_make_no_sense_are_errors_under_the_name_that_was_typed(words: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["compare", "mine:made", *words])
    assert done.exit_code == 2, done.output
    assert message in done.stderr


def test_the_users_own_sink_is_left_alone(tmp_path: Path) -> None:
    mine = write_parquet(tmp_path / "mine")
    with flow.Pipeline() as p:
        p.source(from_arrow(pa.table({"x": [1]}))).sink(mine, name="out")
    replace_sinks(p, tmp_path / "theirs").run()
    assert {path.name for path in tmp_path.iterdir()} == {"exits.py", "theirs"}
