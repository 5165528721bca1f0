"""The global state of a job at a checkpoint, in terms of the pipeline, read from the checkpoint's parts.

A checkpoint is a snapshot of Chandy and Lamport, taken along the edges of a pipeline: the state of every operator, and
the rows in flight. ``CheckpointState`` is a ``GlobalState``: its processes are the subtasks of operators, its channels
are the channels between tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.operator import Operator, Snapshot
from dataflow.contracts.source import Json
from dataflow.errors import did_you_mean
from dataflow.events.plan_shape import task_id
from dataflow.planning.operator_table import operator_class
from dataflow.protocol.events import Data
from dataflow.runtime.restore.find_checkpoint import states_of
from dataflow.runtime.task.library import Library
from dataflow.runtime.task.parts import ChannelState, Duplicates, TaskState
from dataflow.runtime.task.put_back import put_back_id
from dataflow.snapshots.processes import Channel, GlobalState

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.planning.graph import Node
    from dataflow.planning.physical_plan import Plan, Vertex
    from dataflow.store.base import CheckpointStore

__all__ = ["CheckpointState", "OperatorState", "state_at"]


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The state of one subtask of an operator: ``values`` and ``tables`` as its ``snapshot()`` returned them.

    Keyed aggregates have one table, ``rows``, with their keys and values in the columns that they emit. Sources have
    ``values["splits"]``: for every split its ``id``, the ``offset`` it was read to, ``done`` and the ``rows`` read.
    """

    values: Mapping[str, Json] = field(default_factory=dict)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def __str__(self) -> str:
        tables = [f"{name}: {table.num_rows} rows" for name, table in self.tables.items()]
        return ", ".join([*tables, *(f"{name}: {value}" for name, value in self.values.items())]) or "nothing"


@dataclass(frozen=True, slots=True)
class CheckpointState(GlobalState):
    """The state of a job at checkpoint ``snapshot``, which predicates of ``job.on_checkpoint`` get. Never changed.

    Attributes:
        processes: an ``OperatorState`` for each subtask, by names like ``"counts[1]"``.
        channels: the rows in flight on each channel, as batches in order; a channel begins and ends at the first
            operators of two tasks. If barriers cannot overtake rows, as in mode ``"aligned"``, nothing is in flight.
            Rows that an earlier restore put back, and that were not taken yet, have channels of their own, which begin
            at ``"(put back 1)"``, with the number of that restore's generation.
        mode: the mode in which the checkpoint was taken.
        duplicates: in mode ``"unaligned"``, the rows that operators had taken too early, and that a restore delivers to
            them again. The states include them, so the states together are not consistent. Empty in other modes.

    Rows in flight have the columns that operators downstream use. Rows that were folded before an aggregate are shown
    as their result, in the aggregate's columns.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> with flow.Pipeline("x") as p:
    ...     p.source(op.from_arrow(pa.table({"a": [1, 2]})), name="in").sink(op.collect(), name="out")
    >>> states = []
    >>> with p.start(checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1h")) as job:
    ...     answers = job.on_checkpoint(lambda state: states.append(state) is None)
    ...     result = job.wait()
    >>> states[0].snapshot, states[0].table("out").to_pydict(), sorted(states[0].processes)
    (1, {'a': [1, 2]}, ['in[0]', 'out[0]'])
    """

    mode: Mode = Mode.ALIGNED
    duplicates: tuple[Duplicates, ...] = ()
    empty: Mapping[str, pa.Schema] = field(default_factory=dict, repr=False)
    """The schema of rows in flight to each operator, used if there are none."""
    subtasks: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    """The names of each operator's subtasks among ``processes``."""
    inputs: Mapping[str, Sequence[Channel]] = field(default_factory=dict, repr=False)
    """The ``channels`` that end at each operator."""

    def table(self, operator: str, table: str | None = None) -> pa.Table:
        """Return the state of all subtasks of ``operator`` as one table: the one named ``table``, or the only one.

        Args:
            operator: the name of the operator.
            table: the name of a table of its state; None if it has one table.

        Raises: KeyError if there is no such operator or table; the message lists the existing ones.

        >>> import pyarrow as pa
        >>> parts = {f"sums[{i}]": OperatorState(tables={"rows": pa.table({"k": [i]})}) for i in range(2)}
        >>> schema = pa.schema({"k": pa.int64()})
        >>> state = CheckpointState(parts, {}, snapshot=1, empty={"sums": schema}, subtasks={"sums": list(parts)})
        >>> state.table("sums")["k"].to_pylist()
        [0, 1]
        """
        import pyarrow as pa

        self._check_known(operator)
        states = [self.processes[name] for name in self.subtasks.get(operator, ())]
        names = list(dict.fromkeys(name for state in states for name in state.tables))
        name = names[0] if table is None and len(names) == 1 else table
        if name not in names:
            raise KeyError(f"checkpoint {self.snapshot}: {operator!r} has no table {table!r}; it has {names}")
        tables = [state.tables[name] for state in states if name in state.tables]
        return pa.concat_tables(tables, promote_options="default")

    def rows_to(self, operator: str) -> pa.Table:
        """Return the rows in flight on all channels to ``operator``; a row is null in columns that its channel lacks.

        Args:
            operator: the name of the operator.

        Raises:
            KeyError: there is no such operator; the message lists the operators.
            pyarrow.ArrowTypeError: channels have the same column with different types.

        >>> import pyarrow as pa
        >>> channel, rows = Channel("in[0]", "out[0]"), pa.record_batch({"x": [1, 2]})
        >>> inputs = {"out": [channel]}
        >>> state = CheckpointState({}, {channel: (rows,)}, snapshot=1, empty={"out": rows.schema}, inputs=inputs)
        >>> state.rows_to("out")["x"].to_pylist()
        [1, 2]
        """
        import pyarrow as pa

        self._check_known(operator)
        batches = [
            pa.Table.from_batches([batch])
            for channel in self.inputs.get(operator, ())
            for batch in self.channels[channel]
        ]
        return pa.concat_tables(batches, promote_options="default") if batches else self.empty[operator].empty_table()

    def _check_known(self, operator: str) -> None:
        if operator not in self.empty:
            names = list(self.empty)
            raise KeyError(f"there is no operator {operator!r}{did_you_mean(operator, names)}; there are {names}")

    def __str__(self) -> str:
        lines = [f"checkpoint {self.snapshot}, {self.mode.value}"]
        lines += [f"  {name}: {state}" for name, state in self.processes.items()]
        for channel, rows in self.channels.items():
            if rows:
                lines.append(f"  {channel}: {sum(batch.num_rows for batch in rows)} rows in flight")
        return "\n".join(lines)


