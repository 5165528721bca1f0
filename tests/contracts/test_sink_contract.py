"""Users' sinks and writers that break their contract are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import ContractViolation
from tests.contracts.user_classes import ROWS, checkpoints, doing, emitting


class Kept(flow.Sink):
    """A sink with any writer."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def writer(self, context: flow.OperatorContext) -> Any:
        return self._writer(context)


class Staged(Kept, flow.TwoPhaseSink):
    def begin(self) -> None: ...

    def commit(self, checkpoint: int, handles: Any) -> None: ...

    def recover(self, checkpoint: int, handles: Any) -> None: ...


def write(writer: Any, sink: type[Kept] = Kept) -> None:
    with flow.Pipeline() as p:
        p.source(op.from_arrow(ROWS, batch_rows=2), name="in").sink(sink(writer), name="out")
    p.run(checkpoint=checkpoints())


def preparing(handles: Any) -> type[flow.TwoPhaseWriter]:
    class Writer(flow.TwoPhaseWriter):
        def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None: ...

        def prepare(self, checkpoint: int) -> Any:
            return handles

    return Writer


def test_a_writer_that_emits_rows_is_an_error() -> None:
    with pytest.raises(ContractViolation, match=r"operator 'out' .*emitted rows, but it is the end of a stream"):
        write(emitting(lambda batch: batch))


@pytest.mark.parametrize(
    ("handles", "problem"),
    [
        (None, r"prepare\(\) returns a sequence of handles, \(\) for none, but returned None"),
        ({"name": "x"}, r"prepare\(\) returns a sequence of handles, .*returned a dict"),
        (["x"], r"a handle is a dict of JSON, but prepare\(\) returned a str"),
        ([{"n": np.int64(1)}], r"handle 0\['n'\] is a int64, which is not JSON-serialisable"),
    ],
)
def test_a_writer_that_prepares_no_handles_is_named(handles: Any, problem: str) -> None:
    with pytest.raises(ContractViolation, match=rf"operator 'out' \(Writer\), subtask .*: .*{problem}"):
        write(preparing(handles), Staged)


def test_a_writer_that_prepares_handles_of_json_is_taken() -> None:
    write(preparing([{"n": [1, None, "x"]}]), Staged)


@pytest.mark.parametrize(("sink", "writer"), [(Kept, preparing(())), (Staged, doing())])
def test_a_writer_in_two_phases_belongs_to_such_a_sink_or_nothing_is_committed(sink: Any, writer: Any) -> None:
    with pytest.raises(ContractViolation, match=r"operator 'out', subtask .*otherwise rows are never committed"):
        write(writer, sink)


def test_a_sink_without_a_writer_is_named() -> None:
    with pytest.raises(ContractViolation, match=r"operator 'out', subtask .*: expected an Operator, .*returned None"):
        write(lambda context: None)
