"""The part of a checkpoint that one task writes, and its form on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from dataflow.contracts.operator import Rule, Snapshot
from dataflow.contracts.sink import Handle
from dataflow.contracts.source import Json
from dataflow.errors import CheckpointDamaged
from dataflow.planning.graph import has_dictionaries
from dataflow.protocol.events import Data, Element, EndOfInput, Idle, Watermark
from dataflow.protocol.red_log import Omitted
from dataflow.runtime.task.log_parts import LogEntry, entries_of, log_pieces, logs_in, read_logs, tables_of
from dataflow.runtime.task.state_shares import Share
from dataflow.store.manifest import PartHandle
from dataflow.untrusted import Count, Time, excerpt, parsed

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.store.files import Buffer

__all__ = [
    "SAMPLE_ROWS",
    "ChannelState",
    "Duplicates",
    "Standing",
    "StoredRange",
    "TaskState",
    "joined",
    "operator_of",
    "packed",
    "range_name",
    "table_of",
    "unpacked",
    "with_dictionaries",
]

SAMPLE_ROWS = 5
"""Rows kept per operator and channel with ``duplicates="sample"``."""


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Rows that ``operator`` took before its snapshot and that a restore will deliver to it again.

    ``rows`` is their number; ``table`` holds them, or a sample of them. ``channel`` is where they came from.
    """

    operator: str
    task: str
    channel: str
    rows: int
    table: pa.Table

    @staticmethod
    def of(operator: str, task: str, channel: str, rows: Sequence[Data]) -> Duplicates:
        """Return the duplicates of one channel; ``Omitted`` entries only count their rows."""
        import pyarrow as pa

        batches = [data.rows for data in rows if not isinstance(data.rows, Omitted)]
        table = pa.Table.from_batches(batches) if batches else pa.table({})
        return Duplicates(operator, task, channel, sum(len(data.rows) for data in rows), table)


@dataclass(frozen=True, slots=True)
class ChannelState:
    """The elements in flight on ``channel``, in order, when ``task`` took its snapshot: rows, and control between them.

    ``operator`` is the head of the task: the rows are re-injected to it. ``schema`` is the channel's, as JSON.
    ``encoded`` are its columns of text that the rows hold as dictionaries; they are stored as text.

    ``generation`` is above 0 for rows that a restore put back and that were not consumed yet: they belong to no channel
    but to input ``port`` of the operator, and come before the rows of higher generations and of all channels.
    """

    operator: str
    task: str
    channel: str
    elements: Sequence[Element]
    schema: Json = None
    encoded: Sequence[str] = ()
    port: int | None = None
    generation: int = 0

    @property
    def rows(self) -> int:
        """The number of rows in flight."""
        return sum(len(element.rows) for element in self.elements if isinstance(element, Data))

    @property
    def bytes(self) -> int:
        """The Arrow memory of these rows."""
        return sum(element.rows.nbytes for element in self.elements if isinstance(element, Data))  # type: ignore[attr-defined]


