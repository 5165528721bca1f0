"""The table of a lookup: read whole at each start of a job, once in each process, and shared by its subtasks.

The job's process reads it and hashes each column. A worker of Spark reads it again, when its first task needs it, and
compares the hashes, so all processes of a job have the same rows.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dataflow.clock import SystemClock
from dataflow.contracts.row_errors import RowTally
from dataflow.contracts.source import END, Source, SourceContext
from dataflow.errors import BarrierflowWarning, DataflowError, InputChanged, SourceError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LoadedTable", "LookupTable"]

_Made = TypeVar("_Made")

_POLL_ROWS: Final = 1 << 20
_PAUSE: Final = 0.001
"""Seconds to wait if the source has no rows yet."""
_KEPT: Final = 16
"""The most tables that a worker of Spark keeps, because it is not told when a job ends."""


@dataclass(frozen=True, slots=True, eq=False)
class LookupTable:
    """The table as the user gave it: ``source``, of which only ``columns`` are read, and its ``text`` for messages."""

    source: Source
    columns: tuple[str, ...]
    text: str

    @classmethod
    def whole(cls, source: Source, given: object) -> LookupTable:
        """Return the table with all columns of ``source``, which was made of what the user has ``given``."""
        own = type(given).__repr__ is not object.__repr__ and isinstance(given, Source)
        kind = type(given)
        text = repr(given) if own else f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
        return cls(source, tuple(source.schema.names), text)

    @property
    def schema(self) -> pa.Schema:
        """The columns, with the values of dictionaries in their place."""
        import pyarrow as pa

        from dataflow.expressions.coercion import value_type

        fields = [self.source.schema.field(name) for name in self.columns]
        return pa.schema([field.with_type(value_type(field.type)) for field in fields])

    def select(self, columns: Sequence[str]) -> LookupTable:
        """Return the table with these columns only."""
        return replace(self, source=self.source.select(columns), columns=tuple(columns))

    def loaded(self, operator: str, notify: Callable[[type[BarrierflowWarning], str], None]) -> LoadedTable:
        """Read the table for ``operator``.

        Raises: SourceError, with the operator and the table, if it cannot be read; InputChanged if a file is not the
            one that the source was made of.
        """
        rows = self.read(operator, notify)
        return LoadedTable(self, operator, rows.num_rows, _hashes(rows), uuid.uuid4().hex, rows)

    def read(self, operator: str, notify: Callable[[type[BarrierflowWarning], str], None]) -> pa.Table:
        """Return the rows. Raises: SourceError."""
        import pyarrow as pa

        schema, tally = self.schema, RowTally()
        where = f"operator {operator!r}: lookup cannot read its table, {self.text}"
        try:
            batches = list(self._batches(SourceContext(operator, 0, 1, SystemClock(), tally, notify=notify)))
            table = pa.Table.from_batches([_plain(batch, schema) for batch in batches], schema).combine_chunks()
        except (DataflowError, OSError, pa.ArrowException) as error:
            kind = InputChanged if isinstance(error, InputChanged) else SourceError
            raise kind(f"{where}: {error}") from error
        except Exception as error:
            error.add_note(where)
            raise
        if tally.skipped:
            raise SourceError(
                f"{where}: {tally.skipped:,} of its rows were rejected, such as {tally.samples[0].row}; a lookup needs "
                "the whole table. Correct them, or read the column as text"
            )
        return table

    def _batches(self, context: SourceContext) -> Iterator[pa.RecordBatch]:
        try:
            for split in self.source.splits():
                reader = self.source.reader(split, None, context)
                try:
                    while (batch := reader.poll(_POLL_ROWS)) is not END:
                        if batch is None:
                            time.sleep(_PAUSE)
                        else:
                            yield batch
                finally:
                    reader.close()
        finally:
            for resource in context.left_open.values():
                resource.close()


class LoadedTable:
    """The rows of a table in this process, and what operators made of them. Its pickle has no rows.

    Args:
        table: the table.
        operator: the name of the operator.
        count: the number of its rows.
        hashes: the hash of each column.
        token: identifies this start of the job.
        rows: the rows; None: they are read when they are needed, and must have these hashes.
    """

    def __init__(
        self,
        table: LookupTable,
        operator: str,
        count: int,
        hashes: Mapping[str, str],
        token: str,
        rows: pa.Table | None = None,
    ) -> None:
        self.table = table
        self.count = count
        self.hashes = hashes
        self._operator = operator
        self._token = token
        self._rows = rows
        self._made: Any = None
        self._lock = threading.Lock()  # guards _rows and _made

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.table.columns

    @property
    def text(self) -> str:
        """The source, for messages."""
        return self.table.text

    def loaded(self, operator: str, notify: Callable[[type[BarrierflowWarning], str], None]) -> LoadedTable:
        """Read the table again, for another start."""
        return self.table.loaded(operator, notify)

    def select(self, columns: Sequence[str]) -> LookupTable:
        """Return the table with these columns only."""
        return self.table.select(columns)

    def made(self, make: Callable[[pa.Table], _Made]) -> _Made:
        """Return ``make(rows)``, which is computed once for all subtasks of this process; the rows are freed then."""
        with self._lock:
            if self._made is None:
                self._made = make(self._read() if self._rows is None else self._rows)
                self._rows = None
            made: _Made = self._made
            return made

    def _read(self) -> pa.Table:
        rows = self.table.read(self._operator, lambda category, text: None)  # the driver has warned already
        if rows.num_rows != self.count or _hashes(rows) != self.hashes:
            raise InputChanged(
                f"operator {self._operator!r}: the table of lookup, {self.text}, has changed while the job ran: a "
                "worker found other rows than the driver. Start the job again, once the table is complete"
            )
        return rows

    def __reduce__(self) -> tuple[Any, ...]:
        return _known, (self.table, self._operator, self.count, dict(self.hashes), self._token)


_tables: OrderedDict[str, LoadedTable] = OrderedDict()
_tables_lock = threading.Lock()  # guards _tables


def _known(table: LookupTable, operator: str, count: int, hashes: dict[str, str], token: str) -> LoadedTable:
    """Return the loaded table ``token`` of this process; it is new if this process does not have it."""
    with _tables_lock:
        loaded = _tables.setdefault(token, LoadedTable(table, operator, count, hashes, token))
        _tables.move_to_end(token)
        while len(_tables) > _KEPT:
            _tables.popitem(last=False)
        return loaded


def _hashes(rows: pa.Table) -> dict[str, str]:
    from dataflow.state.content_hash import content_hash

    return {name: content_hash(rows.select([name])) for name in rows.schema.names}


def _plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns ``schema`` of ``batch``, with the values of dictionaries in their place."""
    import pyarrow as pa

    from dataflow.state.dictionaries import decoded

    columns = [decoded(batch.column(name)) for name in schema.names]
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
