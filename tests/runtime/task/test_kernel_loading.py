"""Which kernels a job loads before its first row, and when it stops to load them."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.kernel_cache import two_processes
from dataflow.kernel_cache.two_processes import Missing
from dataflow.planning.physical_plan import make_plan
from dataflow.runtime.task import kernel_loading
from dataflow.runtime.task.kernel_loading import KernelLoader, kernels_of

PARTITION = "dataflow.state.kernels.partition"


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_kernels_that_spread_rows_by_key_are_loaded_if_several_subtasks_take_them(parallelism: int) -> None:
    p = flow.Pipeline("spread")
    keyed = p.source(op.from_arrow(pa.table({"k": [1]})), name="in").key_by("k")
    keyed.filter(flow.col("k") > 0, name="some").sink(op.collect(), name="out")
    assert (PARTITION in kernels_of(make_plan(p.graph, parallelism=parallelism), [])) is (parallelism == 2)


def loading_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **loops: int) -> list[str]:
    """Load modules with so many missing loops; return the progress line at each of them."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(kernel_loading, "missing_loops", lambda modules: Missing(loops))
    monkeypatch.setattr(two_processes, "_processors", lambda: 1)
    loader, lines = KernelLoader([*loops]), list[str]()
    monkeypatch.setattr(sys, "seen_by_a_test", lambda: lines.append(str(loader)), raising=False)
    for name in loops:
        (tmp_path / f"{name}.py").write_text("import sys\nsys.seen_by_a_test()\n")
    loader.run()
    for name in loops:
        del sys.modules[name]
    return lines


def test_while_loops_are_compiled_the_progress_line_counts_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = loading_missing(monkeypatch, tmp_path, first_of_a_test=7, second_of_a_test=2)
    assert lines == ["compiling: 0 of 9 loops", "compiling: 7 of 9 loops"]
    assert capsys.readouterr().err == (
        "barrierflow: compiling 9 loops in one process before the first row; `barrierflow warm` does it ahead of time\n"
    )


def test_loops_that_take_no_time_are_not_announced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loading_missing(monkeypatch, tmp_path, first_of_a_test=2)
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
