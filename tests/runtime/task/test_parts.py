"""What a task's part of a checkpoint holds, there and back."""

from __future__ import annotations

from typing import Any, Literal

import pyarrow as pa
import pytest

from dataflow.contracts.operator import Snapshot
from dataflow.errors import CheckpointDamaged
from dataflow.protocol.events import Barrier, Data, Watermark
from dataflow.protocol.red_log import Omitted
from dataflow.runtime.task.parts import SAMPLE_ROWS, ChannelState, Duplicates, TaskState
from dataflow.state.codec import decode, encode
from tests.runtime.task.test_overtaking import shown
from tests.runtime.task.test_task import batch


def again(state: TaskState, keep: Literal["sample", "rows"] = "sample") -> TaskState:
    return TaskState.decode(state.encode(keep))


def table(*values: int) -> pa.Table:
    return pa.Table.from_batches([batch(*values)])


def test_the_state_of_every_operator_comes_back() -> None:
    states = {"a": Snapshot({"n": 1}, {"x": table(1), "y": table(2, 3)}), "b": Snapshot()}
    found = again(TaskState("t[0]", operators=states)).operators
    assert {name: snapshot.values for name, snapshot in found.items()} == {"a": {"n": 1}, "b": {}}
    assert {name: dict(snapshot.tables) for name, snapshot in found.items()} == {
        "a": {"x": table(1), "y": table(2, 3)},
        "b": {},
    }


def test_a_part_of_a_task_that_goes_on_says_so() -> None:
    assert again(TaskState("t[0]")).ended is False


def test_the_header_comes_back() -> None:
    gate: Any = {"watermarks": [3, None], "ended": [], "ended_ports": []}
    found = again(TaskState("t[0]", ended=True, inlet=gate))
    assert (found.task, found.ended, found.inlet) == ("t[0]", True, gate)


@pytest.mark.parametrize("missing", ["in_flight", "passed", "timed", "logs", "inlet"])
def test_a_header_that_lacks_an_entry_is_damage(missing: str) -> None:
    values, tables = decode(TaskState("t[0]").encode("sample"))
    del values[missing]
    with pytest.raises(CheckpointDamaged, match=f"missing required field `{missing}`"):
        TaskState.decode(encode(values, tables))


@pytest.mark.parametrize("missing", ["values", "tables", "rules"])
def test_an_operator_that_lacks_an_entry_is_damage(missing: str) -> None:
    values, tables = decode(TaskState("t[0]", operators={"a": Snapshot()}).encode("sample"))
    del values["operators"]["a"][missing]
    with pytest.raises(CheckpointDamaged, match=f"missing required field `{missing}`"):
        TaskState.decode(encode(values, tables))


def test_an_input_that_lacks_the_ends_of_its_channels_is_damage() -> None:
    with pytest.raises(CheckpointDamaged, match="missing required field `ended`"):
        again(TaskState("t[0]", inlet={"watermarks": [3]}))


@pytest.mark.parametrize(("keep", "kept"), [("sample", SAMPLE_ROWS), ("rows", 8)])
def test_duplicates_are_counted_and_kept_whole_or_as_a_sample(keep: Literal["sample", "rows"], kept: int) -> None:
    rows = [Data(batch(0, 1, 2)), Data(batch(3, 4, 5, 6, 7)), Data(Omitted(2))]
    (found,) = again(TaskState("t[0]", duplicates=[Duplicates.of("op", "t[0]", "a -> t", rows)]), keep).duplicates
    assert (found.operator, found.task, found.channel, found.rows) == ("op", "t[0]", "a -> t", 10)
    assert found.table["x"].to_pylist() == list(range(kept))


def test_duplicates_of_several_channels_keep_apart() -> None:
    each = [Duplicates.of("op", "t[0]", name, [Data(batch(n))]) for n, name in enumerate("ab")]
    found = again(TaskState("t[0]", duplicates=each)).duplicates
    assert {d.channel: d.table["x"].to_pylist() for d in found} == {"a": [0], "b": [1]}


def test_duplicates_that_were_all_omitted_are_still_counted() -> None:
    found = Duplicates.of("op", "t[0]", "a", [Data(Omitted(4))])
    assert (found.rows, found.table.num_rows) == (4, 0)


def test_channel_states_keep_apart_and_their_rows_are_old() -> None:
    each = [
        ChannelState("op", "t[0]", "a", [Watermark(3)]),
        ChannelState("op", "t[0]", "b", [Data(batch(1, 2), epoch=7), Data(batch(3), epoch=8)]),
        ChannelState("op", "t[0]", "c", [Data(batch(4))]),
    ]
    found = {state.channel: state for state in again(TaskState("t[0]", in_flight=each)).in_flight}
    assert {name: state.rows for name, state in found.items()} == {"a": 0, "b": 3, "c": 1}
    assert [(shown([e])[0], e.epoch) for e in found["b"].elements if isinstance(e, Data)] == [
        ([1, 2], 0),
        ([3], 0),
    ]
    assert found["b"].task == "t[0]"


def test_rows_of_several_schemas_on_one_channel_come_back_in_order() -> None:
    folded = [pa.record_batch({"n": pa.array([n], pa.int32()), "s": ["s"]}) for n in (7, 8, 9)]
    rows = [batch(1, 2), folded[0], batch(3), folded[1], folded[2], batch(4)]
    (found,) = again(TaskState("t[0]", in_flight=[ChannelState("op", "t[0]", "a", [Data(b) for b in rows])])).in_flight
    assert [element.rows for element in found.elements if isinstance(element, Data)] == rows


def test_rows_whose_schemas_differ_in_metadata_alone_come_back_in_order() -> None:
    """Such as those of the checkpoint restored, whose input had other metadata, and those read since."""
    rows = [batch(1, 2), batch(3).replace_schema_metadata({"written": "by another version"}), batch(4)]
    (found,) = again(TaskState("t[0]", in_flight=[ChannelState("op", "t[0]", "a", [Data(b) for b in rows])])).in_flight
    assert [element.rows for element in found.elements if isinstance(element, Data)] == rows


def test_a_barrier_is_no_channel_state() -> None:
    state = TaskState("t[0]", in_flight=[ChannelState("op", "t[0]", "a", [Barrier(1)])])
    with pytest.raises(AssertionError, match="cannot be channel state"):
        state.encode("sample")
