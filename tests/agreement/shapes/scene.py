"""A pipeline of many shapes side by side, and what may be asked of each of its sinks.

Every shape has sinks of its own in the one pipeline, so that one job on an engine answers for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import dataflow as flow
import operators as op

__all__ = ["Rows", "Scene", "Shape", "pictured"]

_BRACKETS = str.maketrans("[]/", "()-")


@dataclass(frozen=True, slots=True)
class Rows:
    """What is settled of the rows of a sink; all of them, unless it says otherwise.

    Args:
        last: of a changelog only the last row of each of these columns is settled: how many come before depends on how
            batches are cut, and a task of the local engine slices those that take it long.
        late: with other batches, or these in another order, other rows are late.
        near: floats are sums in any order.
    """

    last: Sequence[str] | None = None
    late: bool = False
    near: bool = False


@dataclass
class Scene:
    """Where a shape puts its sources and sinks; ``folder`` is for its files, ``clicks`` the rows of a timed source."""

    pipeline: flow.Pipeline
    folder: Path
    label: str = ""
    clicks: int = 600
    sinks: dict[str, Rows] = field(default_factory=dict)
    streams: dict[str, flow.Stream] = field(default_factory=dict)
    in_files: bool = False
    """Whether tables are read from Parquet files, in the folder, which has to live as long as the pipeline."""

    def read_table(
        self, table: pa.Table, name: str = "in", *, splits: int = 1, batch_rows: int | None = None
    ) -> flow.Stream:
        """A source of the shape at work with the rows of a table."""
        if not self.in_files:
            return self.read(op.from_arrow(table, splits=splits, batch_rows=batch_rows), name)
        path = self.folder / f"{len(list(self.folder.iterdir()))}.parquet"
        pq.write_table(table, path, row_group_size=batch_rows)
        return self.read(op.read_parquet(path, batch_rows=batch_rows), name)

    def read(self, source: flow.Source, name: str = "in", **options: Any) -> flow.Stream:
        """A source of the shape at work."""
        return self.pipeline.source(source, name=self._named(name), **options)

    def shared(self, source: flow.Source, name: str) -> flow.Stream:
        """A source that shapes have in common: the same rows, cut the same way."""
        if name not in self.streams:
            self.streams[name] = self.pipeline.source(source, name=name)
        return self.streams[name]

    def show(self, stream: flow.Stream, name: str = "out", **settled: Any) -> None:
        """A sink of the shape at work; ``settled`` as for ``Rows``. Of signed changes it shows the net."""
        whole = self._named(name)
        self.sinks[whole] = Rows(**settled)
        stream.sink(op.collect(net=stream.changes == "signed"), name=whole)

    def _named(self, name: str) -> str:
        return f"{self.label}: {name}".translate(_BRACKETS)


Shape = Callable[[Scene], None]


def pictured(name: str, shapes: Iterable[Shape], folder: Path, clicks: int = 600) -> Scene:
    """All shapes in one pipeline."""
    with flow.Pipeline(name) as p:
        scene = Scene(p, folder, clicks=clicks)
        for shape in shapes:
            scene.label = shape.__name__
            shape(scene)
    return scene
