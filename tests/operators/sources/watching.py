"""A reader of a watched directory under a clock of the test's, and the files to put there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa

from dataflow.clock import ManualClock
from dataflow.contracts.source import Json, Source, SourceContext
from dataflow.errors import BarrierflowWarning

__all__ = ["Watching", "put"]


def put(folder: Path, name: str, *values: object, at: int) -> Path:
    """Put a file there that appears whole, last modified at second ``at``; return its path."""
    hidden = folder / f".{name}"
    hidden.write_text("x\n" + "".join(f"{value}\n" for value in values))
    os.utime(hidden, (at, at))
    return hidden.rename(folder / name)


class Watching:
    """A reader of a watched directory, its clock, and a way to kill and restore it."""

    def __init__(self, source: Source, split: int = 0, offset: Json = None) -> None:
        self.clock = ManualClock()
        self.source = source
        self.split = split
        self.notices: list[str] = []
        context = SourceContext("watch", 0, 1, self.clock, notify=self._noted)
        self.reader = source.reader(source.splits()[split], offset, context)

    def _noted(self, category: type[BarrierflowWarning], text: str) -> None:
        self.notices.append(f"{category.__name__}: {text}")

    def rows(self, limit: int | None = None, rows: int = 1000) -> list[object]:
        """Return all rows that come now, or the first ``limit``."""
        found: list[object] = []
        while limit is None or len(found) < limit:
            batch = self.reader.poll(rows)
            if batch is None:
                break
            assert isinstance(batch, pa.RecordBatch)
            found += batch.column(0).to_pylist()
        return found

    def later(self) -> Watching:
        self.clock.advance(1_000_000)
        return self

    def restored(self) -> Watching:
        return Watching(self.source, self.split, json.loads(json.dumps(self.reader.offset)))
