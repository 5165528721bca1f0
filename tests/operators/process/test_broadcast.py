"""The broadcast stream of process functions, and the mapping that its rows write."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
from dataflow.errors import ContractViolation, SchemaMismatch
from tests.operators.process.process_driver import Driver


class Limits(flow.KeyedProcess):
    """Emits rows above the limit of their key, which the broadcast stream sets, or removes with -1."""

    limits = flow.shared_map(pa.string(), pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for x in rows["x"].to_pylist():
            if x > self.limits.get(key, 10):
                ctx.emit({"k": key, "x": x})

    def process_broadcast(self, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for row in rows.to_pylist():
            if row["limit"] == -1:
                self.limits.remove(row["name"])
            else:
                self.limits.put(row["name"], row["limit"])
        ctx.emit({"k": repr(self.limits.items()), "x": None})


def test_rows_of_the_broadcast_stream_change_what_all_keys_read() -> None:
    driver = Driver(Limits)
    driver.rows(("a", 0, 11), ("b", 0, 5))
    driver.rules(("b", 3), ("a", 20), ("c", 0))
    driver.rows(("a", 0, 11), ("b", 0, 5))
    driver.rules(("b", -1), ("none", -1))
    driver.rules(("b", 50), ("c", 1))
    shown = [repr([("b", 3), ("a", 20), ("c", 0)]), repr([("a", 20), ("c", 0)]), repr([("a", 20), ("c", 1), ("b", 50)])]
    assert driver.take() == [("a", 11), (shown[0], None), ("b", 5), (shown[1], None), (shown[2], None)]


def test_shared_mappings_are_restored_in_their_order() -> None:
    driver = Driver(Limits)
    driver.rules(("b", 3), ("a", 20), ("c", 0))
    driver.rules(("b", -1), ("e", 9))
    driver.rules(("b", 7))
    driver.rules(("e", -1))
    restored = Driver(Limits, restored=driver.snapshot())
    restored.rows(("a", 0, 11), ("b", 0, 9))
    restored.rules(("d", 4), ("a", 5))
    shown = repr([("a", 5), ("c", 0), ("b", 7), ("d", 4)])
    assert restored.take() == [("b", 9), (shown, None)]
    again = Driver(Limits, restored=restored.snapshot())
    again.rules(("d", 4))
    assert again.take() == [(shown, None)]


def test_other_methods_cannot_write_to_shared_mappings() -> None:
    class Writes(Limits):
        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            self.limits.put("a", 1)

    driver = Driver(Writes)
    driver.rules(("a", 3))
    with pytest.raises(ContractViolation, match=r"shared_map 'limits': put\(\) is for process_broadcast alone"):
        driver.rows(("a", 0, 0))


def test_a_shared_value_that_does_not_fit_is_an_error() -> None:
    class Wrong(Limits):
        def process_broadcast(self, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            self.limits.put("a", 2**63)

    with pytest.raises(SchemaMismatch, match="shared_map 'limits': value: expected int64, got 9223372036854775808"):
        Driver(Wrong).rules(("a", 3))


def test_there_are_no_timers_without_a_key() -> None:
    class Sets(Limits):
        def process_broadcast(self, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            ctx.timers.clock(None)

    with pytest.raises(ContractViolation, match="there are no timers in process_broadcast, because there is no key"):
        Driver(Sets).rules(("a", 3))


def test_there_is_no_state_of_a_key_without_a_key() -> None:
    class Sets(Limits):
        last = flow.value_state(pa.int64())

        def process_broadcast(self, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            self.last.set(1)

    driver = Driver(Sets)
    driver.rows(("a", 0, 0))
    with pytest.raises(ContractViolation, match="state 'last' is that of a key, and process_broadcast has none"):
        driver.rules(("a", 3))


def test_errors_of_the_broadcast_stream_fail_the_job_because_copies_must_stay_equal() -> None:
    class Fails(Limits):
        def process_broadcast(self, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            raise ValueError("broken rule")

    with pytest.raises(ValueError, match="broken rule") as raised:
        Driver(Fails, on_error="skip").rules(("a", 3))
    assert raised.value.__notes__ == ["at process 'op', in Fails.process_broadcast(rows, ctx)"]


def test_a_batch_process_reads_shared_mappings_too() -> None:
    class Columns(flow.BatchProcess):
        limits = flow.shared_map(pa.string(), pa.list_(pa.int64()))

        def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            for name, (limit,) in self.limits.items():
                ctx.emit({"k": name, "x": limit})

        def process_broadcast(self, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            for row in rows.to_pylist():
                self.limits.put(row["name"], [row["limit"]])

    driver = Driver(Columns)
    driver.rules(("b", 3), ("a", 20))
    driver = Driver(Columns, restored=driver.snapshot())
    driver.rows(("a", 0, 0))
    assert driver.take() == [("b", 3), ("a", 20)]
