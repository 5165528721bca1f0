"""What one task contributes to a checkpoint, and its form on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dataflow.events import Data, Element
from dataflow.operator import Handle, Json, Snapshot
from dataflow.protocol.red_log import Omitted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SAMPLE_ROWS", "ChannelState", "Duplicates", "TaskState"]

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

    ``operator`` is the head of the task: the one the rows are re-injected to. ``bytes`` counts the rows' Arrow memory.
    """

    operator: str
    task: str
    channel: str
    elements: Sequence[Element]

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
        values: dict[str, Json] = {
            "task": self.task,
            "ended": self.ended,
            "inlet": self.inlet,
            "operators": operators,
            "duplicates": duplicates,
        }
        return encode(values, tables)

    @staticmethod
    def decode(data: Any) -> TaskState:
        """The state behind ``data``; transactions are in the manifest, not in the part.

        Raises: CheckpointDamaged.
        """
        from dataflow.state.codec import decode

        values, tables = decode(data)
        header: Any = values
        operators = {
            name: Snapshot(entry["values"], {key: tables[f"{name}/{key}"] for key in entry["tables"]})
            for name, entry in header["operators"].items()
        }
        duplicates = [
            Duplicates(d["operator"], header["task"], d["channel"], d["rows"], tables[f"/duplicates/{i}"])
            for i, d in enumerate(header["duplicates"])
        ]
        return TaskState(header["task"], header["ended"], header["inlet"], operators, duplicates)
