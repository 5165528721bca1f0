"""The collecting sink."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.operator import OperatorContext, Snapshot
from dataflow.contracts.sink import Guarantee
from dataflow.errors import CheckpointMismatch, ConfigurationError, SchemaMismatch
from operators.sinks.collect import CollectWriter, collect
from tests.operators.operating import made

X = pa.schema({"x": pa.int64()})


class NoOut:
    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        raise AssertionError("a sink emits nothing")


def writer(restored: Snapshot | None = None, limit: int | None = None) -> CollectWriter:
    context = OperatorContext("out", 0, 1, (X,), X, range(128), 128, restored, ManualClock(), lambda due: None)
    return made(collect(limit=limit).writer(context), context)


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, pa.int64())})


def test_an_empty_result_has_the_schema() -> None:
    assert writer().result() == X.empty_table()


def frozen(log: CollectWriter, checkpoint: int, since: int | None = None) -> pa.Table:
    assert log.snapshot().logs == {"rows": log}
    return log.freeze(checkpoint, since)["rows"].read_all()


def restored(*parts: pa.Table) -> Snapshot:
    return Snapshot({}, {}, {"rows": [{"rows": part} for part in parts]}, writer().snapshot().rules)


def test_a_base_is_the_rows_so_far_and_restoring_goes_on_from_them() -> None:
    first = writer()
    first.process(0, rows(1, 2), NoOut())
    base = frozen(first, 1)
    first.process(0, rows(3), NoOut())
    second = writer(restored(base))
    second.process(0, rows(4), NoOut())
    assert first.result()["x"].to_pylist() == [1, 2, 3]
    assert second.result()["x"].to_pylist() == [1, 2, 4]


def test_a_delta_is_the_rows_since_a_durable_checkpoint() -> None:
    sink = writer()
    sink.process(0, rows(1), NoOut())
    base = frozen(sink, 1)
    sink.process(0, rows(2), NoOut())
    assert frozen(sink, 2)["x"].to_pylist() == [1, 2]  # nothing is durable
    sink.durable(1)
    sink.process(0, rows(3), NoOut())
    delta = frozen(sink, 3, since=1)
    assert delta["x"].to_pylist() == [2, 3]
    assert frozen(sink, 4, since=1)["x"].to_pylist() == [2, 3]
    assert writer(restored(base, delta)).result()["x"].to_pylist() == [1, 2, 3]


def test_a_delta_after_a_restore_is_the_rows_since_then() -> None:
    sink = writer(restored(X.empty_table(), pa.table({"x": [1, 2]})))
    sink.durable(7)
    sink.process(0, rows(3), NoOut())
    assert frozen(sink, 8, since=7)["x"].to_pylist() == [3]
    assert frozen(sink, 9)["x"].to_pylist() == [1, 2, 3]


def test_rows_that_come_while_a_checkpoint_is_written_are_not_in_it() -> None:
    sink = writer()
    sink.process(0, rows(1), NoOut())
    reader = sink.freeze(1, None)["rows"]
    sink.process(0, rows(2), NoOut())
    assert reader.read_all()["x"].to_pylist() == [1]


def test_more_rows_than_the_limit_are_refused_also_after_a_restore() -> None:
    first = writer(limit=2)
    first.process(0, rows(1, 2), NoOut())
    for full in (first, writer(restored(frozen(first, 1)), limit=2)):
        with pytest.raises(ConfigurationError, match="has a limit of 2 rows, got 3"):
            full.process(0, rows(3), NoOut())


def test_a_batch_or_a_snapshot_of_another_schema_is_refused() -> None:
    with pytest.raises(SchemaMismatch):
        writer().process(0, pa.record_batch({"y": pa.array([1])}), NoOut())
    with pytest.raises(CheckpointMismatch):
        writer(restored(X.empty_table(), pa.table({"x": ["1"]})))


def test_it_is_exactly_once_and_refuses_a_negative_limit() -> None:
    assert collect().guarantee is Guarantee.EXACTLY_ONCE
    with pytest.raises(ConfigurationError):
        collect(limit=-1)
