"""Regroup a checkpoint for other subtasks: make the states of the tasks of a plan from the states of the old tasks.

State belongs to an operator and a key group, rows in flight to an operator's input and a key. Neither belongs to a
task, because chains may split or join. So the old tasks are first taken apart by operator, and the new tasks are put
together from that::

    old tasks -> shares by operator (``state_shares``) -> merged, or one range for each share -> new tasks
              -> splits of each source, dealt out     (``regroup_splits``)
              -> rows in flight, dealt out            (``regroup_rows``)

Time starts again in all input gates: no watermark, idleness or end of a channel is carried over. Each task sends the
last watermark that its operators had passed on (the lowest of the old subtasks), and sources that have ended end again.
An operator gets only watermarks above the one that its state had reached. If the shares of a new subtask had reached
different ones, or some had ended, the operator runs as one instance for each (``RangedOperator``).

Pure: everything follows from the checkpoint and the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dataflow.contracts.operator import Snapshot
from dataflow.errors import CheckpointDamaged
from dataflow.planning.graph import Node
from dataflow.planning.physical_plan import Plan, Vertex, vertex_of
from dataflow.planning.specs import Write
from dataflow.runtime.restore.regroup_by_hand import ended_in_part, rescaled_by_hand
from dataflow.runtime.restore.regroup_rows import regroup_rows
from dataflow.runtime.restore.regroup_splits import dealt_splits, open_splits_of
from dataflow.runtime.task.parts import Standing, TaskState
from dataflow.runtime.task.state_shares import (
    NewSubtask,
    Share,
    agree,
    differing_copies,
    is_by_key,
    merge_shares,
    refuse_foreign_rows,
)
from dataflow.state.hashing import key_group_range
from dataflow.untrusted import excerpt

__all__ = ["has_moved", "regroup", "rescaled"]


def rescaled(nodes: Sequence[Mapping[str, Any]], plan: Plan) -> dict[str, tuple[int, int]]:
    """Return the old and the new number of subtasks of each operator whose number changed."""
    now = {str(node["name"]): node["parallelism"] for node in plan.describe()}
    pairs = {str(node["name"]): (node["parallelism"], now.get(str(node["name"]))) for node in nodes}
    return {name: (old, new) for name, (old, new) in pairs.items() if isinstance(new, int) and new != old}


def has_moved(nodes: Sequence[Mapping[str, Any]], states: Mapping[str, TaskState], plan: Plan) -> bool:
    """Return whether a checkpoint has other tasks than ``plan``, so that state must be regrouped."""
    tasks = {task: vertex for vertex, _, task in plan.tasks()}
    if list(tasks) != list(states) or rescaled(nodes, plan):
        return True
    placed = {node.name: vertex.name for vertex in plan.vertices.values() for node in vertex.nodes if node.stateful}
    return any(
        name in placed and placed[name] != vertex_of(task) for task, state in states.items() for name in state.names
    )


def regroup(
    nodes: Sequence[Mapping[str, Any]],
    states: Mapping[str, TaskState],
    plan: Plan,
    note: Callable[[str], None] = lambda text: None,
) -> Mapping[str, TaskState]:
    """Return the state of each task of ``plan``.

    Args:
        nodes: the operators, as the checkpoint describes them.
        states: the state of each old task, in the order of the tasks.
        plan: the plan that fits the checkpoint, but for its parallelism.
        note: is called with a warning if copies that should be equal are not.

    Raises: CheckpointDamaged for states that contradict each other; CheckpointMismatch for state that cannot be
        regrouped, because a user's operator saves it by hand.
    """
    return _Regrouping(nodes, states, plan, note).new_states()


@dataclass(frozen=True, slots=True)
class _Placed:
    """An operator in a new task: merged state, or a share for each range of its key groups."""

    snapshot: Snapshot | None = None
    shares: Sequence[Share] = ()
    reached: int | None = None
    ended_ports: frozenset[int] = frozenset()


class _Regrouping:
    """Takes the old tasks apart by operator, once, and makes the state of each new task."""

    def __init__(
        self,
        nodes: Sequence[Mapping[str, Any]],
        states: Mapping[str, TaskState],
        plan: Plan,
        note: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._note = note
        self._holders: dict[str, list[TaskState]] = {}
        for state in states.values():
            for name in state.names:
                self._holders.setdefault(name, []).append(state)
        for node in nodes:
            count = len(self._holders.get(str(node["name"]), ()))
            if count != node["parallelism"] and (count or node["stateful"]):
                raise CheckpointDamaged(
                    f"operator {excerpt(node['name'])} had {node['parallelism']} subtasks, and {count} have state"
                )
        placed = {node.name: node for node in plan.graph if node.name in self._holders}
        self._shares = {name: self._checked(node, self._shares_of(name)) for name, node in placed.items()}
        self._splits = dealt_splits(plan, self._holders)
        self._rows = regroup_rows(nodes, states, plan)

    def _shares_of(self, name: str) -> list[Share]:
        shares: list[Share] = []
        holders = self._holders[name]
        for i, state in enumerate(holders):
            splits = open_splits_of(state)
            if ranges := state.ranges.get(name):
                for each, snapshot in zip(ranges, state.snapshots(name), strict=True):
                    groups = range(each.first, each.stop)
                    ports = frozenset(each.ended_ports)
                    shares.append(Share(i, groups, snapshot, each.reached, each.ended, ports, splits))
                continue
            snapshot = state.operators[name]
            told: Any = state.inlet.get("ended_ports", ()) if vertex_of(state.task) == name else ()
            groups = key_group_range(i, len(holders), self._plan.max_key_groups)
            reached = _reached(snapshot, state.passed.get(name))
            shares.append(Share(i, groups, snapshot, reached, state.ended, frozenset(told), splits))
        return shares

    def _checked(self, node: Node, shares: Sequence[Share]) -> Sequence[Share]:
        """Return the shares; of rows that are equal in all subtasks, each has the copy of the first.

        Raises: CheckpointMismatch if rows of a user's operator belong to other subtasks than stored them.
        """
        if not all([share.snapshot.rules for share in shares]):
            return shares
        if node.is_users:
            refuse_foreign_rows(node.name, shares, self._plan.max_key_groups)
        first = shares[0].snapshot
        shared = [piece for piece, rule in first.rules.items() if rule.shared]
        for text in differing_copies(shares, shared, node.name):
            self._note(text)
        copies = {piece: first.logs[piece] for piece in shared}
        return [replace(s, snapshot=replace(s.snapshot, logs={**s.snapshot.logs, **copies})) for s in shares]

    def new_states(self) -> dict[str, TaskState]:
        return {task: self._new_state(vertex, i, task) for vertex, i, task in self._plan.tasks()}

    def _new_state(self, vertex: Vertex, subtask: int, task: str) -> TaskState:
        holders = {node.name: self._holders.get(node.name, []) for node in vertex.nodes}
        known = [state for states in holders.values() for state in states]
        ended = bool(known) and all([state.ended for state in known])
        splits = self._splits.get(task)
        new = NewSubtask(
            subtask,
            vertex.parallelism,
            key_group_range(subtask, vertex.parallelism, self._plan.max_key_groups),
            self._plan.max_key_groups,
            frozenset([split["id"] for split in splits.entries]) if splits else frozenset(),
        )
        placed = {
            node.name: self._placed(node, new, is_running=not ended) for node in vertex.nodes if holders[node.name]
        }
        standing = Standing(
            reached={name: each.reached for name, each in placed.items() if each.reached is not None},
            ended_ports={name: each.ended_ports for name, each in placed.items() if each.ended_ports},
            shares={name: each.shares for name, each in placed.items() if each.shares},
        )
        # A subtask that has ended sends no watermark any more, so it holds none back.
        sending = {name: [s for s in states if ended or not s.ended] for name, states in holders.items()}
        lowest = {name: _lowest([s.passed.get(name) for s in states]) for name, states in sending.items()}
        return TaskState(
            task,
            ended=ended,
            inlet={} if splits is None else splits.inlet,
            operators={name: each.snapshot for name, each in placed.items() if each.snapshot is not None},
            in_flight=self._rows.get(task, ()),
            passed={name: passed for name, passed in lowest.items() if passed is not None},
            timed=[name for name, states in holders.items() if any([name in state.timed for state in states])],
            moved=standing,
        )

    def _placed(self, node: Node, new: NewSubtask, *, is_running: bool) -> _Placed:
        shares = self._shares[node.name]
        is_empty = not any([s.snapshot.values or s.snapshot.tables or s.snapshot.logs for s in shares])
        ports = frozenset.intersection(*[share.ended_ports for share in shares])
        reached = _lowest([share.reached for share in shares if not share.ended])
        if is_empty:
            return _Placed(Snapshot(), (), reached, ports)
        if not all([share.snapshot.rules for share in shares]):
            return _Placed(rescaled_by_hand(node, shares, new, is_running=is_running), (), reached, ports)
        if not is_by_key(shares[0].snapshot.rules) or isinstance(
            node.spec, Write
        ):  # a writer prepares its transactions as one
            if node.is_users and is_running and any([share.ended for share in shares]):
                raise ended_in_part(node.name, shares)
            return _Placed(merge_shares(shares, new, node.name), (), reached, ports)
        mine = [
            replace(share, groups=groups)
            for share in sorted(shares, key=lambda share: share.groups.start)
            if (groups := _overlap(share.groups, new.groups))
        ]
        has_ended = is_running and any([share.ended for share in mine])
        if agree(mine) and not has_ended:
            reached = _lowest([share.reached for share in mine])
            return _Placed(merge_shares(mine, new, node.name), (), reached, mine[0].ended_ports)
        return _Placed(None, [replace(share, snapshot=merge_shares([share], new, node.name)) for share in mine])


def _reached(snapshot: Snapshot, passed: int | None) -> int | None:
    """Return the last watermark that an operator was given: it stores it itself, or had passed on as much."""
    times: list[Any] = [snapshot.values.get(name) for name, rule in snapshot.rules.items() if rule.kind == "passed"]
    return times[0] if times else passed


def _lowest(times: Sequence[int | None]) -> int | None:
    """Return the lowest watermark; None if there is none, or one is not known."""
    known = [time for time in times if time is not None]
    return min(known, default=None) if len(known) == len(times) else None


def _overlap(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))
