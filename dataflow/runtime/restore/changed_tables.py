"""Find the lookups whose table has changed since the state of another run was stored.

A checkpoint describes its plan, with a hash of each column that a lookup read. Columns that only one of the two runs
read cannot be compared, and are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dataflow.contracts.spec import Spec
from dataflow.errors import CheckpointMismatch, TableReloadedWarning
from dataflow.planning.physical_plan import Plan
from dataflow.runtime.task.notices import Notices
from dataflow.untrusted import damaged_by

__all__ = ["note_reloaded", "refuse_changed_tables"]


def refuse_changed_tables(nodes: Sequence[Mapping[str, Any]], what: str, plan: Plan) -> None:
    """Raise CheckpointMismatch if a table has changed since ``what`` was stored, whose operators are ``nodes``."""
    refused = [sentence for spec, sentence in _changed(nodes, plan) if not spec.accepts_reloaded]
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


def _changed(nodes: Sequence[Mapping[str, Any]], plan: Plan) -> Iterator[tuple[Spec, str]]:
    saved = {(node["name"], node["kind"]): node["detail"] for node in nodes}
    for node in plan.graph:
        stored = saved.get((node.name, node.kind))
        if stored is not None and (change := node.spec.reloaded(stored)):
            yield node.spec, f"operator {node.name!r}: {change}"