class StoredRange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A range of key groups of an operator: the first group, the one after the last, and where the range had got to.

    ``reached`` is the last watermark that it was given. ``ended``: its input had ended, and ``finish`` had run.
    """

    first: Count
    stop: Count
    reached: Time | None = None
    ended: bool = False
    ended_ports: tuple[Count, ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the operators of a task had got to that is made of several old ones, by name; it is not stored.

    ``reached`` is the last watermark that an operator was given, and ``ended_ports`` are the ports whose end it was
    told of. ``shares`` has the ranges of an operator that runs as one instance for each.
    """

    reached: Mapping[str, int] = field(default_factory=dict)
    ended_ports: Mapping[str, frozenset[int]] = field(default_factory=dict)
    shares: Mapping[str, Sequence[Share]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskState:
    """The state of one task at a barrier.

    ``ended``: its input had ended and ``finish`` had run. ``inlet`` is the state of its input, under the name that
    stored parts use. ``passed`` has the last watermark that each operator passed on, and ``timed`` the operators that
    make time and have had a row or made some.
    ``log_before`` are the older objects on which the frozen logs of ``operators`` build; none: the logs are whole.
    ``ranges`` has the ranges of key groups of the operators that run as one instance for each; the state of range i is
    in ``operators`` under ``range_name``. ``moved``: the task is made of several old ones, so its time starts again.
    """

    task: str
    ended: bool = False
    inlet: Mapping[str, Json] = field(default_factory=dict)
    operators: Mapping[str, Snapshot] = field(default_factory=dict)
    duplicates: Sequence[Duplicates] = ()
    in_flight: Sequence[ChannelState] = ()
    transactions: Mapping[str, tuple[Handle, ...]] = field(default_factory=dict)
    passed: Mapping[str, int] = field(default_factory=dict)
    timed: Sequence[str] = ()
    log_before: Sequence[PartHandle] = ()
    ranges: Mapping[str, Sequence[StoredRange]] = field(default_factory=dict)
    moved: Standing | None = None

    def snapshots(self, operator: str) -> Sequence[Snapshot]:
        """Return the snapshots of an operator: one, or one for each range of its key groups; none: no state."""
        names = [range_name(operator, number) for number in range(len(self.ranges.get(operator, ())))] or [operator]
        return [self.operators[name] for name in names if name in self.operators]

    @property
    def names(self) -> Sequence[str]:
        """The operators of the task."""
        ranges = {range_name(name, number) for name, ranges in self.ranges.items() for number in range(len(ranges))}
        return [*[name for name in self.operators if name not in ranges], *self.ranges]

    def encode(self, keep: Literal["sample", "rows"]) -> Any:
        """Return the whole state in one object, logs included. Call it once: it consumes the readers among the tables.

        Only for a state that builds on no older objects.
        """
        from dataflow.state.codec import encode

        assert not self.log_before, f"the logs of {self.task} build on {self.log_before}"
        values, tables = self._content(keep)
        values["logs"] = entries_of(self.operators, stored=True)
        return encode(values, {**tables, **tables_of(self.operators)})

    def pieces(self, keep: Literal["sample", "rows"]) -> Iterator[memoryview]:
        """Return the pieces of the object with the state, which only names the logs. Call it once, like ``encode``."""
        from dataflow.state.codec import stream

        return stream(*self._content(keep))

    def log_pieces(self, checkpoint: int) -> Iterator[memoryview] | None:
        """Return the pieces of the object with the rows of the logs; None: there are no logs, or no new rows."""
        if not any([snapshot.logs for snapshot in self.operators.values()]):
            return None
        after = self.log_before[-1].checkpoint if self.log_before else 0
        return log_pieces(self.task, checkpoint, after, self.operators)

    def _content(self, keep: Literal["sample", "rows"]) -> tuple[dict[str, Json], dict[str, Any]]:
        """Return the values and tables of the object with the state."""
        import pyarrow as pa

        tables: dict[str, pa.Table | pa.RecordBatchReader] = {}
        operators: dict[str, Json] = {}
        for name, snapshot in self.operators.items():
            rules = msgspec.to_builtins(snapshot.rules)
            operators[name] = {"values": snapshot.values, "tables": list(snapshot.tables), "rules": rules}
            tables.update({f"{name}/{key}": table for key, table in snapshot.tables.items()})
        duplicates: list[Json] = []
        for i, d in enumerate(self.duplicates):
            duplicates.append({"operator": d.operator, "channel": d.channel, "rows": d.rows})
            tables[f"/duplicates/{i}"] = d.table if keep == "rows" else d.table.slice(0, SAMPLE_ROWS)
        in_flight: list[Json] = []
        for i, channel in enumerate(self.in_flight):
            elements, kinds = packed(with_text(channel.elements, channel.encoded))
            put_back = {"port": channel.port, "generation": channel.generation} if channel.generation else {}
            in_flight.append(
                {
                    "operator": channel.operator,
                    "channel": channel.channel,
                    "schema": channel.schema,
                    "elements": elements,
                    **put_back,
                }
            )
            for kind, batches in enumerate(kinds):
                tables[table_of(f"/in-flight/{i}", kind)] = joined(pa.Table.from_batches(batches))
        values: dict[str, Json] = {
            "task": self.task,
            "ended": self.ended,
            "inlet": self.inlet,
            "operators": operators,
            "passed": dict(self.passed),
            "timed": list(self.timed),
            "duplicates": duplicates,
            "in_flight": in_flight,
            "logs": entries_of(self.operators, stored=False),
        }
        if self.ranges:
            values["ranges"] = msgspec.to_builtins(self.ranges)
        return values, tables

    @staticmethod
    def decode(data: Any, logs: Iterable[tuple[int, Buffer]] | None = None) -> TaskState:
        """Return the state that ``data`` encodes; transactions are in the manifest, not in the part.

        Args:
            data: the bytes of the state.
            logs: the objects with the logs, base first: the checkpoint that wrote each, and its bytes. None: leave out
                logs that are not in ``data`` itself.

        Raises: CheckpointDamaged.
        """
        from dataflow.state.codec import decode

        values, tables = decode(data)
        header: _Header = parsed(_Header, values, "the part's header")
        found = _logs(header, tables, logs)
        operators = {
            name: Snapshot(
                entry.values,
                {key: _table(tables, f"{name}/{key}") for key in entry.tables},
                {log: parts for (operator, log), parts in found.items() if operator == name},
                entry.rules,
            )
            for name, entry in header.operators.items()
        }
        duplicates = [
            Duplicates(d.operator, header.task, d.channel, d.rows, _table(tables, f"/duplicates/{i}"))
            for i, d in enumerate(header.duplicates)
        ]
        in_flight = [
            ChannelState(
                c.operator,
                header.task,
                c.channel,
                unpacked(c.elements, tables, f"/in-flight/{i}"),
                c.schema,
                port=c.port,
                generation=c.generation,
            )
            for i, c in enumerate(header.in_flight)
        ]
        _check_put_back(header, in_flight)
        _check_inlet(header)
        return TaskState(
            header.task,
            header.ended,
            header.inlet,
            operators,
            duplicates,
            in_flight,
            passed=header.passed,
            timed=header.timed,
            ranges=header.ranges,
        )


class _Operator(msgspec.Struct):
    values: dict[str, Any]
    tables: list[str]
    rules: dict[str, Rule]


class _Duplicates(msgspec.Struct):
    operator: str
    channel: str
    rows: Count


class _InFlight(msgspec.Struct):
    operator: str
    channel: str
    schema: Any
    elements: list[list[Any]]
    port: Count | None = None
    generation: Count = 0


class _Header(msgspec.Struct):
    """The values of a part, as ``TaskState.encode`` writes them."""

    task: str
    ended: bool
    inlet: dict[str, Any]
    operators: dict[str, _Operator]
    duplicates: list[_Duplicates]
    in_flight: list[_InFlight]
    passed: dict[str, Time]
    timed: list[str]
    logs: list[LogEntry]
    ranges: dict[str, list[StoredRange]] = {}


class _Split(msgspec.Struct):
    """An entry of the splits of a source, as ``SplitState.to_json`` writes it."""

    id: str
    info: dict[str, Any]
    offset: Any
    done: bool
    rows: Count


class _Gate(msgspec.Struct):
    """The state of the input gate of a task, as ``GateTime.snapshot`` writes it."""

    watermarks: list[Time | None]
    ended: list[Count]
    ended_ports: list[Count]


def _check_inlet(header: _Header) -> None:
    """Check the assumptions that every reader of an input's state makes. Raises: CheckpointDamaged."""
    what = f"the input of task {excerpt(header.task)}"
    splits = parsed(list[_Split], header.inlet.get("splits", []), what)
    if "watermarks" in header.inlet:
        parsed(_Gate, header.inlet, what)
    if len({split.id for split in splits}) < len(splits):
        raise CheckpointDamaged(f"{what} lists a split twice")
    if header.ended and not all([split.done for split in splits]):
        raise CheckpointDamaged(f"{what}: the task had ended, but some of its splits had not")
    for name, ranges in header.ranges.items():
        lacking = [i for i in range(len(ranges)) if range_name(name, i) not in header.operators]
        in_order = [each.first < each.stop for each in ranges] + [a.stop <= b.first for a, b in pairwise(ranges)]
        if lacking or not ranges or not all(in_order):
            raise CheckpointDamaged(
                f"operator {excerpt(name)} has the key groups {excerpt(ranges)}, not all with state"
            )


def _check_put_back(header: _Header, in_flight: Sequence[ChannelState]) -> None:
    """Check the assumptions that tasks make about put-back rows. Raises: CheckpointDamaged."""
    for state in in_flight:
        if not state.generation:
            continue
        what = f"the put-back rows {excerpt(state.channel)} of task {excerpt(header.task)}"
        if header.ended:
            raise CheckpointDamaged(f"{what} are left, but the task had ended")
        if state.port is None:
            raise CheckpointDamaged(f"{what} have no input port")
        if others := [element for element in state.elements if not isinstance(element, Data)]:
            raise CheckpointDamaged(f"{what} hold {excerpt(others[0])}, expected only rows")


def _logs(
    header: _Header, tables: Mapping[str, pa.Table], objects: Iterable[tuple[int, Buffer]] | None
) -> Mapping[tuple[str, str], Sequence[Mapping[str, pa.Table]]]:
    """Return the parts of each log, from ``objects``, or from the state if it has them itself.

    Raises: CheckpointDamaged.
    """
    named = [(entry.operator, entry.log) for entry in header.logs]
    if header.logs and all([entry.tables is not None for entry in header.logs]):
        return {log: [part] for log, part in logs_in(header.logs, tables).items()}
    if objects is None:
        return {}
    found = read_logs(header.task, objects)
    if found.keys() != set(named) or any([operator not in header.operators for operator, _ in named]):
        raise CheckpointDamaged(
            f"task {excerpt(header.task)} has the logs {excerpt(sorted(named))}, but its objects hold those of "
            f"{excerpt(sorted(found))}"
        )
    return found


def _table(tables: Mapping[str, pa.Table], name: str) -> pa.Table:
    if name not in tables:
        raise CheckpointDamaged(f"the part has no table {excerpt(name)}")
    return tables[name]


def range_name(operator: str, number: int) -> str:
    """Return the name under which a checkpoint stores the state of one range of an operator's key groups.

    No operator has such a name, because names hold no brackets.

    >>> range_name("counts", 1)
    'counts[1]'
    """
    return f"{operator}[{number}]"


def operator_of(stored: str) -> str:
    """Return the operator whose state, or that of one range, a checkpoint stores under a name.

    >>> operator_of("counts[1]"), operator_of("counts"), operator_of("counts/combine")
    ('counts', 'counts', 'counts/combine')
    """
    return stored.partition("[")[0]


def table_of(name: str, kind: int) -> str:
    """Return the name of the table that holds the rows of one schema (``kind``) of channel state ``name``."""
    return name if kind == 0 else f"{name}/{kind}"


def joined(table: pa.Table) -> pa.Table:
    """Return ``table`` in one chunk, because each chunk costs an IPC message.

    A table with dictionaries is returned as it is: its dictionaries would have to be united.
    """
    return table if has_dictionaries(table.schema) else table.combine_chunks()


def with_text(elements: Sequence[Element], columns: Sequence[str]) -> Sequence[Element]:
    """Return channel state with the text of the ``columns`` that are dictionaries."""
    from dataflow.state.dictionaries import decoded

    return [_converted(element, columns, decoded) for element in elements] if columns else elements


def with_dictionaries(elements: Sequence[Element], columns: Sequence[str]) -> Sequence[Element]:
    """Return channel state with dictionaries for the text of ``columns``."""
    from dataflow.state.dictionaries import encoded

    return [_converted(element, columns, encoded) for element in elements] if columns else elements


def _converted(element: Element, columns: Sequence[str], convert: Callable[[pa.Array], pa.Array]) -> Element:
    import pyarrow as pa

    if not isinstance(element, Data):
        return element
    batch: Any = element.rows
    named = zip(batch.schema.names, batch.columns, strict=True)
    arrays = [convert(array) if name in columns else array for name, array in named]
    return Data(pa.RecordBatch.from_arrays(arrays, batch.schema.names), element.epoch)


def packed(elements: Sequence[Element]) -> tuple[list[Json], list[list[pa.RecordBatch]]]:
    """Return channel state as JSON, which only counts rows, and the batches of each schema, one table per schema.

    There are up to two schemas: rows in flight may be plain, or folded into records.
    """
    entries: list[Json] = []
    numbers: dict[pa.Schema, int] = {}  # schemas that differ in metadata are equal, but have other hashes
    kinds: list[list[pa.RecordBatch]] = []
    for element in elements:
        match element:
            case Data(rows=rows):
                batch: pa.RecordBatch = rows
                kind = numbers.setdefault(batch.schema, len(kinds))
                if kind == len(kinds):
                    kinds.append([])
                kinds[kind].append(batch)
                entries.append(["rows", len(rows)] if kind == 0 else ["rows", len(rows), kind])
            case Watermark(time=time):
                entries.append(["watermark", time])
            case Idle():
                entries.append(["idle"])
            case EndOfInput():
                entries.append(["end"])
            case _:
                raise AssertionError(f"{element} cannot be channel state")
    return entries, kinds


def unpacked(elements: Sequence[Any], tables: Mapping[str, pa.Table], name: str) -> tuple[Element, ...]:
    """Return the elements that ``packed`` encoded. Rows get epoch 0, because they precede the restored job."""
    restored: list[Element] = []
    starts: dict[int, int] = {}
    what = f"channel state {name}"
    for element in elements:
        match parsed(list[Any], element, what):
            case ["rows", length, *kinds] if len(kinds) <= 1:
                kind = parsed(Count, kinds[0] if kinds else 0, what)
                table, start = _table(tables, table_of(name, kind)), starts.get(kind, 0)
                starts[kind] = start + parsed(Count, length, what)
                if starts[kind] > table.num_rows:
                    raise CheckpointDamaged(
                        f"{what} counts at least {starts[kind]} rows, but its table has {table.num_rows}"
                    )
                restored += [Data(batch) for batch in table.slice(start, length).combine_chunks().to_batches()]
            case ["watermark", time]:
                restored.append(Watermark(parsed(Time, time, what)))
            case ["idle"]:
                restored.append(Idle())
            case ["end"]:
                restored.append(EndOfInput())
            case [entry, *_]:
                raise CheckpointDamaged(f"{what} holds {excerpt(entry)}, which is unknown here")
            case _:
                raise CheckpointDamaged(f"{what} holds {excerpt(element)}, which is unknown here")
    if any([isinstance(element, EndOfInput) for element in restored[:-1]]):
        raise CheckpointDamaged(f"{what} has elements after the end of the input")
    return tuple(restored)
