"""The report on a restore, as attributes, Arrow tables, JSON and text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.evolution import Evolved
from dataflow.contracts.sink import Guarantee
from dataflow.contracts.source import Json
from dataflow.events.repeat_precision import Precision
from dataflow.protocol.events import Data, EndOfInput, Watermark
from dataflow.protocol.recovery import Skipped
from dataflow.runtime.task.parts import ChannelState, Duplicates

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.store.manifest import EarlierTarget

__all__ = ["RestoreReport"]


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The report on a restore: its checkpoint, the rows put back in flight, and the rows delivered a second time.

    A duplicate is a *delivery*: a row that an operator took before its snapshot and that is delivered there again. It
    is counted where it is delivered, so counts of different operators must not be added up: one row of a source counts
    at every operator that it reaches. ``precision`` is the precision of each operator's count: see `Precision`.

    Attributes:
        checkpoint: the id of the checkpoint that was restored.
        location: the store or directory it came from.
        mode: the mode it was taken with.
        finished: the job had read all its input.
        offsets: "source/split" to the offset that is read from next (None: from the beginning), without splits that
            had been read to their end.
        replayed: "source/split" to the rows that had been read after that offset and are read again, *at least*: the
            count ends at the last trace that later checkpoints left in this store, complete or not; rows read after it
            left no trace. It is empty for Spark's own readers, which do not count rows.
        duplicates: the rows delivered again, by operator, subtask and channel.
        in_flight: the rows and control elements between tasks, put back into their channels ahead of all input, or
            ahead of all channels of a task.
        precision: by operator, whether its duplicates are ``EXACT`` (the path from the sources to it is row-wise),
            an ``UPPER_BOUND`` (downstream of an aggregate or window) or ``MAY_BE_TOO_LOW`` (downstream of an
            operator that keeps rows until others come: a join, ``top``, a sliding window, a process function, a user's
            operator that is not ``stateless``; rows that it held are only counted there). Empty on Spark, where nothing
            is delivered twice.
        passed_over: newer checkpoints that could not be restored, with the reason.
        state_bytes: the size of the checkpoint's parts; None on Spark, which keeps the state of operators itself.
        not_read: the "source/split" that a source has now but did not have when the job started: they are not part of
            this job and are not read.
        repeated: rows may have come twice to the operators before the checkpoint was taken, because an earlier restore
            reported duplicates. It holds for every later checkpoint, in any mode.
        evolved: the changes of the pipeline since the checkpoint that the restore has carried out.
        rescaled: by operator, the number of subtasks that stored its state, and the number now, if they differ.
        earlier_targets: by sink, the targets that it has left, oldest first, each with the checkpoint up to which it
            holds the sink's rows.
        duration: microseconds from the start of the search for a checkpoint until the job was built and its sinks
            recovered; None if no job was built from it, and on Spark, which restores state while it runs.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> with flow.Pipeline("x") as p:
    ...     p.source(op.from_arrow(pa.table({"a": [1, 2]})), name="in").sink(op.collect(), name="out")
    >>> settings = flow.Checkpointing(flow.MemoryStore(), every="1h")
    >>> result = p.run(checkpoint=settings)  # takes a checkpoint at the end of the input
    >>> report = p.run(checkpoint=settings).restore_report
    >>> report.checkpoint, report.finished, report.duplicates, report.precision["out"]
    (1, True, (), <Precision.EXACT: 'exact'>)
    """

    checkpoint: int
    location: str
    mode: Mode
    finished: bool
    offsets: Mapping[str, Json] = field(default_factory=dict)
    replayed: Mapping[str, int] = field(default_factory=dict)
    duplicates: Sequence[Duplicates] = ()
    precision: Mapping[str, Precision] = field(default_factory=dict)
    in_flight: Sequence[ChannelState] = ()
    passed_over: Sequence[Skipped] = ()
    state_bytes: int | None = 0
    not_read: Sequence[str] = ()
    repeated: bool = False
    duration: int | None = None
    rescaled: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    evolved: Sequence[Evolved] = ()
    earlier_targets: Mapping[str, Sequence[EarlierTarget]] = field(default_factory=dict)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the engine's state: of the mode, or "at least once" if rows may have come twice before."""
        return Guarantee.AT_LEAST_ONCE if self.repeated else self.mode.guarantee

    @property
    def rows_replayed(self) -> int:
        """The least number of rows that the sources had read and read again: see ``replayed``."""
        return sum(self.replayed.values())

    @property
    def in_flight_rows(self) -> int:
        """Rows that were in flight between tasks and are re-injected into their channels."""
        return sum(state.rows for state in self.in_flight)

    @property
    def in_flight_bytes(self) -> int:
        """The Arrow memory of those rows."""
        return sum(state.bytes for state in self.in_flight)

    def duplicated(self, operator: str | None = None) -> int:
        """Return the number of rows delivered again to one operator.

        Args:
            operator: the name of the operator; None: the operator with the most.

        >>> import pyarrow as pa
        >>> taken = Duplicates("out", "out[0]", "in[0] -> out[0]", rows=2, table=pa.table({"x": [1, 2]}))
        >>> report = RestoreReport(1, "memory", Mode.UNALIGNED, finished=False, duplicates=[taken])
        >>> report.duplicated(), report.duplicated("out"), report.duplicated("in")
        (2, 2, 0)
        """
        counts = self.duplicated_by_operator
        return counts.get(operator, 0) if operator is not None else max(counts.values(), default=0)

    @property
    def duplicated_by_operator(self) -> Mapping[str, int]:
        """The number of rows delivered again to each operator."""
        counts: dict[str, int] = {}
        for d in self.duplicates:
            counts[d.operator] = counts.get(d.operator, 0) + d.rows
        return counts

    def rows(self, operator: str) -> pa.Table | None:
        """Return the rows delivered again to ``operator``: all with ``duplicates="rows"``, else a sample; None: none.

        If its inputs have different columns, a row is null in the columns that its own input lacks.

        Args:
            operator: the name of the operator.

        Raises: pyarrow.ArrowTypeError if inputs have the same column with different types; use ``duplicates``, which
            keeps channels apart.

        >>> import pyarrow as pa
        >>> taken = Duplicates("out", "out[0]", "in[0] -> out[0]", rows=2, table=pa.table({"x": [1, 2]}))
        >>> report = RestoreReport(1, "memory", Mode.UNALIGNED, finished=False, duplicates=[taken])
        >>> report.rows("out")["x"].to_pylist(), report.rows("in")
        ([1, 2], None)
        """
        return _together([d.table for d in self.duplicates if d.operator == operator])

    def in_flight_rows_of(self, operator: str) -> pa.Table | None:
        """Return the rows re-injected ahead of ``operator``, channel by channel and in order; None: none.

        If its inputs have different columns, a row is null in the columns that its own input lacks.

        Args:
            operator: the name of an operator that is the first of its task, because channels end only there.

        Raises: pyarrow.ArrowTypeError if inputs have the same column with different types; use ``in_flight``, which
            keeps channels apart.

        >>> import pyarrow as pa
        >>> flying = ChannelState("out", "out[0]", "in[0] -> out[0]", [Data(pa.record_batch({"x": [1, 2]}))])
        >>> report = RestoreReport(1, "memory", Mode.UNALIGNED_PERSISTED, finished=False, in_flight=[flying])
        >>> report.in_flight_rows_of("out")["x"].to_pylist()
        [1, 2]
        """
        import pyarrow as pa

        states = [state for state in self.in_flight if state.operator == operator]
        batches: list[Any] = [e.rows for state in states for e in state.elements if isinstance(e, Data)]
        return _together([pa.Table.from_batches([batch]) for batch in batches])

    def offsets_table(self) -> pa.Table:
        """Return a row per split still to be read: source, split, offset (as JSON; null: from the beginning), replayed
        (rows read again, at least; null: not counted).

        >>> offsets = {"in/part-0": 40, "in/part-1": None}
        >>> report = RestoreReport(1, "memory", Mode.ALIGNED, False, offsets=offsets, replayed={"in/part-0": 2})
        >>> for row in report.offsets_table().to_pylist():
        ...     print(row)
        {'source': 'in', 'split': 'part-0', 'offset': '40', 'replayed': 2}
        {'source': 'in', 'split': 'part-1', 'offset': None, 'replayed': None}
        """
        rows = []
        for key, offset in self.offsets.items():
            source, _, split = key.partition("/")
            text = None if offset is None else json.dumps(offset)
            rows.append({"source": source, "split": split, "offset": text, "replayed": self.replayed.get(key)})
        return _table(rows, source="string", split="string", offset="string", replayed="int64")

    def duplicates_table(self) -> pa.Table:
        """Return a row per operator, subtask and channel with duplicates: operator, task, channel, rows, kept (how many
        of the rows the checkpoint stores), precision (of the operator's count: see ``precision``; null: unknown).

        >>> import pyarrow as pa
        >>> taken = Duplicates("out", "out[0]", "in[0] -> out[0]", rows=2, table=pa.table({"x": [1, 2]}))
        >>> report = RestoreReport(1, "memory", Mode.UNALIGNED, finished=False, duplicates=[taken])
        >>> report.duplicates_table().select(["operator", "channel", "rows", "kept"]).to_pylist()
        [{'operator': 'out', 'channel': 'in[0] -> out[0]', 'rows': 2, 'kept': 2}]
        """
        rows = []
        for d in self.duplicates:
            precision = self.precision.get(d.operator)
            where = {"operator": d.operator, "task": d.task, "channel": d.channel}
            size = {"rows": d.rows, "kept": d.table.num_rows}
            rows.append({**where, **size, "precision": precision and precision.value})
        names = dict.fromkeys(("operator", "task", "channel"), "string")
        return _table(rows, **names, rows="int64", kept="int64", precision="string")

    @property
    def too_low(self) -> Sequence[str]:
        """The operators whose count of duplicates may be too low."""
        return [name for name, precision in self.precision.items() if precision is Precision.MAY_BE_TOO_LOW]

    def in_flight_table(self) -> pa.Table:
        """Return a row per channel with elements in flight: operator, task, channel, rows, bytes (of Arrow memory),
        batches, watermarks, ended (whether the end of input is among them), port and generation.

        Rows that an earlier restore put back, and that were not taken yet, have the number of the operator's input as
        ``port``, and a ``generation`` above 0. Those of a lower generation come first, and all of them come before the
        rows of channels, whose port is null.

        >>> import pyarrow as pa
        >>> flying = ChannelState("out", "out[0]", "in[0] -> out[0]", [Data(pa.record_batch({"x": [1, 2]}))])
        >>> report = RestoreReport(1, "memory", Mode.UNALIGNED_PERSISTED, finished=False, in_flight=[flying])
        >>> report.in_flight_table().select(["channel", "rows", "bytes", "ended"]).to_pylist()
        [{'channel': 'in[0] -> out[0]', 'rows': 2, 'bytes': 16, 'ended': False}]
        """
        rows = []
        for state in self.in_flight:
            kinds = [type(element) for element in state.elements]
            where = {"operator": state.operator, "task": state.task, "channel": state.channel}
            size = {"rows": state.rows, "bytes": state.bytes, "batches": kinds.count(Data)}
            control = {"watermarks": kinds.count(Watermark), "ended": EndOfInput in kinds}
            rows.append({**where, **size, **control, "port": state.port, "generation": state.generation})
        names = dict.fromkeys(("operator", "task", "channel"), "string")
        counts = dict.fromkeys(("rows", "bytes", "batches", "watermarks"), "int64")
        return _table(rows, **names, **counts, ended="bool", port="int64", generation="int64")

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values, without the rows; times in microseconds.

        >>> values = RestoreReport(1, "memory", Mode.ALIGNED, False, offsets={"in/part-0": 40}).to_json()
        >>> values["checkpoint"], values["mode"], values["guarantee"], values["offsets"]
        (1, 'aligned', 'exactly once', [{'source': 'in', 'split': 'part-0', 'offset': '40', 'replayed': None}])
        """
        return {
            "checkpoint": self.checkpoint,
            "location": self.location,
            "mode": self.mode.value,
            "guarantee": self.guarantee.value,
            "repeated": self.repeated,
            "finished": self.finished,
            "rows_replayed_at_least": self.rows_replayed,
            "in_flight_rows": self.in_flight_rows,
            "in_flight_bytes": self.in_flight_bytes,
            "duplicated": dict(self.duplicated_by_operator),
            "precision": {name: precision.value for name, precision in self.precision.items()},
            "state_bytes": self.state_bytes,
            "duration_us": self.duration,
            "passed_over": [
                {"checkpoint": skipped.checkpoint, "reason": skipped.reason} for skipped in self.passed_over
            ],
            "not_read": list(self.not_read),
            "rescaled": {name: list(pair) for name, pair in self.rescaled.items()},
            "evolved": [change.to_json() for change in self.evolved],
            "earlier_targets": [
                {"sink": sink, "target": left.target, "checkpoint": left.checkpoint}
                for sink, targets in self.earlier_targets.items()
                for left in targets
            ],
            "offsets": self.offsets_table().to_pylist(),
            "in_flight": self.in_flight_table().to_pylist(),
            "duplicates": self.duplicates_table().to_pylist(),
        }

    def __str__(self) -> str:
        from dataflow.runtime.restore.report_text import text

        return text(self)


def _table(rows: Sequence[Mapping[str, Any]], /, **types: str) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(
        list(rows), schema=pa.schema([(name, pa.type_for_alias(t)) for name, t in types.items()])
    )


def _together(tables: Sequence[pa.Table]) -> pa.Table | None:
    """Return one table with the columns of all; None if there are no tables."""
    import pyarrow as pa

    return pa.concat_tables(tables, promote_options="default") if tables else None
