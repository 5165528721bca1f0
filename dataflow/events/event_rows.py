"""An event in memory, and the table of many events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dataflow.arrow_values import storage_dtype, to_array
from dataflow.events.kinds import JOB, Kind, schema
from dataflow.events.plan_shape import PlanShape

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Event", "Origin", "event_bytes"]


def event_bytes(totals: int) -> int:
    """Return the memory of an event before it is converted, about, with so many totals."""
    return 320 + 40 * totals


class Event(NamedTuple):
    """An event as its writer recorded it; ``time`` is by the job's clock."""

    kind: Kind
    time: int
    seq: int
    task: str
    checkpoint: int | None
    duration: int | None
    rows: int | None
    bytes: int | None
    value: int | None
    channel: str | None
    operator: str | None
    totals: Sequence[int | None] | None
    detail: str | None


class Origin:
    """An attempt: the plan whose names its events have, when it started by the clock, and its number."""

    def __init__(self, plan: PlanShape, started_at: int, attempt: int) -> None:
        self.attempt = attempt
        self.started_at = started_at
        self._plan = plan

    @cached_property
    def _names(self) -> tuple[Mapping[str | None, int], ...]:
        """The numbers of tasks, channels, operators: the same in each batch, because they are its dictionaries."""
        plan = self._plan
        names = ([*plan.tasks, JOB], [channel.name for channel in plan.channels], plan.operator_names)
        return tuple([{name: number for number, name in enumerate(dict.fromkeys(each))} for each in names])

    @cached_property
    def _dictionaries(self) -> tuple[pa.Array, ...]:
        import pyarrow as pa

        names = (*self._names, [kind.label for kind in Kind])
        return tuple([to_array(list(each), pa.string()) for each in names])

    def batch(self, events: Sequence[Event]) -> pa.RecordBatch:
        """Return ``events`` in the columns of the table."""
        import pyarrow as pa

        columns = zip(*events, strict=True) if events else [()] * len(Event._fields)
        kind, time, seq, task, checkpoint, duration, rows, size, value, channel, operator, totals, detail = columns
        times, attempts = [each - self.started_at for each in time], [self.attempt] * len(events)
        arrays = [
            _numbers(column, pa.int64()) for column in (times, seq, attempts, checkpoint, duration, rows, size, value)
        ]
        for names, numbers, dictionary in zip((task, channel, operator), self._names, self._dictionaries, strict=False):
            indices = _numbers([None if name is None else numbers[name] for name in names], pa.int32())
            arrays.append(pa.DictionaryArray.from_arrays(indices, dictionary))
        kinds = _numbers(kind, pa.int32())
        arrays.append(pa.DictionaryArray.from_arrays(kinds, self._dictionaries[-1]))
        arrays += [to_array(list(totals), pa.list_(pa.int64())), to_array(list(detail), pa.string())]
        return pa.RecordBatch.from_arrays(arrays, schema=schema())


def _numbers(values: Sequence[int | None], type_: pa.DataType) -> pa.Array:
    """Return ``to_array(values, type_)``. Most columns have only numbers, or none, so it takes a third of the time."""
    import pyarrow as pa

    absent = values.count(None)
    if absent == len(values):
        return pa.nulls(absent, type_)
    dtype = storage_dtype(type_)
    if not absent:
        return to_array(np.array(values, dtype))
    numbers = np.array([0 if value is None else value for value in values], dtype)
    return to_array(numbers, mask=np.array([value is None for value in values]))
