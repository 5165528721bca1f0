"""Evolve a stored job: carry out the changes between a checkpoint and a pipeline that are allowed. Pure.

The order: names of operators, dropped operators, then operator by operator its pieces and its wider columns, and rows
in flight. What is left is a job as if the pipeline had been so when the checkpoint was taken. A comparison with the
plan follows, which refuses what still differs. A new operator has no state: it starts empty.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dataflow.contracts.evolution import Adaptation, Changes, Columns, Evolved, OperatorDescription, PieceChange
from dataflow.errors import CheckpointMismatch, did_you_mean
from dataflow.planning.graph import Node
from dataflow.planning.physical_plan import Plan
from dataflow.planning.specs import Write
from dataflow.runtime.restore.evolved_rows import evolve_rows
from dataflow.runtime.restore.renamed_job import renamed_job, without_operators
from dataflow.runtime.restore.resolve_changes import Resolved, of_pieces, resolve
from dataflow.runtime.restore.stored_job import StoredJob
from dataflow.runtime.task.parts import TaskState, operator_of
from dataflow.state.widening import widens

__all__ = ["advice_for", "evolve", "refuse_rows_after_end"]

_Nodes = Mapping[str, Mapping[str, Any]]
"""Operators by name, as ``Plan.describe`` has them."""


def evolve(job: StoredJob, plan: Plan, changes: Changes) -> tuple[StoredJob, tuple[Evolved, ...]]:
    """Return the job with the changes that are allowed, and what they are.

    Raises: ConfigurationError for names that cannot be; CheckpointMismatch for a change that is not possible.
    """
    resolved = resolve(job.nodes, plan.logical, changes)
    _refuse_uncommitted(job, resolved.dropped)
    evolved = [Evolved(new, None, f"renamed from {old!r}") for old, new in resolved.operators.items()]
    evolved += [Evolved(name, None, "dropped") for name in resolved.dropped]
    renamed = renamed_job(job, resolved.operators)
    job = without_operators(renamed, resolved.dropped)
    before, now = ({str(node["name"]): node for node in nodes} for nodes in (renamed.nodes, plan.describe()))
    remaining = {str(node["name"]): node for node in job.nodes}
    other_records: dict[str, str] = {}
    new: list[str] = []
    for node in plan.logical:
        stored = remaining.get(node.name)
        if not node.stateful:
            continue
        if stored is None or not stored["stateful"]:
            _refuse_counted(node, remaining)
            new.append(node.name)
            evolved.append(Evolved(node.name, None, "new, starts empty"))
        elif stored["kind"] == now[node.name]["kind"]:
            pair = _described(stored, before, node), _described(now[node.name], now, node)
            adaptation = _adapted(node, *pair, resolved)
            job, found = _with_changes(job, node.name, adaptation.changes)
            adapted, passed_on = _with_passed_columns(adaptation.stored, pair[1], node)
            stored_columns, wider = _widened(adapted, pair[1], is_sink=isinstance(node.spec, Write))
            evolved += [*found, *passed_on, *wider]
            remaining[node.name] = {**stored, **stored_columns}
            done = zip(found, adaptation.changes, strict=True)
            if differing := [change for change, piece in done if piece.apply is not None] + wider:
                other_records[node.name] = "; ".join(map(str, differing))
            elif not adaptation.folds_alike:
                other_records[node.name] = "they are in another order"
    job = replace(job, nodes=[*remaining.values()], new=new)
    return (evolve_rows(job, renamed, plan, other_records) if evolved or other_records else job), tuple(evolved)


def _refuse_uncommitted(job: StoredJob, dropped: Collection[str]) -> None:
    """Raise CheckpointMismatch if a sink cannot be dropped, because only it can commit what it has staged."""
    for name in dropped:
        if job.transactions.get(name) and not job.is_committed:
            raise CheckpointMismatch(
                f"sink {name!r} is in allow_dropped=, but rows that it staged up to the checkpoint may not be "
                "committed, and only the sink can commit them: run the pipeline that has it, stop it with a savepoint, "
                "job.stop(savepoint=path), and restore that: a savepoint is complete when all sinks have committed"
            )


_COUNTED = re.compile(r"(.+?)(-\d+)?")


def _refuse_counted(node: Node, stored: _Nodes) -> None:
    """Raise CheckpointMismatch if a new operator and a stored one may have changed places, because names are counted.

    Of two operators of a kind without ``name=``, the name says which comes first. A new one before it would get its
    state.
    """
    if node.named:
        return
    label = _label(node.name)
    alike = [name for name, other in stored.items() if other["stateful"] and _label(name) == label]
    if alike:
        raise CheckpointMismatch(
            f"operator {node.name!r} is new and has an automatic name, which counts operators of its kind, so the "
            f"state of {alike[0]!r} may be that of another one: give the new operator a name="
        )


def _label(name: str) -> str:
    matched = _COUNTED.fullmatch(name)
    return name if matched is None else matched[1]


def _described(described: Mapping[str, Any], nodes: _Nodes, node: Node) -> OperatorDescription:
    """Return an operator of a checkpoint or a pipeline, whose operators are ``nodes``; it is ``node`` now."""
    tags = {edge.tag for edge in node.inputs}
    inputs: list[Columns | None] = [
        _columns(nodes[name]) if tags == {None} and name in nodes else None for name in described["inputs"]
    ]
    return OperatorDescription(
        node.name, described["kind"], described["keys"], _columns(described), inputs, described["detail"]
    )


def _columns(described: Mapping[str, Any]) -> Columns:
    return [(str(name), str(type_)) for name, type_ in described["schema"]]


def _adapted(node: Node, stored: OperatorDescription, now: OperatorDescription, resolved: Resolved) -> Adaptation:
    """Return the stored operator with the changes of its pieces, and these."""
    known_before, known_now = node.spec.pieces(stored), node.spec.pieces(now)
    allowed = of_pieces(node.name, resolved, known_before, known_now)
    return node.spec.evolve(stored, now, allowed)


def _with_changes(job: StoredJob, operator: str, changes: Sequence[PieceChange]) -> tuple[StoredJob, list[Evolved]]:
    """Return the job with changes of an operator's pieces, and what they are."""
    evolved = []
    states = dict(job.states)
    for change in changes:
        keys: int | None = None
        for task, state in states.items():
            operators = dict(state.operators)
            for name in [name for name in operators if operator_of(name) == operator]:
                if change.apply is None:
                    continue
                operators[name], count = change.apply(operators[name])
                keys = keys if count is None else (keys or 0) + count
            states[task] = replace(state, operators=operators)
        evolved.append(Evolved(operator, change.piece, change.what, keys))
    return replace(job, states=states), evolved


