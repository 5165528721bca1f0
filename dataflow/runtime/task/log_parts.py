"""The object with the rows of a task's logs in one checkpoint: a base or a delta.

Its values name the checkpoint that wrote it and the one whose object comes before it in the list (0: it is a base). So
a list that lacks a delta, has one too many or begins with a delta is recognised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from dataflow.contracts.operator import Snapshot
from dataflow.errors import CheckpointDamaged
from dataflow.untrusted import Count, excerpt, parsed

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.store.files import Buffer

__all__ = ["LogEntry", "entries_of", "log_pieces", "logs_in", "read_logs", "tables_of"]

Key = tuple[str, str]
"""A log: its operator and its name."""


class LogEntry(msgspec.Struct):
    """A log in the values of an object; ``tables`` are the names of its tables, None: they are in another object."""

    operator: str
    log: str
    tables: list[str] | None = None


class _Header(msgspec.Struct):
    """The values of an object with logs."""

    task: str
    checkpoint: Count
    after: Count
    logs: list[LogEntry]


def entries_of(operators: Mapping[str, Snapshot], *, stored: bool) -> list[dict[str, Any]]:
    """Return the entries of all frozen logs; ``stored``: with the names of their tables."""
    return [
        {"operator": operator, "log": name, **({"tables": list(parts[0])} if stored else {})}
        for (operator, name), parts in _frozen(operators)
    ]


def tables_of(operators: Mapping[str, Snapshot]) -> dict[str, pa.RecordBatchReader]:
    """Return the tables of all frozen logs, by their names in the object."""
    return {
        _table(number, table): reader
        for number, (_, parts) in enumerate(_frozen(operators))
        for table, reader in parts[0].items()
    }


def _frozen(operators: Mapping[str, Snapshot]) -> Iterator[tuple[Key, Any]]:
    for operator, snapshot in operators.items():
        for name, parts in snapshot.logs.items():
            yield (operator, name), parts


def _table(number: int, table: str) -> str:
    return f"/logs/{number}/{table}"


def log_pieces(
    task: str, checkpoint: int, after: int, operators: Mapping[str, Snapshot]
) -> Iterator[memoryview] | None:
    """Return the pieces of the object with the frozen logs of ``operators``; None: a delta without any row.

    Args:
        task: the name of the task.
        checkpoint: the checkpoint that writes the object.
        after: the checkpoint that wrote the object before it; 0: this one is a base.
        operators: by name; their logs are read, each reader once.
    """
    from dataflow.state.codec import stream

    entries = entries_of(operators, stored=True)
    tables = tables_of(operators)
    if after:
        begun = _begun(tables)
        if begun is None:
            return None
        tables = begun
    return stream({"task": task, "checkpoint": checkpoint, "after": after, "logs": entries}, tables)


def _begun(tables: Mapping[str, pa.RecordBatchReader]) -> dict[str, pa.RecordBatchReader] | None:
    """Return ``tables``, read up to the first row, with that row; None: there is no row."""
    import pyarrow as pa

    waiting = iter(tables.items())
    begun: dict[str, pa.RecordBatchReader] = {}
    for name, reader in waiting:
        try:
            first = next((batch for batch in reader if batch.num_rows), None)
        except Exception as error:
            error.add_note(f"raised while table {name!r} of a snapshot was read")
            raise
        begun[name] = pa.RecordBatchReader.from_batches(reader.schema, _rest(first, reader))
        if first is not None:
            return {**begun, **dict(waiting)}
    return None


def _rest(first: pa.RecordBatch | None, reader: pa.RecordBatchReader) -> Iterable[pa.RecordBatch]:
    return iter(()) if first is None else chain([first], reader)


def logs_in(entries: Sequence[LogEntry], tables: Mapping[str, pa.Table]) -> dict[Key, Mapping[str, pa.Table]]:
    """Return the tables of each log in one object. Raises: CheckpointDamaged."""
    logs: dict[Key, Mapping[str, pa.Table]] = {}
    for number, entry in enumerate(entries):
        what = f"log {excerpt(entry.log)} of operator {excerpt(entry.operator)}"
        names = {table: _table(number, table) for table in entry.tables or ()}
        missing = [table for table, name in names.items() if name not in tables]
        if missing:
            raise CheckpointDamaged(f"{what} lacks the table {excerpt(missing[0])}")
        if (entry.operator, entry.log) in logs:
            raise CheckpointDamaged(f"{what} is there twice")
        logs[entry.operator, entry.log] = {table: tables[name] for table, name in names.items()}
    return logs


def read_logs(task: str, objects: Iterable[tuple[int, Buffer]]) -> dict[Key, list[Mapping[str, pa.Table]]]:
    """Return the tables of each log of ``task``: of its base, then of its deltas.

    Args:
        task: the name of the task.
        objects: the checkpoint that wrote each object, and its bytes, in the order of the manifest.

    Raises: CheckpointDamaged if an object is damaged, or not the one after its predecessor.
    """
    from dataflow.state.codec import decode

    logs: dict[Key, list[Mapping[str, pa.Table]]] = {}
    before = 0
    for checkpoint, data in objects:
        what = f"the log of task {excerpt(task)} of checkpoint {checkpoint}"
        values, tables = decode(data)
        header: _Header = parsed(_Header, values, what)
        if (header.task, header.checkpoint) != (task, checkpoint):
            other = f"task {excerpt(header.task)} of checkpoint {header.checkpoint}"
            raise CheckpointDamaged(f"{what} is that of {other}: put the right file back")
        if header.after != before:
            kind = f"a delta to the object of checkpoint {header.after}" if header.after else "a base"
            listed = f"that of checkpoint {before}" if before else "nothing"
            raise CheckpointDamaged(f"{what} is {kind}, but the manifest lists {listed} before it")
        found = logs_in(header.logs, tables)
        if before and found.keys() != logs.keys():
            raise CheckpointDamaged(f"{what} has the logs {excerpt(sorted(found))}, expected {excerpt(sorted(logs))}")
        for key, part in found.items():
            logs.setdefault(key, []).append(part)
        before = checkpoint
    return logs
