"""Find the lookups whose table has changed since the state of another run was stored.

A checkpoint describes its plan, with a hash of each column that a lookup read. Columns that only one of the two runs
read cannot be compared, and are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dataflow.errors import CheckpointMismatch, TableReloadedWarning
from dataflow.planning.lookup_specs import Lookup
from dataflow.planning.lookup_tables import LoadedTable
from dataflow.planning.physical_plan import Plan
from dataflow.runtime.task.notices import Notices
from dataflow.untrusted import damaged_by

__all__ = ["note_reloaded", "refuse_changed_tables"]


def refuse_changed_tables(nodes: Sequence[Mapping[str, Any]], what: str, plan: Plan) -> None:
    """Raise CheckpointMismatch if a table has changed since ``what`` was stored, whose operators are ``nodes``."""
    refused = [sentence for spec, sentence in _changed(nodes, plan) if spec.on_change == "refuse"]
    if refused:
        listing = "".join(f"\n  {sentence}" for sentence in refused)
        raise CheckpointMismatch(
            f"{what} was taken with another lookup table:{listing}\nput the former table back, accept the new one for "
            'all further rows with lookup(..., on_change="reload"), or start over in a new checkpoint directory'
        )


def note_reloaded(notices: Notices, nodes: Sequence[Mapping[str, Any]], what: str, plan: Plan) -> None:
    """Add a notice for each table that has changed since ``what`` was stored, and that the pipeline accepts."""
    with damaged_by(what):
        for _, sentence in _changed(nodes, plan):
            notices.add(TableReloadedWarning, f"{what}: {sentence}; rows from here on are joined with the new one")


def _changed(nodes: Sequence[Mapping[str, Any]], plan: Plan) -> Iterator[tuple[Lookup, str]]:
    saved = {node["name"]: node["detail"] for node in nodes if node["kind"] == "lookup"}
    for node in plan.graph:
        if not isinstance(node.spec, Lookup) or not isinstance(node.spec.table, LoadedTable):
            continue
        table, then = node.spec.table, saved.get(node.name, {}).get("table")
        if then is None:
            continue
        differences = [
            f"column {name!r} has other values, or another order"
            for name, hash_ in table.hashes.items()
            if then["hashes"].get(name, hash_) != hash_
        ]
        if then["rows"] != table.count:
            differences = [f"it had {then['rows']:,} rows, now {table.count:,}"]
        if differences:
            yield node.spec, f"operator {node.name!r}: the table {table.text} has changed: {', '.join(differences)}"
