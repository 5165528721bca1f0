"""``ScriptedSource``, a source that emits a given list of batches and pauses, and resumes in it after a restore.

>>> import pyarrow as pa, dataflow as flow, operators as op
>>> rows = pa.record_batch({"x": [1, 2]})
>>> with flow.Pipeline("x") as p:
...     p.source(ScriptedSource([rows, Pause(3), rows])).sink(op.collect(), name="out")
>>> p.run("simulated").table("out")["x"].to_pylist()
[1, 2, 1, 2]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dataflow.contracts.source import END, EndOfSplit, Json, Source, SourceContext, Split, SplitReader

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Pause", "ScriptedSource"]


@dataclass(frozen=True, slots=True)
class Pause:
    """A number of polls for which a ``ScriptedSource`` has no rows. Raises: ValueError if it is less than 1.

    >>> Pause(0)
    Traceback (most recent call last):
    ValueError: expected a pause of at least 1 poll, got 0
    """

    polls: int = 1

    def __post_init__(self) -> None:
        if self.polls < 1:
            raise ValueError(f"expected a pause of at least 1 poll, got {self.polls}")


class ScriptedSource(Source):
    """A source with one split for each script; the split ends after the last entry.

    Every column is read, whether or not the pipeline uses it. An offset is the number of finished entries, or a pair of
    it and the number of rows read of the current entry.

    Args:
        scripts: for each split, the batches to emit and the pauses between them, in order.

    Raises: ValueError if there is no batch, or schemas differ.

    >>> import pyarrow as pa
    >>> rows = pa.record_batch({"x": [1, 2]})
    >>> [split.id for split in ScriptedSource([rows, Pause(3), rows], [rows]).splits()]
    ['script-0', 'script-1']
    """

    def __init__(self, *scripts: Sequence[pa.RecordBatch | Pause]) -> None:
        batches = [entry for script in scripts for entry in script if not isinstance(entry, Pause)]
        if not batches:
            raise ValueError("expected a script with at least one batch, because it gives the schema; found none")
        for batch in batches:
            if batch.schema != batches[0].schema:
                raise ValueError(f"expected batches of one schema, {batches[0].schema}, found {batch.schema}")
        self._schema = batches[0].schema
        self._scripts = tuple(tuple(script) for script in scripts)

    @property
    def schema(self) -> pa.Schema:
        """The schema of all batches."""
        return self._schema

    def splits(self) -> Sequence[Split]:
        """Return one split for each script."""
        return [Split(f"script-{i}", {"entries": len(script)}) for i, script in enumerate(self._scripts)]

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        """Return a reader of the script of ``split``, from ``offset`` on."""
        entry, row = offset if isinstance(offset, Sequence) else (offset or 0, 0)
        assert isinstance(entry, int), f"expected an offset of an entry, or of an entry and a row, got {offset!r}"
        assert isinstance(row, int), f"expected an offset of an entry, or of an entry and a row, got {offset!r}"
        return _ScriptReader(self._scripts[int(split.id.rpartition("-")[2])], entry, row)


class _ScriptReader(SplitReader):
    """Reads one script from an entry, and a row in it, on."""

    def __init__(self, script: Sequence[pa.RecordBatch | Pause], entry: int, row: int) -> None:
        self._script = script
        self._entry = entry
        self._row = row
        self._paused = 0

    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        if self._entry == len(self._script):
            return END
        entry = self._script[self._entry]
        if isinstance(entry, Pause):
            self._paused += 1
            if self._paused == entry.polls:
                self._paused, self._entry = 0, self._entry + 1
            return None
        batch = entry.slice(self._row, max_rows)
        self._row += batch.num_rows
        if self._row == entry.num_rows:
            self._entry, self._row = self._entry + 1, 0
        return batch

    @property
    def mid_batch(self) -> bool:
        return self._row > 0

    @property
    def offset(self) -> Json:
        return [self._entry, self._row] if self._row else self._entry
