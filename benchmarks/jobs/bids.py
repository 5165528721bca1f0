"""The input: seeded bids as Parquet, written once, and repeated as often as a long run needs.

Half of the bids are on 100 hot auctions, the rest over 100,000; half are of 4 channels, the rest of 10,000. There are
100,000 bids a second of event time, up to 3 s out of order. Prices are those of Nexmark, spread over six decades.

A repetition is a hard link, so it costs no disk and readers see files of their own. Where event time counts, files
with the times of later hours are written instead, for a time that begins again would make every row late; they hold
a million rows each, like the segments of a log, so that two readers who take turns are not far apart in time.

Beside the bids are the auctions: one file with the category of each, and files of when auctions were opened, one
opening for 16 bids, at the times of the bids.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["ROW_GROUP", "SEGMENT", "Bids", "auctions", "categories", "openings"]

ROW_GROUP = 1 << 17
"""Rows of a row group, if nothing else is asked for: what writers choose by default (Polars, DuckDB: some 100,000)."""
SEGMENT = 1 << 20
"""Rows that are generated at a time; the rows of a file where event time counts."""
FILES = 4
PER_SECOND = 100_000
AUCTIONS = 100_000
BIDS_OF_AN_OPENING = 16
DISORDER = 3_000
"""Milliseconds by which an event may be older than the ones before it."""

FORMAT = 3
"""To be raised when the bids change, so that no cache is taken for the new ones."""

START = np.datetime64("2026-01-01T00:00:00", "ms").astype(np.int64)


@dataclass(frozen=True)
class Bids:
    """``rows`` bids below ``folder``; the same rows for the same number, whoever makes them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = Bids(1_000, Path(folder)).files(2)
    ...     [file.name for file in files], sum(pq.read_metadata(file).num_rows for file in files)
    (['bids-000-00.parquet', 'bids-001-00.parquet'], 2000)
    """

    rows: int
    folder: Path
    row_group: int = ROW_GROUP

    @classmethod
    def below(cls, folder: Path, rows: int, row_group: int = ROW_GROUP) -> Bids:
        """Bids in a directory of ``folder`` that has its name from them, so that the next run finds them."""
        return cls(rows, folder / f"barrierflow-bids-{FORMAT}-{rows}-{row_group}", row_group)

    def files(self, repetitions: int) -> list[Path]:
        """All columns, ``repetitions`` times."""
        parts = min(FILES, self._segments)
        made = [file for repetition in range(repetitions) for file in self._names("bids", repetition, parts)]
        for part, file in enumerate(made[:parts]):
            if not file.exists():
                _write(self._part(part, parts), file, self.row_group)
        if not auctions(made).exists():
            _write(categories(AUCTIONS), auctions(made), self.row_group)
        for place, file in enumerate(made):
            with suppress(FileExistsError):
                os.link(made[place % parts], file)
        return made

    def later_and_later(self, repetitions: int) -> list[Path]:
        """``auction`` and ``event_time`` alone, each repetition beginning in event time where the one before ended."""
        made, parts = [], self._segments
        for repetition in range(repetitions):
            for part, file in enumerate(self._names("times", repetition, parts)):
                made.append(file)
                if not file.exists():
                    bids = self._part(part, parts).select(["auction", "event_time"])
                    _write(_shifted(bids, repetition * self._lasts), file, self.row_group)
                if not openings([file])[0].exists():
                    opened = _openings(self.rows * part // parts, self.rows * (part + 1) // parts)
                    _write(_shifted(opened, repetition * self._lasts), openings([file])[0], self.row_group)
        return made

    def segments(self) -> list[Path]:
        """All columns, a file for each million rows, like the segments of a log."""
        parts = self._segments
        made = self._names("segment", 0, parts)
        for part, file in enumerate(made):
            if not file.exists():
                _write(self._part(part, parts), file, self.row_group)
        return made

    @property
    def _lasts(self) -> int:
        """Milliseconds of event time."""
        return self.rows * 1_000 // PER_SECOND

    @property
    def _segments(self) -> int:
        return -(-self.rows // SEGMENT)

    def _names(self, kind: str, repetition: int, parts: int) -> list[Path]:
        return [self.folder / f"{kind}-{repetition:03}-{part:02}.parquet" for part in range(parts)]

    def _part(self, part: int, parts: int) -> pa.Table:
        first, end = self.rows * part // parts, self.rows * (part + 1) // parts
        return pa.concat_tables(_generated(start, min(start + SEGMENT, end)) for start in range(first, end, SEGMENT))


def auctions(files: Sequence[Path]) -> Path:
    """Return the file of all auctions, with their categories, that belongs to some ``Bids.files``."""
    return files[0].with_name("auctions.parquet")


def openings(files: Sequence[Path]) -> list[Path]:
    """Return the files of the openings that belong to some files of ``Bids.later_and_later``."""
    return [file.with_name(file.name.replace("times-", "openings-")) for file in files]


def categories(count: int = 10_000) -> pa.Table:
    """Return the categories of the first ``count`` auctions; of 10,000, which have 55 % of the bids.

    >>> categories().slice(0, 2).to_pylist()
    [{'auction': 0, 'category': 0}, {'auction': 1, 'category': 7}]
    """
    numbers = np.arange(count)
    return pa.table({"auction": numbers, "category": numbers * 7 % 100})


def _openings(start: int, end: int) -> pa.Table:
    """Openings while the bids ``start`` to ``end`` come, no two of one auction at one time."""
    rng = np.random.default_rng([20_260_001, start])
    rows = np.arange(start, end, BIDS_OF_AN_OPENING)
    time = START + rows * 1_000 // PER_SECOND
    auction = rng.integers(0, AUCTIONS, len(rows))
    _, once = np.unique(np.stack([auction, time]), axis=1, return_index=True)
    once.sort()
    columns = {"auction": auction[once], "event_time": pa.array(time[once], pa.timestamp("ms"))}
    return pa.table({**columns, "reserve": rng.integers(0, 100, len(once))})


def _generated(start: int, end: int) -> pa.Table:
    """Bids ``start`` to ``end``."""
    rng = np.random.default_rng([20_260_000, start])
    rows = end - start
    auction = np.where(rng.random(rows) < 0.5, rng.integers(0, 100, rows), rng.integers(0, AUCTIONS, rows))
    price = np.round(10 ** (6 * rng.random(rows)) * 100).astype(np.int64)
    channel = np.where(rng.random(rows) < 0.5, rng.integers(0, 4, rows), rng.integers(0, 10_000, rows))
    time = START + np.arange(start, end) * 1_000 // PER_SECOND - rng.integers(0, DISORDER + 1, rows)
    names = pa.array([f"channel-{number}" for number in range(10_000)])
    return pa.table(
        {
            "auction": auction,
            "price": price,
            "channel": names.take(pa.array(channel)),
            "event_time": pa.array(time, pa.timestamp("ms")),
        }
    )


def _shifted(bids: pa.Table, milliseconds: int) -> pa.Table:
    later = np.asarray(bids["event_time"]).astype(np.int64) + milliseconds
    return bids.set_column(1, "event_time", pa.array(later, pa.timestamp("ms")))


def _write(bids: pa.Table, file: Path, row_group: int) -> None:
    """The file appears whole or not at all: an interrupted run leaves no half cache."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}")
    pq.write_table(bids, unfinished, row_group_size=row_group)
    unfinished.rename(file)