def state_at(
    store: CheckpointStore, checkpoint: int, plan: Plan, channels: Iterable[str], library: Library
) -> CheckpointState:
    """Return the state at ``checkpoint``, which a job of ``plan`` with these ``channels`` took.

    The store need not be open. Raises: CheckpointError if the checkpoint cannot be read.
    """
    manifest = store.manifest(checkpoint)
    parts = list(states_of(manifest, lambda part: store.read(checkpoint, part)).values())
    nodes = {node.name: node for node in plan.graph}
    ends = {ends.name: ends for link in plan.links for ends in plan.channel_ids(link).values()}
    by_name = {name: Channel(ends[name].source, ends[name].end) for name in channels}
    flying: dict[Channel, tuple[pa.RecordBatch, ...]] = dict.fromkeys(by_name.values(), ())
    inputs: dict[str, list[Channel]] = {}
    for name, channel in by_name.items():
        inputs.setdefault(ends[name].operator, []).append(channel)
    subtask_of = {task: (vertex, subtask) for vertex, subtask, task in plan.tasks()}
    for part in parts:
        _, subtask = subtask_of[part.task]
        for state in part.in_flight:
            if state.generation:
                put_back = put_back_id(state.operator, subtask, state.port or 0, state.generation)
                flown = Channel(put_back.source, put_back.end)
                inputs.setdefault(state.operator, []).append(flown)
            else:
                flown = by_name[state.channel]
            flying[flown] = _rows(plan, nodes[state.operator], state, library)
    states = [
        (node, name, state) for part in parts for node, name, state in _operators(plan, *subtask_of[part.task], part)
    ]
    subtasks: dict[str, list[str]] = {}
    for node, name, _ in states:
        subtasks.setdefault(node.name, []).append(name)
    return CheckpointState(
        processes={name: state for _, name, state in states},
        channels=flying,
        snapshot=checkpoint,
        mode=Mode(manifest.mode),
        duplicates=tuple(d for part in parts for d in part.duplicates),
        empty={
            node.name: plan.graph.declared_of(node.inputs[0]) if node.inputs else node.declared(None)
            for node in plan.graph
            if not node.spec.is_helper
        },
        subtasks=subtasks,
        inputs=inputs,
    )


def _operators(plan: Plan, vertex: Vertex, subtask: int, part: TaskState) -> Iterable[tuple[Node, str, OperatorState]]:
    nodes = {node.name: node for node in vertex.nodes}
    for name in part.names:
        node = nodes[name]
        if node.spec.is_helper:
            continue
        state = _together([_shown(plan, node, snapshot) for snapshot in part.snapshots(name)])
        if node is vertex.head and "splits" in part.inlet:
            splits: Any = part.inlet["splits"]
            entries = [{key: value for key, value in split.items() if key != "info"} for split in splits]
            state = OperatorState({**state.values, "splits": entries}, state.tables)
        yield node, task_id(name, subtask), state


def _together(states: Sequence[OperatorState]) -> OperatorState:
    """Return the state of one subtask, whose ranges of key groups may have states of their own."""
    if len(states) == 1:
        return states[0]
    import pyarrow as pa

    names = dict.fromkeys([name for state in states for name in state.tables])
    tables = {name: pa.concat_tables([s.tables[name] for s in states if name in s.tables]) for name in names}
    return OperatorState(states[0].values, tables)


def _shown(plan: Plan, node: Node, snapshot: Snapshot) -> OperatorState:
    operator: Any = operator_class(node.spec)
    show = getattr(operator, "show", Operator.show)  # a factory is not a class
    shown = show(node.spec, snapshot, [plan.graph.declared_of(edge) for edge in node.inputs], node.schema)
    return OperatorState(shown.values, {**shown.tables, **_rows_of(shown.logs)})


def _rows_of(logs: Mapping[str, Any]) -> dict[str, pa.Table]:
    """Return the rows that count in logs that the operator did not show as tables."""
    from dataflow.state.parts import resolved

    return {name: table for parts in logs.values() for name, table in resolved(parts).items()}


def _rows(plan: Plan, node: Node, state: ChannelState, library: Library) -> tuple[pa.RecordBatch, ...]:
    """Return the rows on one channel to ``node``, without the control elements between them."""
    taken = plan.graph.declared_of(node.inputs[0])
    batches: list[pa.RecordBatch] = []
    for element in state.elements:
        if isinstance(element, Data):
            batch: Any = element.rows
            batches += library.shown_rows(node.spec, batch, taken, node.schema).to_batches()
    return tuple(batches)
