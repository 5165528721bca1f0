"""An error of ``close()`` is a warning that names the operator, whatever its class, and all others are closed, too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.source import SourceContext, Split
from dataflow.errors import CleanupFailedWarning
from tests.contracts.test_source_contract import BATCH, Given, Once
from tests.contracts.user_classes import AWB, ROWS, RUNNERS, doing, said

ERRORS = [OSError, SystemExit, GeneratorExit]


class Closings:
    """Notes who was closed, and raises each time."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error
        self.closed: list[str] = []

    def close(self, who: str) -> None:
        self.closed.append(who)
        if who != "reader" or self.error is not KeyboardInterrupt:  # it is closed while the job runs
            raise self.error(f"{who} is open")


class NeverClosed(Given):
    """Its reader cannot be closed."""

    closings: Closings

    def reader(self, split: Split, offset: Any, context: SourceContext) -> Any:
        reader = Once(BATCH)
        reader.close = lambda: self.closings.close("reader")  # type: ignore[method-assign]
        return reader


def pipeline(closings: Closings, *, fails: bool = False) -> flow.Pipeline:
    """Return a pipeline in which nothing can be closed; if it ``fails``, while each operator is busy."""

    class Function(flow.KeyedProcess):
        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            ctx.emit(rows)

        def close(self) -> None:
            closings.close("function")

    class Receiver:
        def __call__(self, batch: pa.RecordBatch) -> None:
            if fails:
                raise ValueError("no")

        def close(self) -> None:
            closings.close("sink")

    def process(self: Any, port: int, batch: pa.RecordBatch, out: flow.Out) -> Iterator[None]:
        out.emit(batch)
        try:
            while fails:  # it is never done
                yield
        except GeneratorExit:
            closings.close("emission")

    operator = doing(process=process, close=lambda self: closings.close("operator"))
    source = NeverClosed()
    source.closings = closings
    with flow.Pipeline("never closed") as p:
        rows = p.source(source, name="given").apply(operator, name="mine")
        rows.key_by("a").process(Function, name="called").sink(
            op.write_batches(factory=lambda _: Receiver()), name="out"
        )
        rows.sink(op.collect(), name="rows")
    return p


def check_named(text: str, error: type[BaseException], closed: list[str]) -> None:
    assert all(f"{error.__name__}('{who} is open')" in text for who in closed), text
    assert "raised while operator 'mine' (Mine), subtask given[0] was closed" in text


def checkpoints() -> flow.Checkpointing:
    return flow.Checkpointing(flow.MemoryStore(), every="1h")


@pytest.mark.parametrize(("error", "runner"), [*product(ERRORS, RUNNERS)])
def test_all_are_closed_and_each_error_is_a_warning(error: type[BaseException], runner: str) -> None:
    closings = Closings(error)
    with pytest.warns(CleanupFailedWarning) as warned:
        result = pipeline(closings).run(runner, checkpoint=checkpoints())
    assert sorted(closings.closed) == ["function", "operator", "reader", "sink"]
    assert result.table("rows").equals(ROWS.select(AWB.names))
    check_named(str(warned[0].message), error, closings.closed)


@pytest.mark.parametrize(("error", "runner"), [*product(ERRORS, RUNNERS)])
def test_a_job_that_fails_closes_all_and_raises_its_own_error(error: type[BaseException], runner: str) -> None:
    closings = Closings(error)
    with pytest.raises(ValueError, match="no") as raised, pytest.warns(CleanupFailedWarning):
        pipeline(closings, fails=True).run(runner, checkpoint=checkpoints())
    assert {*closings.closed} == {"function", "operator", "reader", "sink", "emission"}
    assert "raised by operator 'out'" in said(raised.value)


def test_an_interrupt_while_a_job_is_closed_ends_the_run_and_all_are_closed() -> None:
    closings = Closings(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt, match="is open"):
        pipeline(closings).run("simulated")
    assert sorted(closings.closed) == ["function", "operator", "reader", "sink"]


def test_an_interrupt_that_a_thread_of_the_job_raises_is_a_warning() -> None:
    closings = Closings(KeyboardInterrupt)
    with pytest.warns(CleanupFailedWarning) as warned:
        pipeline(closings).run()
    check_named(str(warned[0].message), KeyboardInterrupt, ["function", "operator", "sink"])


def test_a_job_that_cannot_be_closed_releases_its_locks(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="no"), pytest.warns(CleanupFailedWarning):
            pipeline(Closings(SystemExit), fails=True).run(checkpoint=flow.Checkpointing(tmp_path, every="1h"))
