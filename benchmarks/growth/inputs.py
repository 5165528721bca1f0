"""The input: rows with every key equally often, in an order like random, as Parquet.

Columns are stored plain, because a dictionary makes few keys cheaper to decode than many. A file is written once, and
repeated by hard links, which cost no disk.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.growth.families import Shape
from benchmarks.growth.windows import TIME, times

__all__ = ["LARGEST", "ROW_GROUP", "files"]

ROW_GROUP = 1 << 17
LARGEST = 10_000_000
"""Rows of a file at most, unless it has to have more keys."""
STEP = 2_654_435_761
"""A prime, so steps of it reach every key once before the first key is reached again."""


def files(shape: Shape, folder: Path) -> list[Path]:
    """Return the files with the rows of ``shape``, written if they are missing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     made = files(Shape(rows=4_000, keys=1_000), Path(place))
    ...     len(made), pq.read_metadata(made[0]).num_rows
    (1, 4000)
    """
    assert math.gcd(STEP, shape.keys) == 1, shape
    rows = shape.rows if shape.rows <= LARGEST else max(LARGEST, shape.keys)
    assert shape.rows % rows == 0, shape
    kind = "timed" if shape.query else "growth"
    names = [folder / f"{kind}-{rows}-{shape.keys}-{number:03}.parquet" for number in range(shape.rows // rows)]
    if not names[0].exists():
        _write(names[0], rows, shape.keys, timed=bool(shape.query))
    for name in names[1:]:
        with suppress(FileExistsError):
            os.link(names[0], name)
    return names


def _write(file: Path, rows: int, keys: int, *, timed: bool) -> None:
    """Write a file that appears whole or not at all."""
    unfinished = file.with_suffix(f".{os.getpid()}")
    schema = pa.schema({"key": pa.int64(), "value": pa.int64()})
    if timed:
        schema = schema.append(pa.field(TIME, pa.timestamp("us")))
    with pq.ParquetWriter(unfinished, schema, use_dictionary=False) as writer:
        for start in range(0, rows, ROW_GROUP):
            number = np.arange(start, min(start + ROW_GROUP, rows))
            columns = {"key": number * STEP % keys, "value": number % 1_000}
            if timed:
                columns[TIME] = times(number)
            writer.write_batch(pa.record_batch(columns, schema=schema))
    unfinished.rename(file)
