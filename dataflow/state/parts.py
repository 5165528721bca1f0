"""The rows that keyed state writes to a checkpoint, and what a restore makes of them.

A state is a log of rows: a *base* has every key, a *delta* the keys that were written or deleted since an earlier
checkpoint. Each row begins with the key columns, so that a table can be split by key group, and ends with ``/live``:
whether the key has a value. A key without a value is deleted, unless the table of timers has some of it. Of several
rows of a key the last counts; in one delta, keys without a value come first, because they may have one again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array, to_numbers
from dataflow.errors import CheckpointDamaged, CheckpointMismatch
from dataflow.state.arrays import from_words
from dataflow.state.changes import Delta
from dataflow.state.columns import PIECE_BYTES, FrozenColumns
from dataflow.state.copy_on_write import CHUNK, FrozenRows, Reading, Rows
from dataflow.state.hashing import hash_rows, key_groups
from dataflow.state.index import Slots
from dataflow.state.ipc import check_messages
from dataflow.state.keyed import KeyIndex, KnownKeys
from dataflow.state.ranges import SLOT

__all__ = [
    "LIVE",
    "STAMP",
    "arranged",
    "check_columns",
    "check_counts",
    "check_parts",
    "check_present",
    "completed",
    "counting",
    "is_base",
    "marked",
    "owned",
]
__all__ += ["LIVE_FIELD", "MakeRows", "in_order", "number_field", "resolved", "rows_since_base", "small_batches"]
__all__ += ["stored_keys", "stored_numbers"]

LIVE = "/live"
STAMP = "/stamp"
LIVE_FIELD = pa.field(LIVE, pa.bool_(), nullable=False)

_PART = b"barrierflow.part"
_KEYS = b"barrierflow.keys"
_BASE, _DELTA = b"base", b"delta"
_SIGN = -(2**63)
_MOST_COUNTED = 2**62


def number_field(name: str) -> pa.Field:
    """Return the field of a column of the engine's numbers, which are never null."""
    return pa.field(name, pa.int64(), nullable=False)


def marked(schema: pa.Schema, *, base: bool, keys: int = 0) -> pa.Schema:
    """Return ``schema`` with a note of whether its rows are a base or a delta.

    Of the rows with the same first ``keys`` columns the last one counts; 0: every row counts.
    """
    return schema.with_metadata({_PART: _BASE if base else _DELTA, _KEYS: b"%d" % keys})


def resolved(parts: Sequence[Mapping[str, pa.Table]]) -> dict[str, pa.Table]:
    """Return the rows that count of each table in the parts of a log, without ``/live``."""
    found: dict[str, pa.Table] = {}
    for name in dict.fromkeys([name for part in parts for name in part]):
        tables = [part[name] for part in parts if name in part]
        first = max([i for i, table in enumerate(tables) if is_base(table)], default=0)
        keys = (tables[-1].schema.metadata or {}).get(_KEYS, b"0")
        rows = pa.concat_tables([table.replace_schema_metadata(None) for table in tables[first:]])
        found[name] = _newest(rows, int(keys)) if keys.isdigit() and int(keys) else rows
    return found


def _newest(rows: pa.Table, keys: int) -> pa.Table:
    """Return the last row of each key, if it is live."""
    index = KeyIndex(pa.schema(list(rows.schema)[:keys]))
    slots = np.concatenate([*[index.slots(b.columns[:keys]).copy() for b in rows.to_batches()], np.empty(0, np.int32)])
    last = np.full(len(index), -1, np.int64)
    last[slots] = np.arange(len(slots))
    rows = rows.take(to_array(np.sort(last)))
    return rows.filter(rows.column(rows.num_columns - 1)).remove_column(rows.num_columns - 1)


def is_base(table: pa.Table | pa.RecordBatchReader) -> bool:
    """Return whether the rows of a stored table are a base."""
    return (table.schema.metadata or {}).get(_PART) == _BASE


def rows_since_base(parts: Sequence[Mapping[str, pa.Table]], expected: pa.Schema) -> list[pa.Table]:
    """Return the tables "rows" of the last base and of the deltas after it.

    Raises: CheckpointDamaged if a table or the base is missing; CheckpointMismatch for other columns than ``expected``.
    """
    tables = [part.get("rows") for part in parts]
    bases = [i for i, table in enumerate(tables) if table is not None and is_base(table)]
    if tables and not bases:
        raise CheckpointDamaged(f"the rows have {len(tables)} parts with changes, but the base is missing")
    found: list[pa.Table] = []
    for table in tables[bases[-1] :] if bases else []:
        if table is None:
            raise CheckpointDamaged("the checkpoint has no table of rows")
        check_columns(table, expected)
        found.append(table)
    return found


