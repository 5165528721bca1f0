"""When a loop is asked for, and what happens where it cannot be had."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

import pyarrow as pa
import pytest
from numba.core import event

from dataflow.contracts.operator import Operator, Out
from dataflow.expressions import col
from dataflow.kernel_cache.folders import generated_folders
from dataflow.planning.specs import Filter
from operators.fusion import cache
from operators.fusion.kernel import Kernel
from operators.fusion.operator import Fused, Patience
from operators.fusion.runs import Run
from operators.fusion.source import Nulls
from tests.operators.fusion.chains import Emitted

SCHEMA = pa.schema({"x": pa.int64()})
TEN = pa.record_batch({"x": range(10)}, schema=SCHEMA)


class Plain(Operator):
    """Stands for pyarrow."""

    def __init__(self) -> None:
        self.rows = 0

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        self.rows += batch.num_rows


def asking(patience: Patience, salt: int) -> tuple[Fused, Plain, list[Callable[[], None]]]:
    """A run of five operations, which no process has compiled before where ``salt`` is new."""
    plain, asked = Plain(), list[Callable[[], None]]()
    run = Run(SCHEMA, (Filter(col("x") % salt == 0), Filter(col("x") > 3)))
    fused = Fused(run, plain, Emitted(), lambda lane, job: asked.append(job), output=SCHEMA, patience=patience)
    return fused, plain, asked


def test_what_nobody_has_compiled_is_asked_for_late_and_once() -> None:
    fused, _, asked = asking(Patience(load=100, compile=250), 3 + secrets.randbelow(1 << 60))
    found = []
    for _ in range(8):
        fused.process(0, TEN, Emitted())
        found.append(len(asked))
    assert found == [0, 0, 0, 0, 1, 1, 1, 1]


def test_what_was_compiled_before_is_asked_for_early() -> None:
    fused, plain, asked = asking(Patience(load=100, compile=1 << 40), 3)
    cache.load(fused.loops[Nulls.NONE].generated.text)
    for _ in range(2):
        fused.process(0, TEN, Emitted())
    (load,) = asked
    load()
    fused.process(0, TEN, Emitted())
    assert plain.rows == 20


def test_rows_with_nulls_wait_for_a_loop_of_their_own() -> None:
    fused, plain, asked = asking(Patience(load=0, compile=0), 7)
    cache.load(fused.loops[Nulls.NONE].generated.text)
    fused.process(0, TEN, Emitted())
    asked.pop()()
    fused.process(0, TEN, Emitted())
    assert (plain.rows, asked) == (10, [])
    fused.process(0, pa.record_batch({"x": [None, 14]}, schema=SCHEMA), Emitted())
    assert (plain.rows, len(asked)) == (12, 1)


def test_another_process_compiles_and_this_one_loads() -> None:
    fused, _, _ = asking(Patience(), 3 + secrets.randbelow(1 << 60))
    kernel = fused.loops[Nulls.NONE].kernel
    with event.install_recorder("numba:compile") as compiled:
        ready(kernel)
    assert compiled.buffer == []


def test_files_that_numba_cannot_read_are_made_anew() -> None:
    fused, _, _ = asking(Patience(), 11)
    text = fused.loops[Nulls.NONE].generated.text
    ready(Kernel(text))
    for name in cache.file_names(text):
        generated_folders().write(name, b"cut short")
    ready(Kernel(text))


def ready(kernel: Kernel) -> None:
    """Load it, and wait for the process that compiles it where nobody has."""
    kernel.load()
    if kernel._process is not None:
        kernel._process.wait(120)
        assert kernel.waits
        kernel.load()
    assert kernel.module is not None
    assert not kernel.waits


def test_a_loop_that_cannot_be_compiled_is_done_without(caplog: pytest.LogCaptureFixture) -> None:
    kernel = Kernel("import no_such_module_anywhere\n")
    with caplog.at_level(logging.WARNING, "dataflow.fusion"):
        kernel.load()
        assert kernel._process is not None
        kernel._process.wait(120)
        kernel.load()
        kernel.load()
    assert kernel.module is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no_such_module_anywhere" in caplog.text
