"""How many keys and rows a state says that it has, against what it stores in a base."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.incremental import Counted, Incremental
from dataflow.state.appended_rows import AppendedRows
from dataflow.state.keyed_state import KeyedState
from operators.stateful.row_log import RowLog, WindowRows

ROWS = pa.schema({"k": pa.int64()})


def batch(*keys: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys, pa.int64())], schema=ROWS)


def appended() -> AppendedRows:
    rows = AppendedRows(ROWS)
    rows.append(batch(1, 2, 2))
    return rows


def logged() -> WindowRows:
    rows = WindowRows(ROWS)
    rows.add(batch(1, 2, 3, 4, 5), np.array([1, 1, 2, 3, 3]))
    rows.drop(2)
    rows.keep(3, np.array([False, True]))
    return rows


def waiting() -> RowLog:
    rows = RowLog(ROWS)
    rows.add(batch(1, 2, 3), np.array([5, 6, 7]))
    rows.take(7)
    rows.add(batch(4), np.array([8]))
    return rows


def keyed() -> KeyedState:
    state = KeyedState(ROWS, pa.schema({"n": pa.int64()}))
    slots, _ = state.insert([pa.array([1, 2, 3])])
    state.write(slots, pa.record_batch({"n": [1, 2, 3]}))
    state.delete(slots[:1])
    return state


@pytest.mark.parametrize(("make", "count"), [(appended, 3), (logged, 2), (waiting, 2), (keyed, 2)])
def test_entries_are_the_rows_of_a_base(make: Callable[[], Any], count: int) -> None:
    state = make()
    assert isinstance(state, Counted)
    assert isinstance(state, Incremental)
    assert state.entries == count
    assert sum(reader.read_all().num_rows for reader in state.freeze(1, None).values()) == count


def test_rows_of_keys_count_beside_the_keys() -> None:
    state = KeyedState(ROWS, pa.schema({"n": pa.int64()}), rows=ROWS)
    slots, _ = state.insert([pa.array([1, 2])])
    state.write(slots, pa.record_batch({"n": [1, 2]}))
    state.append(slots[[0, 0, 1]], np.array([1, 2, 3]), batch(7, 8, 9))
    assert state.entries == 2 + 3
    state.drop_before(2)
    assert state.entries == 2 + 2


@pytest.mark.parametrize(
    "shape",
    [
        lambda rows: rows.key_by("k").window(op.tumbling("1s")).agg(n=op.count(), name="state"),
        lambda rows: rows.key_by("k").window(op.session("1s")).agg(n=op.count(), name="state"),
        lambda rows: rows.key_by("k").agg(n=op.count(), name="state", emit="changes"),
        lambda rows: rows.unique("k", ttl="1h", name="state"),
        lambda rows: rows.key_by("k").top(2, by="v", name="state", emit="changes"),
    ],
    ids=["windows", "sessions", "sums", "unique", "top"],
)
def test_the_states_of_operators_are_counted(shape: Callable[[flow.Stream], flow.Stream]) -> None:
    found: list[bool] = []
    table = pa.table({"k": [1, 2, 1], "v": [1, 2, 3], "t": pa.array([1, 2, 3], pa.timestamp("us"))})
    with flow.Pipeline() as p:
        shape(p.source(op.from_arrow(table), name="in").with_watermark("t")).sink(op.collect(), name="out")
    from dataflow.runtime.task.log_chain import LogChain

    whole = LogChain.freeze

    def spy(self: LogChain, states: Any, checkpoint: int, since: int) -> Any:
        logs = [log for name, state in states.items() if name == "state" for log in state.logs.values()]
        found.extend(isinstance(log, Counted) for log in logs)
        return whole(self, states, checkpoint, since)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogChain, "freeze", spy)
        p.run(checkpoint=flow.Checkpointing(flow.MemoryStore()))
    assert found
    assert all(found)