def check_parts(
    parts: Sequence[Mapping[str, pa.Table]], expected: Mapping[str, pa.Schema], counts: Sequence[str] = ()
) -> None:
    """Check the tables of a base and of the deltas after it against the columns that are ``expected`` of each.

    Raises: CheckpointMismatch for other columns; CheckpointDamaged for tables that are not expected, for nulls where
        there can be none, and as ``check_counts`` and ``check_messages`` do.
    """
    for part in parts:
        for name, table in part.items():
            if name not in expected:
                raise CheckpointDamaged(f"it has a table {name!r}, expected {list(expected)}")
            check_columns(table, expected[name])
            check_counts(table, counts)
            for field, column in zip(expected[name], table.columns, strict=True):
                check_messages(column, field)


def counting(table: pa.Table, column: str, least: int) -> pa.Table:
    """Return the rows whose number in ``column`` is at least ``least``; all, if the table has no such column.

    >>> counting(pa.table({"n": [1, 2, 3]}), "n", 2).to_pydict()
    {'n': [2, 3]}
    """
    if column not in table.column_names:
        return table
    return table.filter(to_array(to_numbers(table.column(column)) >= least))


def completed(
    table: pa.Table, expected: pa.Schema | None, added: Collection[str], initial: Mapping[str, object]
) -> pa.Table:
    """Return a stored table with the columns in ``added`` that it lacks, at its end; ``expected`` None: as it is.

    Each row gets the value in ``initial``, or null. A row of a deleted key gets null.

    >>> table = pa.table({"k": [1, 2], "/live": [True, False]})
    >>> now = pa.schema({"k": pa.int64(), "n": pa.int64(), "/live": pa.bool_()})
    >>> completed(table, now, {"n"}, {"n": 0}).to_pydict()
    {'k': [1, 2], '/live': [True, False], 'n': [0, None]}
    """
    for field in expected or ():
        if field.name in added and field.name not in table.column_names:
            value = initial.get(field.name)
            column = pa.nulls(table.num_rows, field.type)
            if value is not None:
                column = pa.repeat(pa.scalar(value, field.type), table.num_rows)
                if LIVE in table.column_names:
                    column = pc.if_else(table.column(LIVE), column, pa.nulls(table.num_rows, field.type))
            table = table.append_column(field, column)
    return table


def arranged(table: pa.Table, expected: pa.Schema | None) -> pa.Table:
    """Return a stored table with its columns in the order of ``expected``, by their names; None: as it is.

    Raises: CheckpointMismatch for columns of other names.
    """
    names = table.column_names
    if expected is None or names == expected.names:
        return table
    if len(set(names)) == len(names) and sorted(names) == sorted(expected.names):
        return table.select(expected.names)
    raise _other_columns(table.schema, expected)


def check_columns(table: pa.Table, expected: pa.Schema) -> None:
    """Raise CheckpointMismatch for a stored table of other columns.

    Raises: CheckpointDamaged, too: a column that must have a value in each row has nulls.
    """
    found = table.schema
    if found.types == expected.types and not _moved(found.names, expected.names):
        check_present(table, expected)
        return
    raise _other_columns(found, expected)


def _other_columns(found: pa.Schema, expected: pa.Schema) -> CheckpointMismatch:
    """Return the error for a stored table with the columns ``found``."""
    theirs = {name: str(type_) for name, type_ in zip(found.names, found.types, strict=True)}
    ours = {name: str(type_) for name, type_ in zip(expected.names, expected.types, strict=True)}
    only = {name: type_ for name, type_ in theirs.items() if ours.get(name) != type_}
    missing = {name: type_ for name, type_ in ours.items() if theirs.get(name) != type_}
    others = "none of them" if missing else "the same columns in another order"
    return CheckpointMismatch(
        f"the checkpoint's state has {only or others} where this pipeline has {missing or 'others'}: restore it with "
        "the pipeline that wrote it, or start without it"
    )


