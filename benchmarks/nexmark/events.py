"""The order in which generated events arrive, and Parquet files and streams of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import dataflow as flow
import operators as op
from benchmarks.nexmark import generator
from benchmarks.nexmark.draws import Draws, Ids

__all__ = ["KINDS", "SIDE_INPUT", "Events", "Sources", "write_all"]

SEGMENT = 1 << 20
"""Events that are generated at a time."""
ROW_GROUP = 1 << 17
SIDE_INPUT = "side_input"
"""The name of the table of q13."""
KINDS: Mapping[str, Callable[[Ids, float, int], pa.Table]] = {
    "people": generator.people,
    "auctions": generator.auctions,
    "bids": generator.bids,
}


@dataclass(frozen=True)
class Events:
    """``count`` events of a stream with ``rate`` events a second of event time.

    ``group`` is the number of events that arrive in a fixed disorder (nexmark/nexmark, commit 6b3646c: id
    ``i // group * group + i * 953 % group`` arrives at position i); a group that is not whole arrives in order. Of
    ``one_in`` events one is delayed: it arrives ``delay`` positions later, unless the stream ends before. Neither
    changes an event. After each ``busy`` events there is a gap of ``silent`` seconds in event time (0 events: no gap).

    >>> Events(4).order().tolist(), Events(9, group=4).order().tolist()
    ([0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6, 7, 8])
    >>> Events(9, group=5).order().tolist()
    [0, 3, 1, 4, 2, 5, 6, 7, 8]
    >>> late = Events(1_000, one_in=10, delay=500)
    >>> late.order().tolist() == Events(1_000).order().tolist(), sorted(late.order().tolist()) == list(range(1_000))
    (False, True)
    >>> times = Events(100, rate=100, busy=50, silent=60).table("bids")["dateTime"]
    >>> (times[46].as_py() - times[45].as_py()).total_seconds()
    60.05
    """

    count: int
    rate: float = 10_000
    group: int = 1
    one_in: int = 1
    delay: int = 0
    busy: int = 0
    silent: int = 0
    seed: int = 0

    def order(self) -> Ids:
        """Return the ids of the events in the order of their arrival."""
        ids = np.arange(self.count)
        whole = ids[: self.count // self.group * self.group]
        ids[: len(whole)] = whole // self.group * self.group + whole * 953 % self.group
        places = np.arange(self.count)
        delayed = (Draws(ids, self.seed).below("delayed", self.one_in) == 0) & (places + self.delay < self.count)
        return ids[np.argsort(places + np.where(delayed, self.delay, 0), kind="stable")]

    def table(self, kind: str) -> pa.Table:
        """Return the ``people``, ``auctions`` or ``bids`` in the order of their arrival."""
        return self._rows(kind, self.order())

    def write(self, folder: Path, kind: str, *, files: int = 1) -> list[Path]:
        """Write the events of a kind as Parquet, dealt out to ``files`` in turn, and return the paths.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = Events(100).write(Path(folder), "bids", files=2)
        ...     [path.name for path in paths], [pq.read_metadata(path).num_rows for path in paths]
        (['bids-0.parquet', 'bids-1.parquet'], [46, 46])
        """
        ids = generator.events_of(kind, self.order())
        paths = [folder / f"{kind}-{number}.parquet" for number in range(files)]
        schema = self._rows(kind, ids[:0]).schema
        for number, path in enumerate(paths):
            own = ids[number::files]
            with pq.ParquetWriter(path, schema) as writer:
                for start in range(0, len(own), SEGMENT):
                    part = self._rows(kind, own[start : start + SEGMENT])
                    writer.write_table(part, row_group_size=ROW_GROUP)
        return paths

    def _rows(self, kind: str, ids: Ids) -> pa.Table:
        table = KINDS[kind](ids, self.rate, self.seed)
        if self.busy:
            gaps = generator.events_of(kind, ids) // self.busy * self.silent
            later = pa.array(gaps * 1_000_000, pa.duration("us"))
            for name in {"dateTime", "expires"} & {*table.column_names}:
                place = table.column_names.index(name)
                table = table.set_column(place, name, pc.add(table[name], later))
        return table


def write_all(events: Events, folder: Path, *, files: int = 1) -> dict[str, list[Path]]:
    """Write the events of all kinds, and the table of q13, and return the paths by kind.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = write_all(Events(100), Path(folder))
    ...     {kind: pq.read_metadata(*of_kind).num_rows for kind, of_kind in paths.items()}
    {'people': 2, 'auctions': 6, 'bids': 92, 'side_input': 10000}
    """
    paths = {kind: events.write(folder, kind, files=files) for kind in KINDS}
    paths[SIDE_INPUT] = [folder / f"{SIDE_INPUT}.parquet"]
    pq.write_table(generator.side_input(), *paths[SIDE_INPUT])
    return paths


class Sources:
    """The streams of a pipeline over files of events. Each kind that a query takes becomes one source.

    Args:
        p: the pipeline.
        files: the files by kind.
        delay: how far the watermark is behind the latest time; 4 s is that of the reference queries.
        batch_rows: rows of a batch; None: as the reader chooses.
        rate: rows a second that each split emits, or several rates by turns (see ``op.paced``); None: no limit.
    """

    def __init__(
        self,
        p: flow.Pipeline,
        files: Mapping[str, Sequence[Path]],
        *,
        delay: str = "4s",
        batch_rows: int | None = None,
        rate: float | Sequence[float] | None = None,
    ) -> None:
        self._pipeline, self._files, self._delay, self._batch_rows, self._rate = p, files, delay, batch_rows, rate
        self._streams: dict[str, flow.Stream] = {}

    def answer(self, query: Callable[..., flow.Stream]) -> flow.Stream:
        """Return the stream of a query, which gets the streams, or the table, that its parameters are called by."""
        given = inspect.signature(query).parameters
        return query(*[self.table(kind) if kind == SIDE_INPUT else self.stream(kind) for kind in given])

    def table(self, kind: str) -> flow.Source:
        """Return the source of the files of a table that does not change."""
        return op.read_parquet(self._files[kind])

    def stream(self, kind: str) -> flow.Stream:
        """Return the stream of the ``people``, ``auctions`` or ``bids``, with event time."""
        if kind not in self._streams:
            source: flow.Source = op.read_parquet(self._files[kind], batch_rows=self._batch_rows)
            if self._rate is not None:
                source = op.paced(source, self._rate)
            rows = self._pipeline.source(source, name=kind)
            self._streams[kind] = rows.with_watermark("dateTime", delay=self._delay, name=f"time of {kind}")
        return self._streams[kind]