def _with_passed_columns(
    stored: OperatorDescription, now: OperatorDescription, node: Node
) -> tuple[OperatorDescription, list[Evolved]]:
    """Return the stored operator with the columns of now that it only passes on, from its input to its output.

    If its state has such columns, the trial restore refuses the checkpoint, because it knows the columns of the state.
    """
    before, after = dict(stored.schema), dict(now.schema)
    if isinstance(node.spec, Write) or len({*before} ^ {*after}) == 0:
        return stored, []
    changed = [name for name in {**before, **after} if (name in before) != (name in after)]
    if any([node.spec.origin_of(name) != name for name in changed]):
        return stored, []
    if [name for name in before if name in after] != [name for name in after if name in before]:
        return stored, []
    schema = [(name, before.get(name, type_)) for name, type_ in now.schema]
    evolved = [
        Evolved(now.name, name, "is passed on" if name in after else "is no longer passed on") for name in changed
    ]
    return replace(stored, schema=schema), evolved


def _widened(
    stored: OperatorDescription, now: OperatorDescription, *, is_sink: bool
) -> tuple[dict[str, Any], list[Evolved]]:
    """Return fields of a stored operator, with the types of now for columns that have become wider, and these columns.

    State and rows are cast where they are restored, because only the operator knows its columns.
    """
    keys = {name for names in now.keys for name in names}
    wider: dict[str, str] = {}
    types = dict(now.schema)
    for before, after in [(stored.schema, now.schema), *zip(stored.inputs, now.inputs, strict=False)]:
        if before is None or after is None:
            continue
        of_now = dict(after)
        for name, type_ in before:
            if name in of_now and widens(type_, of_now[name], key=name in keys):
                wider[name] = f"{type_} became {of_now[name]}"
    schema = [
        [name, types[name] if name in types and widens(type_, types[name], key=name in keys) else type_]
        for name, type_ in stored.schema
    ]
    fields = {"keys": stored.keys, "schema": schema, "detail": stored.detail}
    return fields, [Evolved(now.name, name, what) for name, what in wider.items()]


