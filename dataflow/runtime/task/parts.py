"""What one task contributes to a checkpoint, and its form on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from dataflow.contracts.operator import Snapshot
from dataflow.contracts.sink import Handle
from dataflow.contracts.source import Json
from dataflow.errors import CheckpointDamaged
from dataflow.protocol.events import Data, Element, EndOfInput, Idle, Watermark
from dataflow.protocol.red_log import Omitted
from dataflow.untrusted import Count, Time, excerpt, parsed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SAMPLE_ROWS", "ChannelState", "Duplicates", "TaskState", "joined", "packed", "table_of", "unpacked"]

SAMPLE_ROWS = 5
"""Rows kept per operator and channel with ``duplicates="sample"``."""


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Rows that ``operator`` took before its snapshot and that a restore will deliver to it again.

    ``rows`` counts them all; ``table`` holds them, or a sample of them. ``channel`` says where they came from.
    """

    operator: str
    task: str
    channel: str
    rows: int
    table: pa.Table

    @staticmethod
    def of(operator: str, task: str, channel: str, rows: Sequence[Data]) -> Duplicates:
        import pyarrow as pa

        kept = [data.rows for data in rows if not isinstance(data.rows, Omitted)]
        table = pa.Table.from_batches(kept) if kept else pa.table({})
        return Duplicates(operator, task, channel, sum(len(data.rows) for data in rows), table)


@dataclass(frozen=True, slots=True)
class ChannelState:
    """What was in flight on ``channel``, in order, when ``task`` took its snapshot: rows, and control between them.

    ``operator`` is the head of the task: the one the rows are re-injected to. ``schema`` is the channel's, as JSON.
    ``bytes`` counts the rows' Arrow memory.
    """

    operator: str
    task: str
    channel: str
    elements: Sequence[Element]
    schema: Json = None

    @property
    def rows(self) -> int:
        return sum(len(element.rows) for element in self.elements if isinstance(element, Data))

    @property
    def bytes(self) -> int:
        return sum(element.rows.nbytes for element in self.elements if isinstance(element, Data))  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class TaskState:
    """One task at a barrier. ``ended``: its input had ended and ``finish`` had run."""

    task: str
    ended: bool = False
    inlet: Mapping[str, Json] = field(default_factory=dict)
    operators: Mapping[str, Snapshot] = field(default_factory=dict)
    duplicates: Sequence[Duplicates] = ()
    in_flight: Sequence[ChannelState] = ()
    transactions: Mapping[str, tuple[Handle, ...]] = field(default_factory=dict)

    def encode(self, keep: Literal["sample", "rows"]) -> Any:
        """The bytes of the part. Reads the readers among the operators' tables, so it can be called once."""
        import pyarrow as pa

        from dataflow.state.codec import encode

        tables: dict[str, pa.Table | pa.RecordBatchReader] = {}
        operators: dict[str, Json] = {}
        for name, snapshot in self.operators.items():
            operators[name] = {"values": snapshot.values, "tables": list(snapshot.tables)}
            tables.update({f"{name}/{key}": table for key, table in snapshot.tables.items()})
        duplicates: list[Json] = []
        for i, d in enumerate(self.duplicates):
            duplicates.append({"operator": d.operator, "channel": d.channel, "rows": d.rows})
            tables[f"/duplicates/{i}"] = d.table if keep == "rows" else d.table.slice(0, SAMPLE_ROWS)
        in_flight: list[Json] = []
        for i, channel in enumerate(self.in_flight):
            elements, kinds = packed(channel.elements)
            in_flight.append(
                {
                    "operator": channel.operator,
                    "channel": channel.channel,
                    "schema": channel.schema,
                    "elements": elements,
                }
            )
            for kind, batches in enumerate(kinds):
                tables[table_of(f"/in-flight/{i}", kind)] = joined(pa.Table.from_batches(batches))
        values: dict[str, Json] = {
            "task": self.task,
            "ended": self.ended,
            "inlet": self.inlet,
            "operators": operators,
            "duplicates": duplicates,
            "in_flight": in_flight,
        }
        return encode(values, tables)

    @staticmethod
    def decode(data: Any) -> TaskState:
        """The state behind ``data``; transactions are in the manifest, not in the part.

        Raises: CheckpointDamaged.
        """
        from dataflow.state.codec import decode

        values, tables = decode(data)
        header: _Header = parsed(_Header, values, "the part's header")
        operators = {
            name: Snapshot(entry.values, {key: _table(tables, f"{name}/{key}") for key in entry.tables})
            for name, entry in header.operators.items()
        }
        duplicates = [
            Duplicates(d.operator, header.task, d.channel, d.rows, _table(tables, f"/duplicates/{i}"))
            for i, d in enumerate(header.duplicates)
        ]
        in_flight = [
            ChannelState(c.operator, header.task, c.channel, unpacked(c.elements, tables, f"/in-flight/{i}"), c.schema)
            for i, c in enumerate(header.in_flight)
        ]
        _check_inlet(header)
        return TaskState(header.task, header.ended, header.inlet, operators, duplicates, in_flight)


