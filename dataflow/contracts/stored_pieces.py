"""Change the stored state of an operator by the rules beside its pieces, without the operator.

Every part of a log changes alike, its base and its deltas. Rows keep their order, and tables their marks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from dataflow.contracts.operator import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["keys_of", "keys_where", "with_owner", "without_empty", "without_owner", "without_pieces"]

KEYS: Final = "keys"
"""The table of keyed state with a row for each key."""


def with_owner(stored: Snapshot, owner: str) -> Snapshot:
    """Return the state with one more owner, of which it has no column: it starts empty in a restore.

    The operator has pieces or columns of the owner. A piece that belongs to such owners alone is not restored, and a
    column of theirs in another piece is filled with ``Log.initial``.
    """
    return replace(stored, added=(*stored.added, owner))


def without_owner(stored: Snapshot, owner: str) -> Snapshot:
    """Return the state without the columns that belong to ``owner`` alone.

    >>> import pyarrow as pa
    >>> from dataflow.contracts.operator import Rule
    >>> rule = Rule("table", keys=1, owners={"total": ["sum"], "mean": ["sum", "count"]})
    >>> stored = Snapshot(tables={"rows": pa.table({"k": [1], "sum": [2], "count": [3]})}, rules={"rows": rule})
    >>> without_owner(stored, "mean").tables["rows"].column_names
    ['k', 'sum']
    """
    rules = dict(stored.rules)
    tables, logs = dict(stored.tables), dict(stored.logs)
    for piece, rule in stored.rules.items():
        if owner not in rule.owners:
            continue
        owners = {name: columns for name, columns in rule.owners.items() if name != owner}
        used = {name for columns in owners.values() for name in columns}
        gone = {name for name in rule.owners[owner] if name not in used}
        rules[piece] = msgspec.structs.replace(rule, owners=owners)
        if piece in logs:
            logs[piece] = [{n: _without(table, gone) for n, table in part.items()} for part in _parts(stored, piece)]
        if piece in tables:
            tables[piece] = _without(tables[piece], gone)
    return replace(stored, tables=tables, logs=logs, rules=rules)


def without_empty(stored: Snapshot, piece: str) -> Snapshot:
    """Return the state without the keys of a log that have no value in any column of an owner.

    Call it after `without_owner`: a key that only had the value of that owner is as if it had been removed.
    """
    rule = stored.rules[piece]
    columns = [name for names in rule.owners.values() for name in names]
    parts = [
        {n: _without_empty(table, columns) if n == KEYS else table for n, table in part.items()}
        for part in _parts(stored, piece)
    ]
    return replace(stored, logs={**stored.logs, piece: parts})


def _without_empty(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return a table of keys without those that are empty: left out of a base, and deleted in a delta, first."""
    from dataflow.arrow_values import to_array, to_numbers
    from dataflow.state.parts import LIVE, is_base

    has_value = np.zeros(table.num_rows, np.bool_)
    for name in columns:
        has_value |= np.asarray(table.column(name).is_valid())
    live = to_numbers(table.column(LIVE)) & has_value
    if is_base(table):
        return table.filter(to_array(live))
    order = np.argsort(live, kind="stable")
    place = table.column_names.index(LIVE)
    return table.set_column(place, table.schema.field(LIVE), to_array(live)).take(to_array(order))


def without_pieces(stored: Snapshot, names: Collection[str]) -> Snapshot:
    """Return the state without whole pieces."""

    def others(pieces: Mapping[str, Any]) -> dict[str, Any]:
        return {name: piece for name, piece in pieces.items() if name not in names}

    return replace(
        stored,
        values=others(stored.values),
        tables=others(stored.tables),
        logs=others(stored.logs),
        rules=others(stored.rules),
    )


def keys_of(stored: Snapshot, piece: str, columns: Sequence[str] = ()) -> int:
    """Return how many keys have a value in one of the ``columns`` of a log or a table; none given: how many it has."""
    if not columns:
        return _count(stored, piece, lambda batch: batch)
    return _count(stored, piece, lambda batch: _having(batch, [name for name in columns if name in batch.schema.names]))


def keys_where(stored: Snapshot, piece: str, column: str) -> int:
    """Return how many keys of a log or a table have a row where ``column`` is true."""
    return _count(
        stored, piece, lambda batch: batch.filter(batch.column(column)) if column in batch.schema.names else None
    )


def _having(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch | None:
    """Return the rows that have a value in one of ``columns``."""
    from dataflow.arrow_values import to_array

    if not columns:
        return None
    return batch.filter(to_array(np.any([np.asarray(batch.column(name).is_valid()) for name in columns], axis=0)))


def _count(stored: Snapshot, piece: str, chosen: Callable[[pa.RecordBatch], pa.RecordBatch | None]) -> int:
    """Return how many distinct keys are in the rows that count of a piece, as far as they are ``chosen``."""
    import pyarrow as pa

    from dataflow.state.keyed import KeyIndex
    from dataflow.state.parts import counting, resolved

    rule, index = stored.rules[piece], None
    tables = [*resolved(_parts(stored, piece)).values()] if piece in stored.logs else [stored.tables[piece]]
    for table in tables:
        table = table if rule.low is None else counting(table, *rule.low)
        for batch in table.to_batches():
            if (rows := chosen(batch)) is not None:
                index = KeyIndex(pa.schema(list(table.schema)[: rule.keys])) if index is None else index
                index.slots(rows.columns[: rule.keys])
    return 0 if index is None else len(index)


def _parts(stored: Snapshot, piece: str) -> Sequence[Any]:
    parts: Any = stored.logs[piece]
    return parts


def _without(table: Any, names: Collection[str]) -> pa.Table:
    kept: pa.Table = table.select([name for name in table.column_names if name not in names])
    return kept
