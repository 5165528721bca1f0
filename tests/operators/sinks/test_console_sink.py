"""The console sink: readable, bounded, and unmoved by whatever a column holds."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.sink import Guarantee
from dataflow.errors import ConfigurationError
from operators.sinks.console import rendered
from tests.operators.odd_tables import UNSPEAKABLE, columns, nested


def printed(table: pa.Table, *, parallelism: int = 1, file: Any = None, **options: Any) -> str:
    """What a job that shows ``table`` prints."""
    file = file or io.StringIO()
    with flow.Pipeline("look") as p:
        p.source(op.from_arrow(table, batch_rows=2), name="in").sink(op.console(file=file, **options), name="look")
    assert p.run(parallelism=parallelism).guarantee is Guarantee.AT_MOST_ONCE  # no checkpoints
    return str(file.getvalue())


def test_a_batch_is_a_table_under_the_name_of_the_operator() -> None:
    text = printed(pa.table({"id": [1, None], "name": ["ann", "é\n"]}))
    assert text == "look\n id     name\n─────────────\n 1      ann\n null   é\\n\n"


def test_rows_beyond_the_limit_are_counted_at_the_end() -> None:
    text = printed(pa.table({"x": [10, 11, 12, 13, 14]}), limit=3)
    assert [line.strip() for line in text.splitlines() if line.strip().isdigit()] == ["10", "11", "12"]
    assert text.endswith("look: 2 more rows are not shown (console(limit=))\n")


def test_without_a_limit_every_row_is_printed() -> None:
    text = printed(pa.table({"x": range(300)}), limit=None)
    assert sum(line.strip().isdigit() for line in text.splitlines()) == 300


def test_subtasks_are_told_apart() -> None:
    assert "look[0]\n" in printed(pa.table({"x": range(8)}), parallelism=2)


def test_standard_output_is_the_default_and_found_when_it_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with flow.Pipeline("look") as p:
        p.source(op.from_arrow(pa.table({"x": [42]})), name="in").sink(op.console(), name="look")
    p.run()
    assert "42" in capsys.readouterr().out


def test_every_table_is_flushed() -> None:
    class Counted(io.StringIO):
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

    file = Counted()
    printed(pa.table({"x": range(6)}), file=file)
    assert file.flushed == 3


def test_wide_values_are_cut_and_no_line_is_too_long() -> None:
    batch = pa.record_batch({"a": ["x" * 1000], "b": ["[red]y[/red]" * 20], "c": ["🎉" * 100]})
    lines = rendered(batch, "wide", width=80).splitlines()
    assert "…" in lines[-1]
    assert "[red]" in lines[-1]
    assert max(map(len, lines)) <= 80


def test_more_columns_than_fit_are_counted() -> None:
    text = rendered(pa.record_batch({f"c{i}": [i] for i in range(100)}), "many", width=80)
    assert text.startswith("many (90 more columns)\n")
    assert max(map(len, text.splitlines())) <= 80


def test_no_type_stops_it() -> None:
    odd = {name: pa.nulls(2, type_) for name, type_ in UNSPEAKABLE.items() if name != "u"}
    odd["u"] = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, None])])
    far = {"far": pa.array([2**62, -(2**62)], pa.timestamp("s")), "bytes": pa.array([b"\xff", b"\0"])}
    for name, column in (columns() | nested() | odd | far).items():
        text = rendered(pa.RecordBatch.from_arrays([column], [name]), "odd")
        assert len(text.splitlines()) == 3 + len(column), name


def test_rows_without_columns_are_counted() -> None:
    batch = pa.record_batch({"x": [1, 2]}).select([])
    assert rendered(batch, "none").startswith("none (2 rows)\n")


def test_a_file_that_knows_no_unicode_gets_escapes() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with flow.Pipeline("look") as p:
        p.source(op.from_arrow(pa.table({"x": ["é"]})), name="in").sink(op.console(file=file), name="look")
    p.run()
    assert rb"\xe9" in file.buffer.getvalue()  # type: ignore[attr-defined]


def test_it_is_at_least_once_and_says_so() -> None:
    with flow.Pipeline("look") as p:
        p.source(op.from_arrow(pa.table({"x": [1]})), name="in").sink(op.console(file=io.StringIO()), name="look")
    result = p.run(checkpoint=flow.Checkpointing(flow.MemoryStore()))
    assert result.guarantee is Guarantee.AT_LEAST_ONCE
    assert "end to end at least once" in str(result)


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a number of rows or None, got -1"):
        op.console(limit=-1)
