"""Python generators as a source: they yield rows together with the position to continue from.

A position is JSON that the generator makes and understands: a page, a log sequence number, a line. A checkpoint stores
it, and a restore calls the function again with it. The engine may cut yielded rows into smaller batches. Then it stores
the position before these rows, and how many of them were read, and drops that many after a restore.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

from dataflow.contracts.source import END, EndOfSplit, Json, Source, SourceContext, Split, SplitReader
from dataflow.errors import OTHER_PIPELINE, ConfigurationError, InputChanged, SchemaMismatch, SourceError, check_count
from dataflow.state.dictionaries import wide_schema
from dataflow.untrusted import Count, parsed
from operators.arrow_batches import ArrowBatches, speaks_arrow
from operators.rows import RowBatches

__all__ = ["GeneratorSource", "from_generator"]

_GATHERING: Final = 10_000
"""Microseconds for which rows that are yielded one by one are collected into a batch."""
_ONLY: Final = "generator"
_PYTHON: Final = (dict, tuple, list)


def from_generator(
    function: Callable[..., Iterable[Any]],
    *,
    schema: pa.Schema,
    splits: Mapping[str, Json] | Sequence[str] | None = None,
    bounded: bool = True,
    replayable: bool = True,
    batch_rows: int = 8_192,
) -> GeneratorSource:
    """Read the rows that ``function`` yields, together with the position after them.

    ``function(position)`` is called with None at first, and after a restore with a position that it yielded. It yields
    pairs ``(rows, position)``. Rows are one dict or tuple, a list of these, a batch, a table, or a frame of polars or
    pandas. It may yield None for "no rows for now", and should do so instead of waiting for long: no checkpoint can be
    taken while it waits. Rows that are yielded one by one are collected for up to 10 ms; each costs about 4 us, a row
    of a frame almost nothing. When the function returns, its input has ended.

    **After the same position it must yield the same rows again**, in portions of any size. If a function ignores its
    position, it starts from the beginning after a restore, and its rows are read twice; the engine cannot detect this.

    Args:
        function: the generator function.
        schema: the columns. A value that does not fit is an error that names the row and the column.
        splits: several inputs that are read in parallel, by name. The function is then called with ``(value,
            position)``: the value of the split (JSON; its name if only names are given).
        bounded: whether the input ends by itself.
        replayable: False: there are no positions. The function takes none (``function()`` or ``function(value)``) and
            yields rows alone; a restore calls it again, so rows may be lost, and the guarantee is "at most once".
        batch_rows: the most rows of a batch.

    Returns: a source, with a split for each of ``splits``, else one.

    Raises: ConfigurationError for invalid settings; while it runs, SourceError, SchemaMismatch or TypeError for values
    that a generator may not yield.

    >>> def countdown(position):
    ...     for n in range(3 if position is None else position, 0, -1):
    ...         yield {"n": n}, n - 1
    >>> source = from_generator(countdown, schema=pa.schema({"n": pa.int64()}))
    >>> import dataflow as flow
    >>> flow.Pipeline().source(source).collect()["n"].to_pylist()
    [3, 2, 1]
    """
    if not callable(function):
        raise ConfigurationError(
            f"from_generator: expected a function that yields, got {type(function).__name__}; give the function "
            "itself, not its result, because it is called again after a failure"
        )
    if not isinstance(schema, pa.Schema):
        raise ConfigurationError(f"from_generator(schema=): expected a pyarrow.Schema, got {type(schema).__name__}")
    check_count("from_generator(batch_rows=)", batch_rows)
    values = _values(splits)
    return GeneratorSource(function, schema, values, batch_rows, bounded=bounded, replayable=replayable)


def _values(splits: Mapping[str, Json] | Sequence[str] | None) -> Mapping[str, Json] | None:
    if splits is None:
        return None
    values = splits if isinstance(splits, Mapping) else {name: name for name in splits}
    if isinstance(splits, str) or not values or not all(isinstance(name, str) and name for name in values):
        raise ConfigurationError(f"from_generator(splits=) takes names, or values by name, got {splits!r}")
    if len(values) < len(splits):
        raise ConfigurationError(f"from_generator(splits=): names must differ, got {splits!r}")
    for name, value in values.items():
        if problem := _no_json(value):
            raise ConfigurationError(f"from_generator(splits=): the value of {name!r} {problem}")
    return values


class GeneratorSource(Source):
    """The source that ``from_generator`` makes. An offset is ``{"position": p, "rows": n}``: n rows after p were read.

    Without positions it is the number of rows.
    """

    blocking = True

    def __init__(
        self,
        function: Callable[..., Iterable[Any]],
        schema: pa.Schema,
        values: Mapping[str, Json] | None,
        batch_rows: int,
        *,
        bounded: bool,
        replayable: bool,
    ) -> None:
        self.bounded = bounded
        self.replayable = replayable
        self.accepts_loss = not replayable
        self._function = function
        self._schema = schema
        self._values = values
        self._batch_rows = batch_rows

    @property
    def schema(self) -> pa.Schema:
        return wide_schema(self._schema)

    def splits(self) -> Sequence[Split]:
        if self._values is None:
            return [Split(_ONLY)]
        return [Split(name, {"value": value}) for name, value in self._values.items()]

    def check(self, split: Split) -> None:
        mine = {own.id: own.info for own in self.splits()}
        if split.id not in mine:
            raise InputChanged(
                f"from_generator: the checkpoint has split {split.id!r}, now there are {list(mine)}; {OTHER_PIPELINE}"
            )
        if mine[split.id] != split.info:
            raise InputChanged(
                f"from_generator: split {split.id!r} was {dict(split.info)} when the checkpoint was taken and is "
                f"{dict(mine[split.id])} now; give it the same value, or start over in a new checkpoint directory"
            )

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        where = f"from_generator {context.name!r}, split {split.id!r}"
        portions = _Portions(self.schema, where)
        mine = next(mine for mine in self.splits() if mine.id == split.id)  # a checkpoint may have 1.0 for 1
        arguments = () if self._values is None else (mine.info["value"],)
        if not self.replayable:
            items = _started(self._function, arguments, where)
            return _Reader(items, portions, self._batch_rows, context)
        begun = _Offset() if offset is None else parsed(_Offset, offset, f"{where}: the position")
        position, rows = begun.position, begun.rows
        items = _started(self._function, (*arguments, position), where)
        return _PositionedReader(items, portions, self._batch_rows, context, position, rows)


class _Offset(msgspec.Struct):
    """``rows`` rows after ``position`` were read; the position is the user's, and is stored unchanged."""

    position: Any = None
    rows: Count = 0


