"""Select events of a table by kind, attempt and checkpoint, and read their columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dataflow.events.kinds import Kind

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.events.plan_shape import PlanShape
    from dataflow.views.events import Events

__all__ = ["EventRow", "event_rows", "numbers", "restored_later", "select", "texts", "where", "written_bytes"]


class EventRow(NamedTuple):
    """An event that is no sample. Numbers and names that the event does not have are 0 and ""."""

    kind: str
    time: int
    checkpoint: int
    duration: int
    rows: int
    bytes: int
    task: str
    channel: str
    operator: str
    detail: str


def select(
    events: Events,
    kinds: Iterable[Kind],
    columns: Sequence[str],
    *,
    attempt: int | None = None,
    checkpoint: int | None = None,
) -> pa.Table:
    """Return ``columns`` of the events of these ``kinds``, in their order; of one attempt or checkpoint, if given."""
    return events.unified.select(list(columns)).filter(where(events, kinds, attempt=attempt, checkpoint=checkpoint))


def where(
    events: Events, kinds: Iterable[Kind], *, attempt: int | None = None, checkpoint: int | None = None
) -> pa.ChunkedArray:
    """Return for each event whether it is of these ``kinds``, and of the attempt and checkpoint if they are given."""
    import pyarrow.compute as pc

    table = events.unified
    kept = _is_any(table["kind"], [kind.label for kind in kinds])
    if attempt is not None:
        kept = pc.and_(kept, pc.equal(table["attempt"], attempt))
    if checkpoint is not None:
        kept = pc.and_(kept, pc.equal(table["checkpoint"], checkpoint))
    return kept


def written_bytes(plan: PlanShape, durable: EventRow) -> int | None:
    """Return the bytes of a durable checkpoint; None: they are not measured, as in a stream on Spark."""
    return durable.bytes if plan.is_measured or durable.bytes else None


def event_rows(
    events: Events, kinds: Iterable[Kind], *, attempt: int | None = None, checkpoint: int | None = None
) -> Iterator[EventRow]:
    """Return the selected events as tuples."""
    table = select(events, kinds, EventRow._fields, attempt=attempt, checkpoint=checkpoint)
    columns: list[Sequence[Any]] = []
    for name in EventRow._fields:
        is_number = name in ("time", "checkpoint", "duration", "rows", "bytes")
        columns.append(numbers(table, name).tolist() if is_number else texts(table, name))
    return map(EventRow._make, zip(*columns, strict=True))


def numbers(table: pa.Table, column: str) -> Any:
    """Return a column of numbers as a NumPy array, with 0 for null."""
    import pyarrow.compute as pc

    return pc.fill_null(table[column], 0).combine_chunks().to_numpy(zero_copy_only=False)


def texts(table: pa.Table, column: str) -> list[str]:
    """Return a column of text as a list, with "" for null."""
    import pyarrow as pa

    values = table[column].combine_chunks()
    if isinstance(values.type, pa.DictionaryType):
        names = [name or "" for name in values.dictionary.to_pylist()] + [""]
        return [names[index] for index in values.indices.fill_null(len(names) - 1).to_pylist()]
    return [value or "" for value in values.to_pylist()]


def _is_any(names: pa.ChunkedArray, wanted: Sequence[str]) -> pa.ChunkedArray:
    """Return where a column of dictionary type, whose chunks have one dictionary, has one of the ``wanted`` names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if names.num_chunks == 0:
        return pa.chunked_array([], pa.bool_())
    known = names.chunk(0).dictionary.to_pylist()
    codes = pa.array([code for code, name in enumerate(known) if name in wanted], pa.int32())
    return pa.chunked_array([pc.is_in(chunk.indices, value_set=codes) for chunk in names.chunks])


def restored_later(events: Events, attempt: int) -> set[int]:
    """Return the checkpoints from which attempts after ``attempt`` began."""
    later = [number for number in events.attempts if number > attempt]
    return {event.checkpoint for number in later for event in event_rows(events, [Kind.RESTORED], attempt=number)}
