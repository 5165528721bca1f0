"""Restoring the state of a join from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from dataflow.contracts.operator import OperatorContext, Snapshot
from dataflow.errors import OTHER_PIPELINE, CheckpointMismatch
from dataflow.planning.join_specs import Join
from dataflow.untrusted import Time, parsed
from operators.aggregation.restoring import restoring

__all__ = ["SIDES", "check_join", "restore_rows", "watermark_of"]

SIDES = "left", "right"
"""The names of the logs of the two sides."""


class Restorable(Protocol):
    """Rows of a side of a join."""

    def restore(self, parts: Sequence[Mapping[str, pa.Table]], groups: range, max_groups: int) -> None:
        """Restore what was in a checkpoint."""


def check_join(context: OperatorContext, spec: Join, restored: Snapshot) -> None:
    """Raise CheckpointMismatch if the checkpoint holds the state of another join."""
    found, own = restored.values.get("join"), spec.described()
    if found != own:
        raise CheckpointMismatch(
            f"{context.name}: the checkpoint holds a join {found}, the pipeline has {own}; {OTHER_PIPELINE}"
        )


def watermark_of(context: OperatorContext, restored: Snapshot) -> int | None:
    """Return the watermark of the checkpoint; None: no watermark had come."""
    return parsed(Time | None, restored.values["watermark"], f"{context.name}: the watermark")


def restore_rows(context: OperatorContext, restored: Snapshot, sides: Mapping[str, Restorable]) -> None:
    """Restore the rows of each of ``sides``, which are named as their logs."""
    logs: Any = restored.logs
    for name, side in sides.items():
        with restoring(context.name):
            side.restore(logs.get(name, ()), context.key_groups, context.max_key_groups)