class _Operator(msgspec.Struct):
    values: dict[str, Any]
    tables: list[str]


class _Duplicates(msgspec.Struct):
    operator: str
    channel: str
    rows: Count


class _InFlight(msgspec.Struct):
    operator: str
    channel: str
    schema: Any
    elements: list[list[Any]]


class _Header(msgspec.Struct):
    """The values of a part, as ``TaskState.encode`` writes them."""

    task: str
    ended: bool
    inlet: dict[str, Any]
    operators: dict[str, _Operator]
    duplicates: list[_Duplicates]
    in_flight: list[_InFlight] = []


class _Split(msgspec.Struct):
    """An entry of the splits of a source, as ``SplitState.to_json`` writes it."""

    id: str
    info: dict[str, Any]
    offset: Any
    done: bool
    rows: Count | None = None


def _check_inlet(header: _Header) -> None:
    """Check the assumptions that every reader of an inlet makes. Raises: CheckpointDamaged."""
    what = f"the inlet of task {excerpt(header.task)}"
    splits = parsed(list[_Split], header.inlet.get("splits", []), what)
    parsed(list[Time | None], header.inlet.get("watermarks", []), what)
    if len({split.id for split in splits}) < len(splits):
        raise CheckpointDamaged(f"{what} has a split twice")
    if header.ended and not all([split.done for split in splits]):
        raise CheckpointDamaged(f"{what}: the task had ended, but not all of its splits had")


def _table(tables: Mapping[str, pa.Table], name: str) -> pa.Table:
    if name not in tables:
        raise CheckpointDamaged(f"the part has no table {excerpt(name)}")
    return tables[name]


def table_of(name: str, kind: int) -> str:
    return name if kind == 0 else f"{name}/{kind}"


def joined(table: pa.Table) -> pa.Table:
    """One piece instead of many small ones, each of which costs a message. Dictionaries would have to be united."""
    return table if any("dictionary<" in str(type_) for type_ in table.schema.types) else table.combine_chunks()


def packed(elements: Sequence[Element]) -> tuple[list[Json], list[list[pa.RecordBatch]]]:
    """A run of channel state as JSON, in which rows are only counted, and the batches of each schema, for a table each.

    Rows may be on their way as they are, or folded into records.
    """
    found: list[Json] = []
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
                found.append(["rows", len(rows)] if kind == 0 else ["rows", len(rows), kind])
            case Watermark(time=time):
                found.append(["watermark", time])
            case Idle():
                found.append(["idle"])
            case EndOfInput():
                found.append(["end"])
            case _:
                raise AssertionError(f"{element} is no channel state")
    return found, kinds


def unpacked(elements: Sequence[Any], tables: Mapping[str, pa.Table], name: str) -> tuple[Element, ...]:
    """The inverse of ``packed``. The rows are of epoch 0: for the job that is restored they are old."""
    found: list[Element] = []
    starts: dict[int, int] = {}
    what = f"channel state {name}"
    for element in elements:
        match parsed(list[Any], element, what):
            case ["rows", length, *kinds] if len(kinds) <= 1:
                kind = parsed(Count, kinds[0] if kinds else 0, what)
                table, start = _table(tables, table_of(name, kind)), starts.get(kind, 0)
                starts[kind] = start + parsed(Count, length, what)
                if starts[kind] > table.num_rows:
                    raise CheckpointDamaged(f"{what} counts {starts[kind]} rows, its table has {table.num_rows}")
                found += [Data(batch) for batch in table.slice(start, length).combine_chunks().to_batches()]
            case ["watermark", time]:
                found.append(Watermark(parsed(Time, time, what)))
            case ["idle"]:
                found.append(Idle())
            case ["end"]:
                found.append(EndOfInput())
            case [word, *_]:
                raise CheckpointDamaged(f"{what} holds {excerpt(word)}, which this release does not know")
            case _:
                raise CheckpointDamaged(f"{what} holds {excerpt(element)}, which this release does not know")
    if any([isinstance(element, EndOfInput) for element in found[:-1]]):
        raise CheckpointDamaged(f"{what} has elements after the end of the input")
    return tuple(found)
