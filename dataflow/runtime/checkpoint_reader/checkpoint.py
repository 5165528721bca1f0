"""Read a stored checkpoint: its facts, the state of operators, and the rows in flight, as Arrow tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import msgspec
import pyarrow as pa

from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.operator import Snapshot
from dataflow.contracts.sink import Guarantee
from dataflow.errors import (
    CheckpointDamaged,
    CheckpointDeleted,
    CheckpointError,
    ConfigurationError,
    NoCheckpoint,
    NotInCheckpoint,
    did_you_mean,
)
from dataflow.planning.duplicate_precision import precisions
from dataflow.planning.physical_plan import vertex_of
from dataflow.protocol.events import BarrierKind, Data
from dataflow.runtime.checkpoint_reader.channels import StoredChannels
from dataflow.runtime.checkpoint_reader.column_types import schema_of
from dataflow.runtime.checkpoint_reader.state import state_tables
from dataflow.runtime.restore.find_checkpoint import states_of
from dataflow.runtime.task.parts import ChannelState, TaskState
from dataflow.snapshots.processes import Channel
from dataflow.store.directory import DirectoryStore
from dataflow.store.folder import CheckpointFolder
from dataflow.store.manifest import Parent
from dataflow.store.status import CheckpointStatus, StoredObject, objects_in, status_of
from dataflow.untrusted import damaged_by, excerpt

__all__ = ["Checkpoint"]


class Checkpoint:
    """A checkpoint or savepoint in a directory, for reading. It needs no pipeline, and changes nothing.

    While a method reads, the checkpoint is pinned: a running job does not delete it. In a ``with`` block it stays
    pinned from the beginning to the end of the block.

    Args:
        path: the folder of the checkpoint, as for ``restore=``; or with ``checkpoint``, the directory of the job.
        checkpoint: the id of the checkpoint in the directory.

    Attributes:
        id: the number of the checkpoint.
        kind: "checkpoint", "savepoint" or "final".
        pipeline: the name of the pipeline.
        job_id: the id of the job that took it, as `LocalJob.id`: the same in all checkpoints of a directory.
        parent: where that job began, if it restored a checkpoint of another directory; None: at the beginning.
        mode: the mode in which it was taken.
        guarantee: the guarantee from source to sink.
        created: seconds since 1970.
        finished: the job had read all its input.
        repeated: rows may have come twice to the operators, because a restore before this checkpoint reported
            duplicates.
        operators: the names of the pipeline's operators.
        channels: the pairs of operators between which rows may be in flight.

    Raises:
        NoCheckpoint: there is no such checkpoint; the message lists those that there are.
        CheckpointDamaged: the manifest is damaged.
        StoreError: it cannot be read.

    >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
    >>> with flow.Pipeline("totals") as p:
    ...     rows = p.source(op.from_arrow(pa.table({"k": ["a", "b", "a"], "x": [1, 2, 3]})), name="in")
    ...     totals = rows.key_by("k").agg(flow.col("x").sum().alias("total"), emit="updates", name="totals")
    ...     totals.sink(op.collect(), name="out")
    >>> directory = tempfile.TemporaryDirectory()
    >>> result = p.run(checkpoint=flow.Checkpointing(directory.name))
    >>> checkpoint = flow.Checkpoint(directory.name, 1)
    >>> checkpoint.kind, str(checkpoint.status), checkpoint.operators, checkpoint.channels
    ('final', 'whole', ('in', 'totals', 'out'), (in -> totals,))
    >>> checkpoint.state("totals").select(["k", "col('x').sum()/sum"]).sort_by("k").to_pylist()
    [{'k': 'a', "col('x').sum()/sum": 4}, {'k': 'b', "col('x').sum()/sum": 2}]
    >>> directory.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], checkpoint: int | None = None) -> None:
        self._folder = _folder(path, checkpoint)
        with self._folder.pin():
            manifest = self._folder.manifest()
        if checkpoint is not None and manifest.checkpoint != checkpoint:
            raise CheckpointDamaged(
                f"{self._folder.path}: found the manifest of checkpoint {manifest.checkpoint}: rename the folder back"
            )
        self._manifest = manifest
        self._where = f"checkpoint {manifest.checkpoint} in {self._folder.path}"
        self._channels = StoredChannels(manifest)
        self._pins = ExitStack()
        with damaged_by(self._where):
            self.id: int = manifest.checkpoint
            self.kind: str = manifest.kind
            self.pipeline: str = manifest.pipeline
            self.job_id: str = manifest.job
            self.parent: Parent | None = manifest.parent
            self.mode: Mode = Mode(manifest.mode)
            self.guarantee: Guarantee = Guarantee(manifest.guarantee)
            self.created: float = manifest.created
            self.finished: bool = manifest.finished
            self.repeated: bool = manifest.repeated
            self.operators: tuple[str, ...] = tuple(node["name"] for node in manifest.nodes)
            self.channels: tuple[Channel, ...] = self._channels.channels

    def __enter__(self) -> Self:
        pin = self._pins.enter_context(self._folder.pin())
        if not (pin.exists and self._is_there()):
            self._pins.close()
            raise self._deleted()
        return self

    def __exit__(self, *_: object) -> None:
        self._pins.close()

    def __repr__(self) -> str:
        mode = self.mode.value
        if self.kind == BarrierKind.SAVEPOINT.value and self.mode is Mode.UNALIGNED:
            mode += f" ({self.mode.guarantee.value}: this mode cannot align a savepoint)"
        return f"Checkpoint({str(self._folder.path)!r}): {self.kind}, {mode}, {self.status}"

    @property
    def path(self) -> Path:
        """The folder of the checkpoint."""
        return self._folder.path

    @property
    def objects(self) -> tuple[StoredObject, ...]:
        """The objects of the checkpoint, older ones included, by their existence and size: none is read."""
        return objects_in(self._folder, self._manifest)

    @property
    def status(self) -> CheckpointStatus:
        """Whether it can be restored, judged by the existence and the size of its objects: none is read."""
        return status_of(self.objects)[0]

    def state(self, operator: str, table: str | None = None) -> pa.Table:
        """Return the state of all subtasks of an operator as one table.

        - Keyed state has a row for each key with a value, and the key columns first. Keyed aggregates have columns
          named after what they compute, such as ``col('x').sum()/sum``, with what they keep; null means no value.
          ``window`` is the number of a window, ``last_written`` the time from which a ``ttl`` counts; a row that has
          expired but is not removed yet is included.
        - Sources have a row for each split: ``subtask``, ``split``, ``offset`` (JSON; null: from the beginning),
          ``done`` and ``rows`` read.
        - Sinks of two phases have a row for each transaction to commit: its handle as JSON.
        - Other operators have the table of their snapshot; without tables, a row for each of its values: ``subtask``,
          ``name`` and ``value`` (JSON).

        Args:
            operator: the name of the operator.
            table: the name of a table, if there are several. "values" has the values of the snapshot, beside tables.

        Raises: NotInCheckpoint if there is no such operator or table, or the operator has no state; the message lists
            those that there are. CheckpointDamaged, CheckpointIncomplete, CheckpointDeleted, StoreError.

        >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> with tempfile.TemporaryDirectory() as path:
        ...     rows = numbers.collect(checkpoint=flow.Checkpointing(path))
        ...     checkpoint = flow.Checkpoint(path, 1)
        ...     checkpoint.state("numbers").to_pylist(), checkpoint.state("collected").to_pydict()
        ([{'subtask': 0, 'split': 'rows-0-2', 'offset': '2', 'done': True, 'rows': 2}], {'x': [1, 2]})
        """
        states = self._states_of(operator)
        with damaged_by(f"{self._where}: the state of operator {operator!r}"):
            tables = state_tables(operator, states, self._manifest.transactions.get(operator, ()))
        if not tables:
            stateful = [node["name"] for node in self._manifest.nodes if node.get("stateful")]
            raise NotInCheckpoint(
                f"operator {operator!r} of {self._where} has no state; operators with state: {', '.join(stateful)}"
            )
        if table is None:
            table = next(iter(tables))
            others = [name for name in tables if name != "values"]
            if len(others) > 1 and table not in ("keys", "splits"):
                raise NotInCheckpoint(
                    f"operator {operator!r} of {self._where} has several tables: give table=, one of {others}"
                )
        if table not in tables:
            raise NotInCheckpoint(
                f"operator {operator!r} of {self._where} has no table {table!r}; tables: {', '.join(tables)}"
            )
        return tables[table]

    def snapshots(self, operator: str) -> dict[str, Snapshot]:
        """Return what each subtask of an operator stored, as the operator finds it in ``context.restored``.

        The snapshot of an operator that declares its state (`Stateful`) has a `Rule` for each piece, which says whose
        the rows are and how the values of several subtasks become one. So a script can regroup the state without the
        operator.

        Args:
            operator: the name of the operator.

        Returns: the snapshots by the name of the task, such as "counts[0]", in order; empty ones of operators without
            state. After a restore at another parallelism an operator may have one for each range of key groups with a
            watermark of its own, as in "counts[0], key groups 0 to 42". Each log has parts, in order. Of each table,
            the last part that is a base has all rows, and those after it what changed;
            ``dataflow.state.parts.is_base`` says which are, and ``resolved`` what is left.

        Raises: NotInCheckpoint if there is no such operator; the message lists those that there are.
            CheckpointDamaged, CheckpointIncomplete, CheckpointDeleted, StoreError.

        >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": ["a", "b", "a"]})), name="in")
        >>> with tempfile.TemporaryDirectory() as path:
        ...     once = rows.unique("k", name="once").collect(checkpoint=flow.Checkpointing(path))
        ...     [snapshot] = flow.Checkpoint(path, 1).snapshots("once").values()
        >>> snapshot.rules["state"], snapshot.logs["state"][0]["keys"]["k"].to_pylist()
        (Rule(kind='log', keys=1), ['a', 'b'])
        """
        states = self._states_of(operator)
        found: dict[str, Snapshot] = {}
        for task, state in states.items():
            ranges = state.ranges.get(operator, ())
            names = [f"{task}, key groups {each.first} to {each.stop - 1}" for each in ranges] or [task]
            found |= zip(names, state.snapshots(operator) or [Snapshot()], strict=True)
        return found

    def channel(self, source: str, target: str) -> pa.Table:
        """Return the rows in flight from one operator to another, of all subtasks, in the order of each channel.

        Rows that an earlier restore put back, and that were not taken yet, come first; there may be such rows between
        two operators of one task, too. Rows have the columns that operators downstream use. Rows that were folded
        before an aggregate are returned as they are stored, with a record column. Without rows the table is empty, with
        the columns of ``source``.

        Args:
            source: the operator that sent the rows.
            target: the operator that had not taken them, the first one of its task unless the rows were put back.

        Raises: NotInCheckpoint if there is no such channel; the message lists those that there are.
            CheckpointDamaged, CheckpointIncomplete, CheckpointDeleted, StoreError.

        >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("x") as p:
        ...     numbers = p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").rebalance()
        ...     numbers.sink(op.collect(), name="out")
        >>> with tempfile.TemporaryDirectory() as path:
        ...     result = p.run(checkpoint=flow.Checkpointing(path))
        ...     flow.Checkpoint(path, 1).channel("in", "out").schema
        x: int64
        """
        has_edge = self._channels.has_edge
        states = self._states(self._channels.vertex(target)) if has_edge(source, target) else {}
        flying = [each for state in states.values() for each in state.in_flight if each.operator == target]
        put_back = [each for each in flying if each.generation and has_edge(source, target, each.port)]
        arrived: list[ChannelState] = []
        if not put_back or Channel(source, target) in self.channels:
            names = self._channels.names(source, target)
            arrived = [each for each in flying if not each.generation and (names is None or each.channel in names)]
        batches = [
            pa.Table.from_batches([element.rows])
            for each in (*put_back, *arrived)
            for element in each.elements
            if isinstance(element, Data)
        ]
        with damaged_by(f"{self._where}: the rows from {source!r} to {target!r}"):
            if batches:
                return pa.concat_tables(batches, promote_options="default")
            (node,) = [node for node in self._manifest.nodes if node["name"] == source]
            return schema_of(node["schema"], "its columns").empty_table()

    def duplicates(self) -> pa.Table:
        """Return the rows that a restore delivers again: a row per operator, with ``rows`` and ``precision``.

        The same row counts at each operator that it reaches, so do not add up operators. `Precision` explains how
        precise the counts are. Only mode "unaligned" has duplicates.

        Raises: CheckpointDamaged, CheckpointIncomplete, CheckpointDeleted, StoreError.

        >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> with tempfile.TemporaryDirectory() as path:
        ...     rows = numbers.collect(checkpoint=flow.Checkpointing(path))
        ...     flow.Checkpoint(path, 1).duplicates().to_pydict()
        {'operator': [], 'rows': [], 'precision': []}
        """
        counts: dict[str, int] = {}
        for state in self._states().values():
            for duplicates in state.duplicates:
                counts[duplicates.operator] = counts.get(duplicates.operator, 0) + duplicates.rows
        precise = precisions(self._manifest.nodes, self.mode)
        names = [precise[name].value if name in precise else None for name in counts]
        schema = pa.schema({"operator": pa.string(), "rows": pa.int64(), "precision": pa.string()})
        return pa.table([list(counts), list(counts.values()), names], schema=schema)

    def _states_of(self, operator: str) -> Mapping[str, TaskState]:
        """Return the states of the tasks that run an operator. Raises: NotInCheckpoint; the errors of ``_states``."""
        if operator not in self.operators:
            raise NotInCheckpoint(
                f"{self._where} has no operator {operator!r}{did_you_mean(operator, self.operators)}; operators: "
                f"{', '.join(self.operators)}"
            )
        return self._states(self._channels.vertex(operator))

    def _states(self, vertex: str | None = None) -> Mapping[str, TaskState]:
        """Return the state of each task, or of those of one vertex."""
        manifest = self._manifest
        if vertex is not None:
            parts = tuple(part for part in manifest.parts if vertex_of(part.task) == vertex)
            manifest = msgspec.structs.replace(manifest, parts=parts)
        with self._reading():
            self._folder.check_complete(manifest)
            return states_of(manifest, self._folder.read)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Pin the checkpoint while it is read. Raises: CheckpointDeleted if it was deleted nevertheless."""
        with self._folder.pin() as pin:
            if not self._is_there():
                raise self._deleted()
            try:
                yield
            except CheckpointError as error:
                if pin.exists:
                    raise
                raise self._deleted() from error

    def _is_there(self) -> bool:
        try:
            return self._folder.manifest() == self._manifest
        except NoCheckpoint:
            return False

    def _deleted(self) -> CheckpointDeleted:
        return CheckpointDeleted(
            f"{self._where} was deleted: a job replaced it with a newer one, or restored an older one; open another "
            "checkpoint, and read it in a with block, which keeps it"
        )


def _folder(path: str | os.PathLike[str], checkpoint: int | None) -> CheckpointFolder:
    """Return the folder of a checkpoint that exists. Raises: NoCheckpoint, ConfigurationError."""
    folder = CheckpointFolder(Path(path))
    store = DirectoryStore(path)
    if checkpoint is None:
        if not folder.exists:
            ids = store.checkpoints() if Path(path).is_dir() else []
            advice = "expected a folder with a manifest.json, such as ckpt/chk-00000007"
            if ids:
                advice = f"it holds checkpoints {ids}: name one, as in Checkpoint({os.fspath(path)!r}, {ids[-1]})"
            raise NoCheckpoint(f"{Path(path).absolute()} is not the folder of a checkpoint; {advice}")
        return folder
    if not isinstance(checkpoint, int) or isinstance(checkpoint, bool) or checkpoint < 1:
        raise ConfigurationError(f"Checkpoint(path, id): expected a checkpoint id from 1, got {excerpt(checkpoint)}")
    if checkpoint not in store.checkpoints():
        raise NoCheckpoint(f"there is no checkpoint {checkpoint} in {path}; there are {store.checkpoints()}")
    return store.folder(checkpoint)