def check_present(rows: pa.Table | pa.RecordBatch, expected: pa.Schema) -> None:
    """Raise CheckpointDamaged if a column has nulls that are not nullable in ``expected``, by its place.

    >>> check_present(pa.table({"n": [1, None]}), pa.schema([number_field("n")]))
    Traceback (most recent call last):
    dataflow.errors.CheckpointDamaged: 1 of 2 stored rows have no 'n', which is never null
    """
    for field, column in zip(expected, rows.columns, strict=False):
        if not field.nullable and column.null_count:
            raise CheckpointDamaged(
                f"{column.null_count} of {rows.num_rows} stored rows have no {field.name!r}, which is never null"
            )


def check_counts(table: pa.Table, columns: Sequence[str]) -> None:
    """Check columns of numbers that count up from 0, so that the next one is a number, too. Nulls are left out.

    Raises: CheckpointDamaged if one is out of range.

    >>> check_counts(pa.table({"n": [3, None, 2**62]}), ["n"])
    Traceback (most recent call last):
    dataflow.errors.CheckpointDamaged: the numbers 'n' are from 3 to 4611686018427387904, which is out of range
    """
    for name in columns:
        if name in table.column_names and table.num_rows > table.column(name).null_count:
            least, most = pc.min_max(table.column(name)).as_py().values()
            if least < 0 or most >= _MOST_COUNTED:
                raise CheckpointDamaged(f"the numbers {name!r} are from {least} to {most}, which is out of range")


def _moved(found: Sequence[str], expected: Sequence[str]) -> bool:
    """Return whether a name is at another place, as if columns were swapped. Other names are columns with new names."""
    if found == expected or len(set(expected)) < len(expected):
        return False
    places = {name: place for place, name in enumerate(expected)}
    return any([places.get(name, place) != place for place, name in enumerate(found)])


def owned(table: pa.Table, keys: int, groups: range, max_groups: int) -> pa.Table:
    """Return the rows of ``table`` whose key, the first ``keys`` columns, is in ``groups``, of ``max_groups``."""
    if len(groups) == max_groups:
        return table
    hashes = [hash_rows(batch.columns[:keys]) for batch in table.to_batches()]
    found = key_groups(np.concatenate([*hashes, np.empty(0, np.uint64)]), max_groups)
    return table.filter(to_array((found >= groups.start) & (found < groups.stop)))


