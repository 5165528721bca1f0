"""Settings that are counts refuse everything else before anything runs, and name the setting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import ConfigurationError, check_count

TABLE = pa.table({"x": [1]})


def run(**settings: object) -> object:
    with flow.Pipeline() as p:
        p.source(op.from_arrow(TABLE), name="in").sink(op.collect(), name="out")
    return p.run(**settings)  # type: ignore[arg-type]


COUNTS: dict[str, Callable[[object, Path], object]] = {
    "threads": lambda n, _: flow.LocalRunner(threads=n),  # type: ignore[arg-type]
    "channel_credit": lambda n, _: run(channel_credit=n),
    "parallelism": lambda n, _: run(parallelism=n),
    "from_arrow: batch_rows": lambda n, _: op.from_arrow(TABLE, batch_rows=n),  # type: ignore[arg-type]
    "from_arrow: splits": lambda n, _: op.from_arrow(TABLE, splits=n),  # type: ignore[arg-type]
    "read_parquet: batch_rows": lambda n, path: op.read_parquet(path, batch_rows=n),  # type: ignore[arg-type]
    "read_csv: batch_rows": lambda n, path: op.read_csv(path, batch_rows=n),  # type: ignore[arg-type]
    "generate: rows": lambda n, _: op.generate({"x": op.sequence()}, rows=n),  # type: ignore[arg-type]
    "keep": lambda n, path: flow.Checkpointing(path, keep=n),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("setting", COUNTS)
@pytest.mark.parametrize(
    ("value", "message"),
    [(1.5, "whole number .*got 1.5"), ("2", "whole number .*got '2'"), (-1, "got -1"), (10**30, "below 2..63")],
)
def test_a_count_is_a_whole_number(setting: str, value: object, message: str, tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    with pytest.raises(ConfigurationError, match=f"{setting}.* must be .*{message}"):
        COUNTS[setting](value, tmp_path / "a.parquet")


def test_numbers_of_numpy_are_counts() -> None:
    check_count("n", np.int32(1))
    assert op.from_arrow(TABLE, batch_rows=np.int64(1)).schema.names == ["x"]  # type: ignore[arg-type]


def test_a_choice_of_two_is_a_bool() -> None:
    with pytest.raises(ConfigurationError, match=r"LocalRunner\(combine=\) must be True or False, got 'no'"):
        flow.LocalRunner(combine="no")  # type: ignore[arg-type]
