"""Which kernels a job loads before its first row, and when it stops to load them."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.planning.physical_plan import make_plan
from dataflow.runtime.task.kernel_loading import KernelLoader, kernels_of

PARTITION = "dataflow.state.kernels.partition"


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_kernels_that_spread_rows_by_key_are_loaded_if_several_subtasks_take_them(parallelism: int) -> None:
    p = flow.Pipeline("spread")
    keyed = p.source(op.from_arrow(pa.table({"k": [1]})), name="in").key_by("k")
    keyed.filter(flow.col("k") > 0, name="some").sink(op.collect(), name="out")
    assert (PARTITION in kernels_of(make_plan(p.graph, parallelism=parallelism), [])) is (parallelism == 2)


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