def advice_for(job: StoredJob, plan: Plan, changes: Changes) -> str:
    """Return how to restore a job nevertheless that still differs from the plan: a line, or several; "" if there is no
    way.
    """
    now = {node.name for node in plan.logical if node.stateful}
    gone = [str(node["name"]) for node in job.nodes if node["stateful"] and node["name"] not in now]
    lines = []
    if gone:
        lines.append(
            f"if {gone[0]!r} has another name now, give run(renamed={{{gone[0]!r}: ...}}); to continue without its "
            f"state, give run(allow_dropped={gone})"
        )
    lines += _differing_columns(job, plan)
    stored, described = ({str(n["name"]): n for n in nodes} for nodes in (job.nodes, plan.describe()))
    for node in plan.logical:
        if node.stateful and node.name in stored and stored[node.name]["kind"] == described[node.name]["kind"]:
            before = node.spec.pieces(_described(stored[node.name], stored, node))
            after = node.spec.pieces(_described(described[node.name], described, node))
            if lacking := [f"{node.name}.{piece}" for piece in before if piece not in after]:
                lines.append(f"to continue without it, give run(allow_dropped={lacking})")
    unknown = resolve(job.nodes, plan.logical, Changes({}, changes.allow_dropped)).unknown
    known = [str(node["name"]) for node in job.nodes]
    lines += [
        f"allow_dropped= has {name!r}, which neither the checkpoint nor the pipeline has{did_you_mean(name, known)}"
        for name in unknown
    ]
    return "".join([f"{line}\n" for line in lines])


def _differing_columns(job: StoredJob, plan: Plan) -> list[str]:
    """Return the columns of operators whose columns differ, in the checkpoint and now."""
    now = {str(node["name"]): node for node in plan.describe()}
    lines = []
    for node in job.nodes:
        other = now.get(str(node["name"]))
        if node["stateful"] and other is not None and _columns(node) != _columns(other):
            before, after = (", ".join([f"{name} {type_}" for name, type_ in _columns(each)]) for each in (node, other))
            lines.append(
                f"the columns of {node['name']!r} are {before} in the checkpoint, and {after} in this pipeline"
            )
    return lines


def refuse_rows_after_end(states: Mapping[str, TaskState], plan: Plan) -> None:
    """Raise CheckpointMismatch if an operator that has ended would get rows, because a new source leads to it.

    ``states`` has the state of each task of ``plan``.
    """
    running: set[str] = set()
    for task, before in plan.predecessors().items():  # in topological order
        sending = [other for other in before if other in running]
        if states[task].ended and sending:
            raise CheckpointMismatch(
                f"task {task!r} had read all its input and has finished, and task {sending[0]!r} would send it new "
                "rows: restore a checkpoint from before the end of the input, or give the new rows operators of their "
                "own"
            )
        if not states[task].ended and (sending or not before):
            running.add(task)
