"""Which kernels a job loads before its first row, and when it stops to load them."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.kernel_cache.two_processes import Missing
from dataflow.planning.physical_plan import make_plan
from dataflow.runtime.task.kernel_loading import KernelLoader, kernels_of

PARTITION = "dataflow.state.kernels.partition"


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_kernels_that_spread_rows_by_key_are_loaded_if_several_subtasks_take_them(parallelism: int) -> None:
    p = flow.Pipeline("spread")
    keyed = p.source(op.from_arrow(pa.table({"k": [1]})), name="in").key_by("k")
    keyed.filter(flow.col("k") > 0, name="some").sink(op.collect(), name="out")
    assert (PARTITION in kernels_of(make_plan(p.graph, parallelism=parallelism), [])) is (parallelism == 2)


def test_while_loops_are_compiled_the_progress_line_counts_modules(capsys: pytest.CaptureFixture[str]) -> None:
    loading = KernelLoader(["kernels_of_a_test"])
    loading._started = True
    loading._begin(Missing(("first", "second"), loops=9), processes=2)
    loading._compiled.append("second")
    assert str(loading) == "compiling: 9 loops (1 of 2 modules done)"
    assert capsys.readouterr().err == (
        "barrierflow: compiling 9 loops in two processes before the first row, about 1 s; "
        "`barrierflow warm` does it ahead of time\n"
    )


def test_loops_that_take_no_time_are_not_announced(capsys: pytest.CaptureFixture[str]) -> None:
    KernelLoader(["kernels_of_a_test"])._begin(Missing(("first",), loops=2), processes=1)
    assert capsys.readouterr().err == ""


def test_after_a_stop_no_further_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["first_kernels_of_a_test", "second_kernels_of_a_test"]
    (tmp_path / f"{names[0]}.py").write_text("import sys\nsys.loading_of_a_test.stop()\n")
    (tmp_path / f"{names[1]}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    loading = KernelLoader(names)
    monkeypatch.setattr(sys, "loading_of_a_test", loading, raising=False)
    loading.run()
    assert [sys.modules.pop(name, None) is not None for name in names] == [True, False]
    assert loading.done
