"""Build the chain of operators of one subtask: each with its context, wired to the next.

The host of the chain supplies its outputs: a task of this process has channels to other tasks, other runners have their
own outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from dataflow.clock import OperatorClock
from dataflow.contracts.emitted_rows import UNWATCHED, Unwatched, unwatched
from dataflow.contracts.execution import Execution, Spill
from dataflow.contracts.operator import Operator, OperatorContext
from dataflow.contracts.sink import TwoPhaseSink
from dataflow.events.plan_shape import task_id
from dataflow.planning.graph import Node
from dataflow.planning.physical_plan import Link, Plan, Vertex
from dataflow.planning.specs import Read, Write
from dataflow.protocol.red_log import RedLog
from dataflow.runtime.task.chain import ChainNode
from dataflow.runtime.task.contract_checks import build_operator, declared_outputs
from dataflow.runtime.task.outputs import Output
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.ranged_operator import RangedOperator
from dataflow.runtime.task.source_input import SourceInput
from dataflow.runtime.task.state_shares import Share
from dataflow.state.hashing import key_group_range
from dataflow.untrusted import damaged_by

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SubtaskSetup", "restore_nodes", "wire_chain"]


@dataclass(frozen=True, slots=True)
class SubtaskSetup:
    """The setup of a chain: it is for ``subtask`` of ``vertex`` in run ``run_id``, and starts from ``state``.

    ``splits`` is the input of a source task. ``red_log`` makes the log of the rows that a restore delivers again to an
    operator (see ``ChainNode``); None: there are no such rows, because the mode is exactly once. ``repeated``: see
    ``OperatorContext``.
    ``key_groups`` are the key groups of the rows that come here, if not those of the subtask. ``spill`` says where rows
    of a batch are sorted. ``emitted`` makes what takes note of the rows that a user's operator emits, given its name
    for messages.
    """

    plan: Plan
    vertex: Vertex
    subtask: int
    clock: OperatorClock
    run_id: str
    state: TaskState | None = None
    splits: SourceInput | None = None
    red_log: Callable[[], RedLog[str]] | None = None
    repeated: bool = False
    key_groups: range | None = None
    spill: Spill = field(default_factory=Spill)
    emitted: Callable[[str], Unwatched] = unwatched


def wire_chain(
    setup: SubtaskSetup, output_of: Callable[[int, Link], Output], restored: Mapping[int, ChainNode] | None = None
) -> list[ChainNode]:
    """Return the wired chain, parents before children.

    Args:
        output_of: makes the output of a link, given its number.
        restored: by node, what ``restore_nodes`` returned for this setup, or nodes of a chain that are not wired now.
    """
    nodes = {node.id: _chain_node(setup, node) for node in setup.vertex.nodes if node.id not in (restored or {})}
    nodes.update(restored or {})
    for node in setup.vertex.nodes[1:]:
        edge = node.inputs[0]
        nodes[edge.source].children.setdefault(edge.tag, []).append(nodes[node.id])
    for number, link in enumerate(setup.plan.links):
        if link.source == setup.vertex.name:
            nodes[link.node].outputs.setdefault(link.tag, []).append(output_of(number, link))
    return [nodes[node.id] for node in setup.vertex.nodes]


def restore_nodes(setup: SubtaskSetup) -> dict[int, ChainNode]:
    """Return operators that are restored from the state of ``setup`` and not wired yet, by node.

    These are the library's, and those of users whose state is declared: what does not fit is refused before a sink
    changes its output. Writers in two phases are left out, because their output is not locked yet, and users' operators
    that read their state by hand.

    Raises: CheckpointDamaged, naming the operator; other errors of restoring an operator.
    """
    nodes, state = setup.vertex.nodes, setup.state
    declared = {node.name for node in nodes if state is not None and _is_declared(state, node.name)}
    return {
        node.id: _chain_node(setup, node)
        for node in nodes
        if not (isinstance(node.spec, Read) or _is_two_phase(node) or (node.is_users and node.name not in declared))
    }


def _is_declared(state: TaskState, operator: str) -> bool:
    return operator in _shares(state) or any([snapshot.rules for snapshot in state.snapshots(operator)])


def _shares(state: TaskState) -> Mapping[str, Sequence[Share]]:
    """Return the state of the operators that run as one instance for each range of key groups."""
    if state.moved is not None:
        return state.moved.shares
    return {
        name: [
            Share(0, range(each.first, each.stop), snapshot, each.reached, each.ended, frozenset(each.ended_ports))
            for each, snapshot in zip(ranges, state.snapshots(name), strict=True)
        ]
        for name, ranges in state.ranges.items()
    }


def _is_two_phase(node: Node) -> bool:
    return isinstance(node.spec, Write) and isinstance(node.spec.sink, TwoPhaseSink)


def _chain_node(setup: SubtaskSetup, node: Node) -> ChainNode:
    plan, vertex, state = setup.plan, setup.vertex, setup.state
    parent = None if node is vertex.head else plan.graph.nodes[node.inputs[0].source].name
    red = None if parent is None or setup.red_log is None else setup.red_log()
    task, emitted = task_id(vertex.name, setup.subtask), UNWATCHED
    if node.spec.emits_users_batches and not isinstance(node.spec, Write):
        emitted = setup.emitted(f"operator {node.name!r}, subtask {task}")
    chain_node: ChainNode
    if emitted is UNWATCHED:
        chain_node = ChainNode(node.name, parent, setup.clock, red)
    else:
        chain_node = watched = _WatchedNode(node.name, parent, setup.clock, red)
        watched.emitted = emitted
    if node is vertex.head and setup.splits is not None:
        chain_node.tally = setup.splits.tally
    chain_node.in_batch = plan.execution is Execution.BATCH
    chain_node.stores = not chain_node.in_batch or isinstance(node.spec, Write)
    context = OperatorContext(
        name=node.name,
        subtask=setup.subtask,
        parallelism=vertex.parallelism,
        input_schemas=tuple(plan.graph.schema_of(edge) for edge in node.inputs),
        output_schema=node.schema,
        key_groups=setup.key_groups or key_group_range(setup.subtask, vertex.parallelism, plan.max_key_groups),
        max_key_groups=plan.max_key_groups,
        restored=state.operators.get(node.name) if state is not None and chain_node.stores else None,
        clock=setup.clock,
        schedule=chain_node.schedule,
        run_id=setup.run_id,
        tally=chain_node.tally,
        splits=setup.splits,
        repeats=setup.red_log is not None,
        repeated=setup.repeated,
        spill=setup.spill,
        emitted=emitted,
        schedule_at=chain_node.schedule_at,
        watermark=None if state is None else state.passed.get(node.name),
        time_restarts=state is not None and state.moved is not None,
    )
    chain_node.task = task
    chain_node.declared = declared_outputs(node, task)
    shares = _shares(state) if state is not None and chain_node.stores else {}
    if node.name in shares:
        keys = [edge.keys for edge in node.inputs]
        make = partial(_operator, node, task=task)
        chain_node.operator = RangedOperator(context, shares[node.name], keys, make, chain_node.replace_operator)
    else:
        chain_node.operator = _operator(node, context, task)
    if state is not None:
        chain_node.restore_time(state.passed.get(node.name), timed=node.name in state.timed)
    if state is not None and state.moved is not None:
        moved = state.moved
        chain_node.restore_standing(moved.reached.get(node.name), moved.ended_ports.get(node.name, frozenset()))
    return chain_node


def _operator(node: Node, context: OperatorContext, task: str) -> Operator:
    """Return the operator, restored if there is state. Errors of a user's operator over its state are not changed."""
    restored = context.restored
    if node.is_users or restored is None or not (restored.values or restored.tables or restored.logs):
        return build_operator(node, context, task)
    with damaged_by(f"operator {node.name!r}, subtask {context.subtask}"):
        return build_operator(node, context, task)


class _WatchedNode(ChainNode):
    """Checks after each call of a user's operator what it emitted before, because it may have written into it."""

    emitted: Unwatched

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        self.emitted.add(batch)
        super().emit(batch, tag)

    def work(self) -> None:
        super().work()
        self.emitted.check()

    def ring(self, due: int, number: int = 0) -> None:
        super().ring(due, number)
        self.emitted.check()