def stored_keys(
    frozen: FrozenRows,
    delta: Delta | None,
    known: KnownKeys,
    store: FrozenColumns,
    schema: pa.Schema,
    stamp: int,
    held: Reading,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a checkpoint; ``stamp`` is the word of the stamps, 0 if there are none.

    The generator keeps ``held`` until it ends or is dropped.
    """

    def rows(slots: Slots | range, records: Rows) -> pa.RecordBatch:
        records[:, 0] &= ~_SIGN
        stamps = [from_words(records[:, stamp].copy(), pa.int64())] if stamp else []
        columns = [*known.columns(slots), *store.columns(records), *stamps, to_array(np.ones(len(records), np.bool_))]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def pieces(slots: Slots | range, records: Rows) -> Iterator[pa.RecordBatch]:
        live = records[:, 0] < 0
        if not live.all():
            numbers = np.arange(slots.start, slots.stop, dtype=np.int32) if isinstance(slots, range) else slots
            slots, records = numbers[live], records[live]

        def size(piece: slice) -> int:
            return known.text_bytes(slots[piece]) + store.text_bytes(records[piece])

        for piece in _pieces(len(slots), size):
            yield rows(slots[piece], records[piece])

    def deleted(slots: Slots) -> Iterator[pa.RecordBatch]:
        for piece in _pieces(len(slots), lambda piece: known.text_bytes(slots[piece])):
            some = slots[piece]
            nulls = [pa.nulls(len(some), type_) for type_ in schema.types[len(known.schema) : -1]]
            dead = to_array(np.zeros(len(some), np.bool_))
            yield pa.RecordBatch.from_arrays([*known.columns(some), *nulls, dead], schema=schema)

    most = _most_rows(frozen, known)
    if delta is None:
        start = 0
        for records in frozen.chunks(most):
            yield from pieces(range(start, start + len(records)), records)
            start += len(records)
        return
    gone = delta.gone()
    for start in range(0, len(gone), most):
        yield from deleted(gone[start : start + most])
    for written in delta.slots():
        for start in range(0, len(written), most):
            slots = written[start : start + most]
            yield from pieces(slots, frozen.rows_of(slots))


class MakeRows(Protocol):
    """A function that makes rows of a checkpoint from frozen records, which all exist or are all removed."""

    def __call__(self, records: Rows, *, live: bool) -> pa.RecordBatch:
        """Return the rows."""


def in_order(table: pa.Table, column: int, keys: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of ``table`` in ascending order of an int64 column, the sequence number.

    Raises: CheckpointDamaged if a number is out of range, or a key, the first ``keys`` columns, has two rows of one
        number that are live. Rows of several tasks, after a change of parallelism, have the same numbers under other
        keys.
    """
    check_counts(table, [table.column_names[column]])
    numbers = to_numbers(table.column(column))
    steps = np.diff(numbers)
    if (steps < 0).any():
        order = np.argsort(numbers, kind="stable")
        table, steps = table.take(to_array(order)), np.diff(numbers[order])
    if not steps.all():
        equal = np.append(steps == 0, False) | np.append(False, steps == 0)
        _check_distinct(table.filter(to_array(equal)), column, keys)
    yield from table.to_batches()


def _check_distinct(rows: pa.Table, column: int, keys: int) -> None:
    """Raise CheckpointDamaged if two live rows of a key have one number in ``column``."""
    rows = rows.filter(rows.column(rows.num_columns - 1))
    of_key = KeyIndex(pa.schema([*list(rows.schema)[:keys], rows.schema.field(column)]))
    for batch in rows.to_batches():
        of_key.slots([*batch.columns[:keys], batch.column(column)])
    if len(of_key) < rows.num_rows:
        raise CheckpointDamaged(
            f"{rows.num_rows} stored rows have {len(of_key)} distinct keys and sequence numbers: expected each once"
        )


def stored_numbers(
    frozen: FrozenRows,
    delta: Delta | None,
    known: KnownKeys,
    rows: MakeRows,
    held: Reading,
    text_bytes: Callable[[Rows], int] = lambda _: 0,
) -> Iterator[pa.RecordBatch]:
    """Yield the records that belong to slots, as word SLOT says: those that exist, after those that were removed.

    ``text_bytes`` returns the bytes of text in records that exist, beside that of their keys.
    """

    def removed(records: Rows) -> Iterator[pa.RecordBatch]:
        slots = records[:, SLOT].astype(np.int32)
        for piece in _pieces(len(slots), lambda piece: known.text_bytes(slots[piece])):
            yield rows(records[piece], live=False)

    def existing(records: Rows) -> Iterator[pa.RecordBatch]:
        records = records[records[:, 0] < 0]
        slots = records[:, SLOT].astype(np.int32)
        for piece in _pieces(len(slots), lambda piece: known.text_bytes(slots[piece]) + text_bytes(records[piece])):
            yield rows(records[piece], live=True)

    most = _most_rows(frozen, known)
    if delta is None:
        for records in frozen.chunks(most):
            yield from existing(records)
        return
    gone = delta.gone()
    for start in range(0, len(gone), most):
        yield from removed(frozen.unchanged_rows(gone[start : start + most]))
    for written in delta.slots():
        for start in range(0, len(written), most):
            yield from existing(frozen.rows_of(written[start : start + most]))


def small_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``batch`` in batches of at most ``PIECE_BYTES``, unless one row has more."""
    if sum([column.get_total_buffer_size() for column in batch.columns]) <= PIECE_BYTES:  # costs less than ``nbytes``
        yield batch
        return
    for piece in _pieces(batch.num_rows, lambda piece: _piece(batch, piece).nbytes):
        yield _piece(batch, piece)


def _piece(batch: pa.RecordBatch, piece: slice) -> pa.RecordBatch:
    return batch.slice(piece.start, piece.stop - piece.start)


def _most_rows(frozen: FrozenRows, known: KnownKeys) -> int:
    """Return how many rows a batch may have if there is no text in it."""
    return min(CHUNK, PIECE_BYTES // (8 * (frozen.words + len(known.schema))))


def _pieces(count: int, size: Callable[[slice], int]) -> Iterator[slice]:
    """Yield pieces of ``count`` rows that have at most ``PIECE_BYTES`` of text and lists each, unless one row has more.

    So a batch takes little memory. ``size`` returns the bytes of text and lists in some of the rows.
    """
    waiting = [(0, count)]
    while waiting:
        first, stop = waiting.pop()
        if stop - first > 1 and size(slice(first, stop)) > PIECE_BYTES:
            middle = (first + stop) // 2
            waiting += [(middle, stop), (first, middle)]
        elif stop > first:
            yield slice(first, stop)
