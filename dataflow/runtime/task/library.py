"""The functions that the engine needs from the package of operators, so that it need not import that package.

``dataflow.runners.binding`` makes the one `Library`; runners pass it to the planner and to the runtime. It does not
contain the operators of specs: ``dataflow.planning.operator_table`` finds them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataflow.contracts.spec import Spec
from dataflow.planning.graph import Graph, Node

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.background import Submit
    from dataflow.runtime.task.chain import ChainNode

__all__ = ["Library"]


@dataclass(frozen=True, slots=True)
class Library:
    """Functions of the package of operators that the engine calls.

    Attributes:
        mergeable: ``mergeable(node, schema)`` returns whether rows of ``schema`` may be folded per key before they
            reach the operator of ``node``, because its records can be merged: ``combine=`` of the planner.
        folded_schema: ``folded_schema(spec, schema)`` returns the columns of folded rows on a channel to the operator
            of ``spec``, which has `Spec.folding`.
        check_folded: ``check_folded(batch, spec, where)`` raises CheckpointDamaged for folded rows that the operator
            must not receive.
        shown_rows: ``shown_rows(spec, batch, taken, made)`` returns rows in flight in the user's columns: folded rows
            as the operator would emit them. ``taken`` and ``made`` are the schemas of its input and output.
        fuse: ``fuse(graph, nodes, submit)`` replaces operators of a chain by compiled loops where that saves time. The
            nodes are wired and have their operators; ``submit`` runs the compilation in the background.
    """

    mergeable: Callable[[Node, pa.Schema], bool]
    folded_schema: Callable[[Spec, pa.Schema], pa.Schema]
    check_folded: Callable[[pa.RecordBatch, Spec, str], None]
    shown_rows: Callable[[Spec, pa.RecordBatch, pa.Schema, pa.Schema], pa.Table]
    fuse: Callable[[Graph, Sequence[tuple[Node, ChainNode]], Submit], None]
