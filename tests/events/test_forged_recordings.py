"""Recordings are untrusted: cut, damaged and forged ones are read up to the last whole batch, or refused."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from dataflow.errors import EventsDamaged, EventsError
from dataflow.events import recording_reader
from dataflow.events.kinds import JOB, Kind
from dataflow.events.plan_shape import LinkShape, PlanShape, VertexShape
from dataflow.views.read_events import read_events
from tests.events.recordings import CHANNEL, PLAN, RECORDED, batch, checkpoint, names_of, of_job, written
from tests.forcing import Force
from tests.seeds import in_extended

END = b"\xff\xff\xff\xff\0\0\0\0"


def _stream(
    *batches: pa.RecordBatch, metadata: Mapping[str, str] | None = None, options: pa.ipc.IpcWriteOptions | None = None
) -> bytes:
    out = pa.BufferOutputStream()
    schema = checkpoint().schema.with_metadata(RECORDED.metadata() if metadata is None else metadata)
    with pa.ipc.new_stream(out, schema, options=options) as stream:
        for each in batches:
            stream.write_batch(pa.RecordBatch.from_arrays(each.columns, schema=schema))
    return out.getvalue().to_pybytes()


def _messages(stream: bytes) -> list[int]:
    """Return the offsets of the messages of a stream, and its end."""
    offsets, at = [], 0
    while at < len(stream) and stream[at : at + 8] != END:
        offsets.append(at)
        message = pa.ipc.read_message(pa.py_buffer(stream[at:]))
        at += 8 + int.from_bytes(stream[at + 4 : at + 8], "little") + (0 if message.body is None else message.body.size)
    return [*offsets, at]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.arrow"


@pytest.mark.parametrize("step", [24, *in_extended(1)])
def test_a_recording_cut_at_any_byte_has_its_whole_batches(path: Path, step: int) -> None:
    written(path, checkpoint(), batch([{"task": "in[0]", "kind": "ended"}]))
    whole = path.read_bytes()
    offsets = _messages(whole)
    head, *_, second, end = offsets[1:]
    assert (end, len(read_events(path))) == (len(whole), checkpoint().num_rows + 1)
    near = {offset + n for offset in offsets for n in range(-2, 10)}
    for size in sorted({*range(0, end, step), *near} & {*range(end)}):
        path.write_bytes(whole[:size])
        if size < head:
            with pytest.raises(EventsError, match=f"it ends after {size} bytes" if size else "has no events yet"):
                read_events(path)
        else:
            assert len(read_events(path)) == (checkpoint().num_rows if size >= second else 0), size


@pytest.mark.parametrize("part", [0, *in_extended(*range(1, 32))])
def test_a_flipped_bit_is_damage_or_another_recording(path: Path, part: int) -> None:
    whole = _stream(checkpoint())
    bits = list(range(8 * len(whole)))
    random.Random(49).shuffle(bits)
    for bit in bits[part::32] if part else bits[:300]:
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            events = read_events(path)
        except EventsDamaged:
            continue
        events.table.validate(full=True)
        assert len(events) <= checkpoint().num_rows


def test_the_end_of_a_stream_ends_a_recording(path: Path) -> None:
    path.write_bytes(_stream(checkpoint()))
    assert len(read_events(path)) == checkpoint().num_rows
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(EventsDamaged, match="4 bytes follow the end of the stream"):
        read_events(path)


def test_streams_that_no_run_writes_are_refused(path: Path) -> None:
    whole = _stream(checkpoint())
    head = _messages(whole)[1]
    last = _messages(whole)[-2]
    large = (1 << 30).to_bytes(4, "little")
    odd = (17).to_bytes(4, "little")
    forgeries = {
        "a message body is compressed": _stream(
            *[batch([{"task": JOB, "kind": "state", "detail": "x" * 500}])],
            options=pa.ipc.IpcWriteOptions(compression="zstd"),
        ),
        "has a delta dictionary|has 3 names, unlike the plan": _stream(
            *[
                batch([{"task": "in[0]", "kind": "ended"}], names={**names_of(PLAN), "task": _text(*PLAN.tasks[:n])})
                for n in (2, 3)
            ],
            options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True),
        ),
        "expected another message": whole[:last] + b"\0" + whole[last + 1 :],
        "1,073,741,824 bytes of metadata": whole[:last] + whole[last : last + 4] + large,
        "17 bytes of metadata": whole[:last] + whole[last : last + 4] + odd + bytes(17),
        "damaged after byte": whole[:head] + whole[:head],  # a second schema
    }
    for message, content in forgeries.items():
        path.write_bytes(content)
        with pytest.raises(EventsDamaged, match=message):
            read_events(path)


def _text(*names: str) -> pa.Array:
    return pa.array(names, pa.string())


ENDED: dict[str, Any] = {"task": "in[0]", "kind": "ended"}
SENT: dict[str, Any] = {"task": "in[0]", "kind": "sent", "checkpoint": 1, "channel": CHANNEL}
ARRIVED: dict[str, Any] = {"task": "sum[1]", "kind": "arrived", "checkpoint": 1, "channel": CHANNEL}
WORK: dict[str, Any] = {"task": "sum[1]", "kind": "work"}


@pytest.mark.parametrize(
    ("event", "message"),
    [
        *[
            ({**ENDED, name: value}, rf"column '{name}' has {value:,}, expected")
            for name in ("time", "seq", "checkpoint", "duration", "rows", "bytes")
            for value in (-1, 2**62)
        ],
        ({**ENDED, "attempt": 0}, "column 'attempt' has 0, expected 1 to"),
        ({**ENDED, "attempt": 2**40}, "column 'attempt' has"),
        *[({**ENDED, name: None}, f"column '{name}' has nulls") for name in ("time", "seq", "attempt")],
        ({**ENDED, "task": None}, "column 'task' has nulls"),
        ({**ENDED, "kind": None}, "column 'kind' has nulls"),
        ({**SENT, "channel": None}, "column 'channel' has a null in an event that needs it"),
        ({**SENT, "checkpoint": None}, "column 'checkpoint' has a null"),
        ({**SENT, "task": "sum[0]"}, "a task sent into a channel of another one"),
        ({**ARRIVED, "detail": "in order", "task": "sum[0]"}, "an event of an input of another one"),
        ({**ARRIVED, "detail": "by mail"}, "an event 'arrived' has the detail {'by mail'}"),
        ({**ARRIVED, "kind": "unblocked", "duration": 1, "detail": "in order"}, "an event 'unblocked' has the detail"),
        ({**SENT, "task": JOB}, "the job has an event of a task"),
        ({**ENDED, "kind": "state", "detail": "running"}, "a task has an event of the job"),
        (WORK, "an event 'work' lacks totals"),
        ({**WORK, "totals": [1] * 5}, "an event 'work' lacks totals"),
        ({**WORK, "totals": [1] * 8}, "an event 'work' lacks totals"),
        ({**WORK, "totals": [1, 2, 3, None, 5, 6]}, "totals have nulls"),
        ({**WORK, "totals": [1, 2, 3, 4, 5, 2**62]}, "column 'totals' has 4,611"),
        ({**ENDED, "totals": [1] * 6}, "an event has totals and is not 'work'"),
    ],
)
def test_events_that_no_run_records_are_damage(path: Path, event: Mapping[str, Any], message: str) -> None:
    path.write_bytes(_stream(checkpoint(), batch([event])))
    with pytest.raises(EventsDamaged, match=message):
        read_events(path)


@pytest.mark.parametrize(
    ("column", "names", "message"),
    [
        ("task", (*PLAN.tasks, "other[0]"), "the names of 'task' are not those of the plan"),
        ("channel", (CHANNEL,), "'channel' has 1 names, unlike the plan"),
        ("operator", ("in", "sum", "away"), "the names of 'operator' are not"),
        ("kind", (*[kind.label for kind in Kind][:-1], "exploded"), "the names of 'kind' are not"),
    ],
)
def test_names_that_the_plan_does_not_have_are_damage(
    path: Path, column: str, names: tuple[str, ...], message: str
) -> None:
    path.write_bytes(_stream(batch([ENDED], names={**names_of(PLAN), column: _text(*names)})))
    with pytest.raises(EventsDamaged, match=message):
        read_events(path)


def test_names_that_change_between_batches_are_checked_again(path: Path) -> None:
    other = {**names_of(PLAN), "task": _text("in[0]", "sum[0]", "sum[1]", "away")}
    path.write_bytes(_stream(checkpoint(), checkpoint(), batch([ENDED], names=other)))
    with pytest.raises(EventsDamaged, match="the names of 'task' are not those of the plan"):
        read_events(path)


def test_a_message_that_no_run_would_write_at_once_is_refused(path: Path, force: Force) -> None:
    path.write_bytes(_stream(checkpoint()))
    force(recording_reader, "_MAX_BODY", 100, calls=recording_reader._Messages.damaged)
    with pytest.raises(EventsDamaged, match=r"a message has .* bytes, at most 100 are possible"):
        read_events(path)


@pytest.mark.parametrize("index", [-1, 4, 2**31 - 1])
def test_an_index_that_no_name_has_is_damage(path: Path, index: int) -> None:
    rows = batch([ENDED])
    task = pa.DictionaryArray.from_arrays(pa.array([index], pa.int32()), names_of(PLAN)["task"], safe=False)
    path.write_bytes(_stream(rows.set_column(8, rows.schema.field("task"), task)))
    with pytest.raises(EventsDamaged, match="column 'task' has an invalid index"):
        read_events(path)


def test_attempts_that_go_back_are_damage(path: Path) -> None:
    path.write_bytes(_stream(checkpoint(2), checkpoint(1)))
    with pytest.raises(EventsDamaged, match="attempts are not in order"):
        read_events(path)
    path.write_bytes(_stream(checkpoint(1)))
    path.with_suffix(".arrow.1").write_bytes(_stream(checkpoint(2)))
    with pytest.raises(EventsDamaged, match=r"attempts of .*events\.arrow\.1 come after its own"):
        read_events(path)


def test_a_plan_larger_than_the_file_is_never_made(path: Path) -> None:
    wide = PlanShape(
        engine="local",
        vertices=tuple([VertexShape(name, 1_400, (name,)) for name in "ab"]),
        links=(LinkShape("a", "b", "a", "hash"),),
    )
    metadata = {**RECORDED.metadata(), "plan": wide.to_json()}
    path.write_bytes(_stream(batch([ENDED]), metadata=metadata))
    with pytest.raises(EventsDamaged, match="'task' has 4 names, unlike the plan"):
        read_events(path)


def test_every_message_of_a_recording_is_checked_before_arrow_reads_it(path: Path) -> None:
    whole = _stream(checkpoint())
    for start, end in pairwise(_messages(whole)):
        forged = bytearray(whole)
        forged[start + 8 : start + 16] = b"\xff" * 8  # the root of the metadata lies outside of it
        path.write_bytes(forged)
        with pytest.raises(EventsDamaged, match="damaged after byte"):
            read_events(path)
        assert end > start


@pytest.mark.parametrize(
    ("engine", "totals", "refused"),
    [
        ("spark", (1, 2, None, None, None, None), None),
        ("spark", (1, None, 3, None, None, None), "totals have nulls"),
        ("spark", (1, 2, None, None, None, None, 0), "an event 'work' lacks totals"),
        ("local", (1, 2, 3, 4, None, 6), "totals have nulls"),
    ],
)
def test_only_times_on_spark_may_be_unknown(path: Path, engine: str, totals: Any, refused: str | None) -> None:
    plan = msgspec.structs.replace(PLAN, engine=engine)
    work = batch([{"task": "sum[1]", "kind": "work", "totals": totals}], names=names_of(plan))
    path.write_bytes(_stream(work, metadata=of_job(0, plan).metadata()))
    if refused is None:
        assert read_events(path).table["totals"].to_pylist() == [list(totals)]
    else:
        with pytest.raises(EventsDamaged, match=refused):
            read_events(path)
