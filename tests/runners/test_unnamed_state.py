"""State is found again by name: durable checkpoints of operators that were given none come with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import UnnamedStateWarning

ROWS = pa.table({"k": ["a", "b", "a"], "x": [1, 2, 3]})


class Echo(flow.Operator):
    def __init__(self, context: flow.OperatorContext) -> None: ...

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(batch)


class StatelessEcho(Echo):
    stateless = True


def totals(*, named: bool = True, operator: type[Echo] = StatelessEcho) -> flow.Pipeline:
    """Every kind of operator; those that keep state have names where ``named``."""

    def name(word: str) -> str | None:
        return word if named else None

    with flow.Pipeline("totals") as p:
        (
            p.source(op.from_arrow(ROWS), name=name("rows"))
            .filter(col("x") > 0)
            .map_batches(lambda batch: batch)
            .apply(operator)
            .key_by("k")
            .agg(col("x").sum().alias("total"), name=name("sums"))
            .select("k", "total")
            .sink(op.collect(), name=name("out"))
        )
    return p


def messages(caught: Iterable[warnings.WarningMessage]) -> list[str]:
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("runner", ["local", "simulated"])
def test_durable_checkpoints_of_unnamed_state_warn_once_and_name_the_operators(tmp_path: Path, runner: str) -> None:
    with pytest.warns(UnnamedStateWarning) as caught:
        totals(named=False).run(runner, checkpoint=flow.Checkpointing(tmp_path / "ckpt"))
    (warning,) = caught
    assert "['source', 'agg', 'sink']" in str(warning.message)


def test_the_warning_points_to_the_line_that_runs_the_pipeline(tmp_path: Path) -> None:
    with pytest.warns(UnnamedStateWarning) as caught:
        totals(named=False).run(checkpoint=flow.Checkpointing(tmp_path / "ckpt"))
    assert caught[0].filename == __file__


def test_an_operator_of_ones_own_counts_unless_it_says_that_it_is_stateless(tmp_path: Path) -> None:
    with pytest.warns(UnnamedStateWarning, match=r"\['apply'\]"):
        totals(operator=Echo).run(checkpoint=flow.Checkpointing(tmp_path / "ckpt"))


@pytest.mark.parametrize("store", ["none", "memory"])
def test_what_dies_with_the_process_needs_no_names(store: str) -> None:
    checkpoint = flow.Checkpointing(flow.MemoryStore()) if store == "memory" else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        totals(named=False).run(checkpoint=checkpoint)
    assert messages(caught) == []


def test_stateless_operators_need_no_names(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        totals().run(checkpoint=flow.Checkpointing(tmp_path / "ckpt"))
    assert messages(caught) == []


def test_as_an_error_it_stops_the_run_before_anything_is_written(tmp_path: Path) -> None:
    pipeline, checkpoint = totals(named=False), flow.Checkpointing(tmp_path / "ckpt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UnnamedStateWarning):
            pipeline.run(checkpoint=checkpoint)
    assert not (tmp_path / "ckpt").exists()
