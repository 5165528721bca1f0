"""Generated rows that are the same in every run: for experiments, tests and load.

The rows of all splits are one numbered sequence, distributed in turn. Each value depends only on the seed, its column
and its number. An offset is the number of rows read of a split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import xxhash

from dataflow.contracts.source import END, EndOfSplit, Json, Source, SourceContext, Split, SplitReader
from dataflow.errors import CheckpointDamaged, ConfigurationError, InputChanged, UnknownColumn, check_count
from dataflow.untrusted import Count, excerpt, parsed
from operators.sources.paced import PacedSource
from operators.sources.recipes import Draws, Recipe, rate_of

__all__ = ["GeneratedSource", "generate"]


def generate(
    columns: Mapping[str, Recipe],
    *,
    rows: int | None = None,
    rate: str | None = None,
    seed: int = 0,
    splits: int = 1,
    batch_rows: int = 16_384,
) -> GeneratedSource | PacedSource:
    """Generate rows with a column for each recipe.

    The same seed makes the same rows, in every run, after every restore, for any number of splits.

    Args:
        columns: recipes by the names of their columns: ``op.sequence``, ``op.integers``, ``op.uniform``,
            ``op.normal``, ``op.choice``, ``op.event_times``, or a ``Recipe`` of your own.
        rows: how many in all; None: the source does not end.
        rate: rows of all splits per unit of time, such as ``"10000/s"``; None: as fast as they are read.
        seed: any whole number.
        splits: parts that are read in parallel; rows are distributed among them in turn.
        batch_rows: the most rows of a batch.

    Returns: a replayable source.

    Raises: ConfigurationError for settings out of range, and for a column that is not a recipe.

    >>> import dataflow as flow, operators as op
    >>> source = generate({"id": op.sequence(), "user": op.choice(["ann", "bob"]), "price": op.uniform(1, 100)}, rows=3)
    >>> flow.Pipeline().source(source).collect()["id"].to_pylist()
    [0, 1, 2]
    """
    if not columns:
        raise ConfigurationError("generate: give at least one column, such as {'id': op.sequence()}")
    for name, recipe in columns.items():
        if not isinstance(recipe, Recipe):
            raise ConfigurationError(
                f"generate: column {name!r} must be a recipe such as op.sequence() or op.choice([...]), got "
                f"{recipe!r} ({type(recipe).__name__})"
            )
    check_count("generate: splits", splits)
    check_count("generate: batch_rows", batch_rows)
    if rows is not None:
        check_count("generate: rows", rows, least=0)
    source = GeneratedSource(columns, rows, seed, splits, batch_rows)
    if rate is None:
        return source
    return PacedSource(source, (float(rate_of(rate, "generate(rate=)") * 1_000_000) / splits,))


class GeneratedSource(Source):
    """The source that ``generate`` makes. ``every`` has all recipes, ``columns`` names the columns that are made."""

    def __init__(
        self,
        every: Mapping[str, Recipe],
        rows: int | None,
        seed: int,
        splits: int,
        batch_rows: int,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.bounded = rows is not None
        self._every = every
        self._rows = rows
        self._seed = seed
        self._parts = splits
        self._batch_rows = batch_rows
        self._columns = {name: recipe for name, recipe in every.items() if columns is None or name in columns}
        self._schema = pa.schema({name: recipe.type for name, recipe in self._columns.items()})

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def splits(self) -> Sequence[Split]:
        recipes = xxhash.xxh3_64_hexdigest(repr(list(self._every.items())).encode())
        return [
            Split(
                f"part-{part}",
                {"part": part, "of": self._parts, "rows": self._share(part), "seed": self._seed, "recipes": recipes},
            )
            for part in range(self._parts)
        ]

    def _share(self, part: int) -> int | None:
        return None if self._rows is None else len(range(part, self._rows, self._parts))

    def check(self, split: Split) -> None:
        mine = {own.id: own.info for own in self.splits()}
        now = mine.get(split.id, {})
        changed = [
            f"{what} was {excerpt(split.info.get(what))}, is {now.get(what)}"
            for what in dict.fromkeys([*split.info, *now])
            if now.get(what) != split.info.get(what)
        ]
        if changed or split.id not in mine:
            raise InputChanged(
                f"generate: the checkpoint was taken over other rows: "
                f"{', '.join(changed) or f'there is no split {excerpt(split.id)}'}; give the same columns, "
                "rows, seed and splits, or start over in a new checkpoint directory"
            )

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        read = parsed(Count | None, offset, f"generate: the position in {excerpt(split.id)}") or 0
        part = [mine.id for mine in self.splits()].index(split.id)  # not the checkpoint's number, which may be 1.0
        rows = self._share(part)
        if read > (2**62 // self._parts if rows is None else rows):
            raise CheckpointDamaged(f"generate: the position in {split.id!r} is {read}, beyond its last row")
        return _Reader(self, part, rows, self._batch_rows, read)

    def select(self, columns: Sequence[str]) -> GeneratedSource:
        for name in columns:
            if name not in self._columns:
                raise UnknownColumn(name, self._schema.names, "generate")
        return GeneratedSource(self._every, self._rows, self._seed, self._parts, self._batch_rows, columns)

    def batch(self, part: int, start: int, rows: int) -> pa.RecordBatch:
        """Return ``rows`` rows of split ``part``, from its row ``start`` on."""
        first = start * self._parts + part
        numbers = np.arange(first, first + rows * self._parts, self._parts, dtype=np.int64)
        arrays = [recipe.column(Draws(numbers, self._seed, name)) for name, recipe in self._columns.items()]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Reader(SplitReader):
    """Reads batches that begin at multiples of ``batch_rows``, wherever reading begins."""

    def __init__(self, source: GeneratedSource, part: int, rows: int | None, batch_rows: int, offset: int) -> None:
        self._source = source
        self._part = part
        self._rows = rows
        self._batch_rows = batch_rows
        self._offset = offset

    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        if self._offset == self._rows:
            return END
        batch = self._source.batch(self._part, self._offset, min(max_rows, self._left))
        self._offset += batch.num_rows
        return batch

    @property
    def _left(self) -> int:
        """Rows to the end of the batch."""
        left = self._batch_rows - self._offset % self._batch_rows
        return left if self._rows is None else min(left, self._rows - self._offset)

    @property
    def mid_batch(self) -> bool:
        return self._offset % self._batch_rows != 0 and self._left > 0

    @property
    def offset(self) -> int:
        return self._offset
