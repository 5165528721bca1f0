"""Where a source's batches end does not depend on how many rows are asked for, nor on restores in between."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock
from dataflow.contracts.source import END, Json, SourceContext

TABLE = pa.table({"x": range(1_000), "y": [f"text {i}" for i in range(1_000)]})


def _parquet(folder: Path) -> flow.Source:
    pa.parquet.write_table(TABLE, folder / "a.parquet")
    return op.read_parquet(folder / "a.parquet", batch_rows=70)


def _csv(folder: Path) -> flow.Source:
    pa.csv.write_csv(TABLE, folder / "a.csv")
    return op.read_csv(folder / "a.csv", batch_rows=70)


def _json(folder: Path) -> flow.Source:
    (folder / "a.jsonl").write_text("".join(f'{{"x": {i}, "y": "text {i}"}}\n' for i in range(1_000)))
    return op.read_json(folder / "a.jsonl", batch_rows=70)


def _ipc(folder: Path) -> flow.Source:
    pa.feather.write_feather(TABLE, folder / "a.arrow", chunksize=300)
    return op.read_ipc(folder / "a.arrow", batch_rows=70)


def _arrow(folder: Path) -> flow.Source:
    return op.from_arrow(TABLE, batch_rows=70)


def _generated(folder: Path) -> flow.Source:
    return op.generate({"x": op.sequence()}, rows=1_000, batch_rows=70)


def _generator(folder: Path) -> flow.Source:
    def frames(position: Any) -> Iterator[Any]:
        for start in range(position or 0, 1_000, 200):
            yield TABLE.slice(start, 200), start + 200

    return op.from_generator(frames, schema=TABLE.schema, batch_rows=70)


SOURCES = [_parquet, _csv, _json, _ipc, _arrow, _generated, _generator]


def ends(source: flow.Source, ask: Callable[[], int], restore: Callable[[], bool]) -> list[int]:
    """The rows read whenever a batch was whole."""
    (split,) = source.splits()
    offset: Json = None
    context = SourceContext("in", 0, 1, ManualClock())
    reader, rows, found = source.reader(split, offset, context), 0, []
    while (batch := reader.poll(ask())) is not END:
        assert batch is not None, "the input is all there"
        rows += batch.num_rows
        if not reader.mid_batch:
            found.append(rows)
        if restore():
            offset = reader.offset
            reader.close()
            reader = source.reader(split, offset, context)
    return found


@pytest.mark.parametrize("make", SOURCES)
def test_batches_end_where_they_end_however_they_are_asked_for(
    make: Callable[[Path], flow.Source], tmp_path: Path
) -> None:
    source, chance = make(tmp_path), random.Random(11)
    whole = ends(source, lambda: 1 << 30, lambda: False)
    assert (len(whole) >= 14, whole[-1]) == (True, 1_000)
    assert ends(source, lambda: chance.randrange(1, 99), lambda: False) == whole
    assert ends(source, lambda: chance.randrange(1, 99), lambda: chance.random() < 0.3) == whole


def test_batches_of_a_stream_end_where_they_end_however_they_are_asked_for() -> None:
    chance = random.Random(12)
    stream = lambda: op.from_arrow(TABLE.to_reader(max_chunksize=300), batch_rows=70)  # noqa: E731
    whole = ends(stream(), lambda: 1 << 30, lambda: False)
    assert (len(whole), whole[-1]) == (17, 1_000)
    assert ends(stream(), lambda: chance.randrange(1, 99), lambda: False) == whole
