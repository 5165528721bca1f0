"""What a Parquet source chose before it is read, and why: batches, splits, dictionaries, pruning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dataflow.contracts.source import Condition
from dataflow.contracts.tuning import Choice
from operators.sources.parquet_dictionaries import ENTRIES
from operators.sources.row_groups import BATCH_BYTES, MOST_ROWS, GroupSizes

__all__ = ["Sample", "choices_of"]


class Sample(NamedTuple):
    """The entries of a dictionary, and the rows that it encodes."""

    entries: int
    rows: int

    @property
    def repeats(self) -> bool:
        """Whether values repeat so often that a dictionary pays."""
        return ENTRIES * self.entries <= self.rows


def choices_of(
    sizes: Sequence[GroupSizes],
    splits: int,
    batch_rows: int | None,
    named: Sequence[str],
    samples: Mapping[str, Sample],
    conditions: Sequence[Condition],
) -> list[Choice]:
    """Return the choices of a source.

    Args:
        sizes: the row groups of each file.
        splits: the number of splits.
        batch_rows: the user's; None: not given.
        named: the columns that the user named as dictionaries.
        samples: the dictionaries of the first row group, by text column that is only grouped by.
        conditions: those by which row groups may be left out.
    """
    return [
        _batch(sizes, batch_rows),
        _splits(sizes, splits),
        *[Choice("dictionary", "dictionary", "dictionary= names it", part=name) for name in named],
        *_dictionaries(samples),
        *_pruning(conditions),
    ]


def _batch(sizes: Sequence[GroupSizes], batch_rows: int | None) -> Choice:
    if batch_rows is not None:
        return Choice("batch", f"{batch_rows:,} rows", "batch_rows= is given", settings={"rows": batch_rows})
    rows = [rows for file in sizes for rows in file.rows]
    size = [size for file in sizes for size in file.bytes]
    settings = {
        "rows": MOST_ROWS,
        "bytes": BATCH_BYTES,
        "smallest_rows": min(rows, default=0),
        "largest_rows": max(rows, default=0),
        "largest_bytes": max(size, default=0),
    }
    same = settings["smallest_rows"] == settings["largest_rows"]
    span = "{largest_rows:,}" if same else "{smallest_rows:,} to {largest_rows:,}"
    return Choice(
        "batch",
        f"up to {MOST_ROWS:,} rows or {BATCH_BYTES >> 20} MiB",
        f"row groups have {span} rows and up to {{largest_bytes:,}} bytes",
        settings=settings,
    )


def _splits(sizes: Sequence[GroupSizes], splits: int) -> Choice:
    settings = {"splits": splits, "row_groups": sum(len(file.rows) for file in sizes), "files": len(sizes)}
    return Choice("splits", f"{splits:,}", "row groups: {row_groups:,}; files: {files:,}", settings=settings)


def _dictionaries(samples: Mapping[str, Sample]) -> Iterator[Choice]:
    for column, sample in samples.items():
        chosen = "dictionary" if sample.repeats else "text"
        reason = "{entries:,} entries for the first {rows:,} rows; at most a quarter pays"
        yield Choice("dictionary", chosen, reason, settings=sample._asdict(), part=column)


def _pruning(conditions: Sequence[Condition]) -> Iterator[Choice]:
    for c in conditions:
        reason = "a filter after the source needs it"
        yield Choice("pruning", f"{c.operator} {c.value.as_py()!r}", reason, part=c.column)
