"""Divide the state that a user's operator saves by hand for other subtasks, by its ``rescale``, or refuse it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dataflow.contracts.operator import Operator, Snapshot
from dataflow.contracts.rescale import RescaleContext, StatePart
from dataflow.errors import CheckpointMismatch, ContractViolation
from dataflow.planning.graph import Node
from dataflow.planning.operator_table import operator_class
from dataflow.planning.specs import Write
from dataflow.runtime.task.state_shares import NewSubtask, Share

__all__ = ["rescaled_by_hand"]


def rescaled_by_hand(node: Node, shares: Sequence[Share], new: NewSubtask, *, is_running: bool) -> Snapshot:
    """Return the state of a new subtask, as the operator's ``rescale`` makes it.

    Args:
        is_running: whether the new subtask still gets input.

    Raises: CheckpointMismatch if the operator has no ``rescale``, or some of its subtasks had ended and others had not.
    """
    where = f"operator {node.name!r}"
    made: Any = node.spec.sink if isinstance(node.spec, Write) else node.spec.made_by or operator_class(node.spec)
    hook = getattr(made, "rescale", None)
    if hook is None or getattr(hook, "__func__", hook) is Operator.rescale.__func__:  # type: ignore[attr-defined]
        raise CheckpointMismatch(
            f"{where} saves its state by hand in {len(shares)} subtasks, so it cannot be divided for "
            f"{new.parallelism}: declare the state (extend flow.Stateful), or define rescale(parts, context), "
            f"or keep parallelism={len(shares)} for this operator"
        )
    if is_running and any([share.ended for share in shares]):
        ended = [share.subtask for share in shares if share.ended]
        raise CheckpointMismatch(
            f"{where}: subtasks {ended} had ended and have called finish(), others had not, so their state cannot be "
            "divided: restore an earlier checkpoint, or restore this one at the parallelism that it was taken with"
        )
    context = RescaleContext(
        node.name,
        new.number,
        new.parallelism,
        len({share.subtask for share in shares}),
        new.groups,
        new.max_key_groups,
        next((edge.keys for edge in node.inputs if edge.keys), ()),
        sorted(new.splits),
    )
    try:
        returned = hook([StatePart(s.subtask, s.snapshot, s.groups, s.reached) for s in shares], context)
    except Exception as error:
        error.add_note(f"raised by rescale() of {where} for subtask {new.number} of {new.parallelism}")
        raise
    if not isinstance(returned, Snapshot):
        raise ContractViolation(f"{where}: rescale() returns a Snapshot, but returned {returned!r}")
    return returned
