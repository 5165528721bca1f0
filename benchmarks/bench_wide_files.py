"""Pipelines over files with many columns: the CPU time grows with their number, not with its square.

``pytest benchmarks/bench_wide_files.py --benchmark-enable`` has files of 4,000 columns. ``extra_info`` has the CPU time
divided by that for a quarter of the columns (4 at most, if each column costs the same; the fixed costs of a job make it
less), and by that of ``pyarrow.parquet.read_table``, as medians of alternating runs. With benchmarks disabled the files
have 40 columns, and the rows are still compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from benchmarks.paired import times_as_long
from dataflow import col

PAIRS: Final = 9
PIPELINES: Final[dict[str, Callable[[flow.Stream], flow.Stream]]] = {
    "read": lambda rows: rows,
    "filter": lambda rows: rows.filter(col("c1") > 0),
    "with_columns": lambda rows: rows.with_columns(more=col("c1") + 1),
}


def write(path: Path, columns: int) -> Path:
    pq.write_table(pa.table({f"c{i}": [1.0] for i in range(columns)}), path)
    return path


def collected(path: Path, steps: Callable[[flow.Stream], flow.Stream]) -> pa.Table:
    """Build the pipeline, and run it."""
    return steps(flow.Pipeline().source(op.read_parquet(path), name="rows")).collect()


@pytest.mark.parametrize("name", PIPELINES)
def test_wide_files_in_turns_with_pyarrow(benchmark: Any, tmp_path: Path, name: str) -> None:
    columns = 4_000 if benchmark.enabled else 40
    wide, narrow = write(tmp_path / "wide.parquet", columns), write(tmp_path / "narrow.parquet", columns // 4)
    steps = PIPELINES[name]
    made = benchmark(collected, wide, steps)
    assert made.select([f"c{i}" for i in range(columns)]).equals(pq.read_table(wide))
    if not benchmark.enabled:
        return
    ours, fewer = partial(collected, wide, steps), partial(collected, narrow, steps)
    benchmark.extra_info["CPU / CPU of a quarter"] = times_as_long(ours, fewer, PAIRS, time.process_time)
    benchmark.extra_info["CPU / read_table"] = times_as_long(
        ours, partial(pq.read_table, wide), PAIRS, time.process_time
    )
