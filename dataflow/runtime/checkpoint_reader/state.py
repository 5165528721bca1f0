"""Tables of the state of one operator, from what its subtasks stored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dataflow.contracts.operator import Rule, Snapshot
from dataflow.planning.physical_plan import vertex_of
from dataflow.runtime.task.parts import TaskState
from dataflow.state.parts import STAMP, counting, resolved

__all__ = ["state_tables"]

_READABLE = {f"barrierflow:{name}": name for name in ("window", "start", "all")} | {
    STAMP: "last_written",
    "/touched": "touched",
    "/shown": "shown",
}
"""Names of columns for people, by their names in a checkpoint."""
_SPLITS = pa.schema(
    {"subtask": pa.int64(), "split": pa.string(), "offset": pa.string(), "done": pa.bool_(), "rows": pa.int64()}
)
_VALUES = pa.schema({"subtask": pa.int64(), "name": pa.string(), "value": pa.string()})
_TRANSACTIONS = pa.schema({"transaction": pa.string()})


def state_tables(
    operator: str, states: Mapping[str, TaskState], transactions: Sequence[Mapping[str, Any]]
) -> dict[str, pa.Table]:
    """Return the tables of an operator's state, the most telling one first. "values" comes last.

    Args:
        operator: the name of the operator.
        states: the states of the tasks that run it, by name.
        transactions: the handles that the operator, a sink, must commit.
    """
    tables: dict[str, list[pa.Table]] = {}
    splits, values = [], []
    for subtask, (task, state) in enumerate(states.items()):
        snapshots = state.snapshots(operator)
        for number, snapshot in enumerate(snapshots):
            for name, table in _tables(snapshot, first=not subtask and not number):
                tables.setdefault(name, []).append(table)
        if vertex_of(task) == operator:
            stored: Any = state.inlet.get("splits", ())
            splits += [_split(subtask, split) for split in stored]
        told = [entry for snapshot in snapshots for entry in snapshot.values.items()]
        values += [{"subtask": subtask, "name": name, "value": json.dumps(value)} for name, value in told]
    found: dict[str, pa.Table] = {}
    if splits:
        found["splits"] = pa.Table.from_pylist(splits, schema=_SPLITS)
    for name in sorted(tables, key=lambda name: name != "keys"):
        found[name] = _readable(pa.concat_tables(tables[name], promote_options="default"))
    if transactions:
        handles = [{"transaction": json.dumps(handle)} for handle in transactions]
        found.setdefault("transactions", pa.Table.from_pylist(handles, schema=_TRANSACTIONS))
    if values:
        found.setdefault("values", pa.Table.from_pylist(values, schema=_VALUES))
    return found


def _tables(snapshot: Snapshot, *, first: bool) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of a snapshot: the live rows of its logs, as far as they count, and its tables.

    Rows that all subtasks share are those of the ``first`` one.
    """
    for log, parts in snapshot.logs.items():
        several, rule = len(snapshot.logs) > 1, snapshot.rules.get(log, Rule("log"))
        low = rule.low
        if rule.shared and not first:
            continue
        for name, table in resolved(parts).items():  # type: ignore[arg-type]
            yield (f"{log}/{name}" if several else name), table if low is None else counting(table, *low)
    stored: Mapping[str, Any] = snapshot.tables
    yield from stored.items()


def _readable(table: pa.Table) -> pa.Table:
    """Return a table with column names for people, unless other columns have these names."""
    names = [_READABLE.get(name, name) for name in table.column_names]
    return table.rename_columns(names) if len(set(names)) == len(names) else table


def _split(subtask: int, split: Mapping[str, Any]) -> dict[str, Any]:
    offset = None if split["offset"] is None else json.dumps(split["offset"])
    return {
        "subtask": subtask,
        "split": split["id"],
        "offset": offset,
        "done": split["done"],
        "rows": split["rows"],
    }
