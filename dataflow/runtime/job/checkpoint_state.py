"""What a checkpoint says about the whole job, in the words of the pipeline: the global state that was recorded.

A checkpoint is a snapshot of Chandy and Lamport, taken along the edges of a pipeline: the state of every operator, and
the rows that were on their way. This reads one from its parts. ``CheckpointState`` is a ``GlobalState``: its processes
are the subtasks of operators, its channels those between tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.operator import Operator, Snapshot
from dataflow.contracts.source import Json
from dataflow.errors import did_you_mean
from dataflow.planning.operator_table import operator_class
from dataflow.planning.physical_plan import task_id
from dataflow.protocol.events import Data
from dataflow.runtime.task.library import Library
from dataflow.runtime.task.parts import ChannelState, Duplicates, TaskState
from dataflow.snapshots.processes import Channel, GlobalState

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.planning.graph import Node
    from dataflow.planning.physical_plan import Plan, Vertex
    from dataflow.store.base import CheckpointStore

__all__ = ["CheckpointState", "OperatorState", "state_at"]


@dataclass(frozen=True, slots=True)
class OperatorState:
    """One subtask of an operator: ``values`` and ``tables`` as its ``snapshot()`` gave them.

    Keyed aggregates have one table, ``rows``, with their keys and values in the columns that they emit. Sources have
    ``values["splits"]``: of every split its ``id``, the ``offset`` it was read to, ``done`` and the ``rows`` read.
    """

    values: Mapping[str, Json] = field(default_factory=dict)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def __str__(self) -> str:
        tables = [f"{name}: {table.num_rows} rows" for name, table in self.tables.items()]
        return ", ".join([*tables, *(f"{name}: {value}" for name, value in self.values.items())]) or "nothing"


@dataclass(frozen=True, slots=True)
class CheckpointState(GlobalState):
    """The job at checkpoint ``snapshot``: what a predicate of ``job.on_checkpoint`` gets. Arrow data, never changed.

    Attributes:
        processes: an ``OperatorState`` for each subtask, by names like ``"counts[1]"``.
        channels: the rows in flight on each channel, as batches in order; a channel begins and ends at the first
            operators of two tasks. Where a barrier cannot be overtaken, as in mode ``"aligned"``, nothing is in flight.
        mode: how the checkpoint was taken.
        duplicates: in mode ``"unaligned"``, the rows that operators had taken too early, and that a restore delivers to
            them again; the states count them, so that together they are the state of no moment. Else none.

    Rows in flight have the columns that somebody behind them uses. Those folded on their way to an aggregate are what
    they come to, in the aggregate's columns.
    """

    mode: Mode = Mode.ALIGNED
    duplicates: tuple[Duplicates, ...] = ()
    empty: Mapping[str, pa.Schema] = field(default_factory=dict, repr=False)
    """By operator, the columns of its rows in flight when there are none."""
    subtasks: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    """By operator, the names of its subtasks among ``processes``."""
    inputs: Mapping[str, Sequence[Channel]] = field(default_factory=dict, repr=False)
    """By operator, the ``channels`` that end at it."""

    def table(self, operator: str, table: str | None = None) -> pa.Table:
        """The state of all subtasks of ``operator`` as one table: the one called ``table``, or the only one.

        Raises: KeyError naming what there is.
        """
        import pyarrow as pa

        self._known(operator)
        states = [self.processes[name] for name in self.subtasks.get(operator, ())]
        names = list(dict.fromkeys(name for state in states for name in state.tables))
        wanted = names[0] if table is None and len(names) == 1 else table
        if wanted not in names:
            raise KeyError(f"checkpoint {self.snapshot}: {operator!r} has no table {table!r}; it has {names}")
        found = [state.tables[wanted] for state in states if wanted in state.tables]
        return pa.concat_tables(found, promote_options="default")

    def rows_to(self, operator: str) -> pa.Table:
        """The rows in flight on all channels to ``operator``; columns that only some of them have are null elsewhere.

        Raises: KeyError where there is no such operator.
        """
        import pyarrow as pa

        self._known(operator)
        batches = [
            pa.Table.from_batches([batch])
            for channel in self.inputs.get(operator, ())
            for batch in self.channels[channel]
        ]
        return pa.concat_tables(batches, promote_options="default") if batches else self.empty[operator].empty_table()

    def _known(self, operator: str) -> None:
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
    """The state at ``checkpoint``, which a job of ``plan`` with these ``channels`` took.

    Raises: CheckpointError where it cannot be read; nothing needs to be open.
    """
    manifest = store.manifest(checkpoint)
    parts = [TaskState.decode(store.read(checkpoint, part)) for part in manifest.parts]
    nodes = {node.name: node for node in plan.graph}
    ends = {ends.name: ends for link in plan.links for ends in plan.channel_ids(link).values()}
    known = {name: Channel(ends[name].source, ends[name].end) for name in channels}
    flying: dict[Channel, tuple[pa.RecordBatch, ...]] = dict.fromkeys(known.values(), ())
    inputs: dict[str, list[Channel]] = {}
    for name, channel in known.items():
        inputs.setdefault(ends[name].operator, []).append(channel)
    for part in parts:
        for state in part.in_flight:
            flying[known[state.channel]] = _rows(plan, nodes[state.operator], state, library)
    places = {task: (vertex, subtask) for vertex, subtask, task in plan.tasks()}
    states = [(node, name, state) for part in parts for node, name, state in _operators(plan, *places[part.task], part)]
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
            node.name: plan.graph.schema_of(node.inputs[0]) if node.inputs else node.schema
            for node in plan.graph
            if not node.spec.is_helper
        },
        subtasks=subtasks,
        inputs=inputs,
    )


def _operators(plan: Plan, vertex: Vertex, subtask: int, part: TaskState) -> Iterable[tuple[Node, str, OperatorState]]:
    nodes = {node.name: node for node in vertex.nodes}
    for name, snapshot in part.operators.items():
        node = nodes[name]
        if node.spec.is_helper:
            continue
        state = _shown(plan, node, snapshot)
        if node is vertex.head and "splits" in part.inlet:
            splits: Any = part.inlet["splits"]
            places = [{key: value for key, value in split.items() if key != "info"} for split in splits]
            state = OperatorState({**state.values, "splits": places}, state.tables)
        yield node, task_id(name, subtask), state


def _shown(plan: Plan, node: Node, snapshot: Snapshot) -> OperatorState:
    operator: Any = operator_class(node.spec)
    show = getattr(operator, "show", Operator.show)  # a factory is no class
    shown = show(node.spec, snapshot, [plan.graph.schema_of(edge) for edge in node.inputs], node.schema)
    return OperatorState(shown.values, shown.tables)


def _rows(plan: Plan, node: Node, state: ChannelState, library: Library) -> tuple[pa.RecordBatch, ...]:
    """The rows on one channel to ``node``; the control elements between them are no messages of the user's."""
    taken = plan.graph.schema_of(node.inputs[0])
    found: list[pa.RecordBatch] = []
    for element in state.elements:
        if isinstance(element, Data):
            batch: Any = element.rows
            found += library.shown_rows(node.spec, batch, taken, node.schema).to_batches()
    return tuple(found)