def _started(function: Callable[..., Any], arguments: Sequence[Json], where: str) -> Any:
    items = function(*arguments)
    if not isinstance(items, Iterable):
        raise SourceError(f"{where}: the function must yield, or return an iterable, got {items!r}")
    return iter(items)


class _Portions:
    """Conversion of the rows that a generator yields to batches of the declared schema."""

    def __init__(self, schema: pa.Schema, where: str) -> None:
        self.where = where
        self._schema = schema
        self._rows = RowBatches(schema, where)
        self._arrow = ArrowBatches(schema, where)

    def batches(self, portion: Any) -> list[pa.RecordBatch]:
        """Return the batches of a frame, table or batch."""
        return [self._arrow.conformed(part) for part in self._arrow.parts(portion)]

    def rows(self, portion: Any) -> list[Mapping[str, Any]]:
        """Return the rows of a portion of Python values. Raises: SchemaMismatch, TypeError."""
        return [self._row(row) for row in portion] if isinstance(portion, list) else [self._row(portion)]

    def _row(self, row: Any) -> Mapping[str, Any]:
        if isinstance(row, tuple):
            if len(row) != len(self._schema):
                raise SchemaMismatch(
                    f"{self.where}: a tuple must have a value for each of the columns {self._schema.names}, got {row!r}"
                )
            return dict(zip(self._schema.names, row, strict=True))
        if type(row) is not dict and not isinstance(row, Mapping):
            raise TypeError(
                f"{self.where}: expected a dict, a tuple, a list of these, a batch, a table or a frame, got {row!r} "
                f"({type(row).__name__})"
            )
        self._rows.check(row)
        return row

    def batch(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        batch, misfits = self._rows.batch(rows)
        for index, error in misfits.items():
            error.add_note(f"the row is {rows[index]!r}")
            raise error
        return batch


class _Reader(SplitReader):
    """Reads rows without positions; an offset is their number."""

    def __init__(self, items: Any, portions: _Portions, batch_rows: int, context: SourceContext) -> None:
        self._items = items
        self._portions = portions
        self._batch_rows = batch_rows
        self._clock = context.clock
        self._emitted = context.emitted
        self._ready: deque[pa.RecordBatch] = deque()
        self._ended = False
        self._given = 0
        self._cut = False

    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        if not self._ready and not self._ended:
            self._gather()
        if not self._ready:
            return END if self._ended else None
        batch = self._ready.popleft()
        self._cut = batch.num_rows > max_rows
        if self._cut:
            self._ready.appendleft(batch.slice(max_rows))
            batch = batch.slice(0, max_rows)
        self._gave(batch.num_rows)
        return batch

    @property
    def mid_batch(self) -> bool:
        return self._cut

    def _gather(self) -> None:
        """Fill ``_ready`` with one frame, or with rows: a batch, those of 10 ms, or those before a None."""
        rows: list[Mapping[str, Any]] = []
        batches: list[pa.RecordBatch] = []
        started = self._clock.now()
        while len(rows) < self._batch_rows:
            try:
                item = next(self._items)
            except StopIteration:
                self._emitted.check()
                self._ended = True
                break
            portion = None if item is None else self._portion(item)
            if portion is None:
                break
            if type(portion) not in _PYTHON and speaks_arrow(portion):
                batches = self._portions.batches(portion)
                for batch in batches:
                    self._emitted.add(batch)
                break
            new = self._portions.rows(portion)
            rows += new
            if not new or self._clock.now() - started >= _GATHERING:
                break
        if rows:
            batches.insert(0, self._portions.batch(rows))
        self._ready.extend(
            batch.slice(start, self._batch_rows)
            for batch in batches
            for start in range(0, batch.num_rows, self._batch_rows)
        )
        self._gathered()

    def _portion(self, item: Any) -> Any:
        """Return the rows of a yielded item."""
        return item

    def _gathered(self) -> None:
        """Hook: called after a poll has filled ``_ready``."""

    def _gave(self, rows: int) -> None:
        self._given += rows

    @property
    def offset(self) -> Json:
        return self._given

    def close(self) -> None:
        self._ready.clear()
        if hasattr(self._items, "close"):
            self._items.close()


class _PositionedReader(_Reader):
    """Reads rows with positions: ``_given`` rows after ``_base`` were read, ``_known`` of these must be dropped.

    Invariant: if ``_ready`` is empty, ``_base`` is the last position that was yielded.
    """

    def __init__(
        self, items: Any, portions: _Portions, batch_rows: int, context: SourceContext, position: Json, rows: int
    ) -> None:
        super().__init__(items, portions, batch_rows, context)
        self._base = self._next = position
        self._given = self._known = rows

    def _portion(self, item: Any) -> Any:
        if not (isinstance(item, tuple) and len(item) == 2):
            raise SourceError(
                f"{self._portions.where}: expected a pair (rows, position) or None, got {item!r} "
                f"({type(item).__name__}); a generator without positions needs replayable=False"
            )
        portion, position = item
        if position is None:
            raise SourceError(
                f"{self._portions.where}: position None means the beginning; yield a position after {portion!r}"
            )
        if type(position) not in (int, str) and (problem := _no_json(position)):
            raise SourceError(f"{self._portions.where}: a position {problem}")
        self._next = position
        return portion

    def _gathered(self) -> None:
        while self._ready and self._known:
            batch = self._ready.popleft()
            if batch.num_rows > self._known:
                self._ready.appendleft(batch.slice(self._known))
            self._known -= min(self._known, batch.num_rows)
        if self._ended and self._known:
            raise InputChanged(
                f"{self._portions.where}: after position {self._base!r} it yielded fewer rows than when the checkpoint "
                f"was taken, {self._known} of {self._given} are missing; it must yield the same rows after the "
                "same position"
            )
        self._settle()

    def _gave(self, rows: int) -> None:
        super()._gave(rows)
        self._settle()

    def _settle(self) -> None:
        if not self._ready:
            self._base, self._given = self._next, self._known

    @property
    def offset(self) -> Json:
        return {"position": self._base, "rows": self._given}


def _no_json(value: object) -> str | None:
    """Return why ``value`` does not survive a JSON round trip; None: it does."""
    try:
        back = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        return (
            f"must be JSON (text, numbers, lists, dicts by text), got {value!r} ({type(value).__name__}): {error}; "
            "write times as .isoformat() and numpy numbers as int(...)"
        )
    if back != value or type(back) is not type(value):
        return f"must not change in JSON, but {value!r} becomes {back!r}; use that"
    return None
