"""Check batches of events from untrusted files, so that later code may rely on them.

After a check: each index is valid (offsets were checked before); names are those of the plan; numbers that are added or
subtracted later lie between 0 and 2**53; the fields that a kind must have are there; the attempts are in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array, to_numbers
from dataflow.events.kinds import JOB, TOTALS, Arrival, Kind, Unblocked
from dataflow.events.plan_shape import PlanShape

__all__ = ["BatchCheck"]

_LIMIT: Final = 2**53
_LEAST: Final = {"attempt": 1, "value": -(2**63)}
_MOST: Final = {"attempt": 2**31, "value": 2**63}
_NUMBERS: Final = ("time", "seq", "attempt", "checkpoint", "duration", "rows", "bytes", "value")
_NAMES: Final = ("task", "channel", "operator", "kind")

_CHECKPOINT: Final = (
    *(Kind.TRIGGERED, Kind.DURABLE, Kind.FAILED, Kind.COMMITTED, Kind.COMMIT_FAILED, Kind.SENT, Kind.ARRIVED),
    *(Kind.BLOCKED, Kind.UNBLOCKED, Kind.SNAPSHOT, Kind.COMPLETE, Kind.REPEATS, Kind.DECLINED, Kind.PART),
)
_NEEDED: Final[Mapping[str, Iterable[Kind]]] = {
    "checkpoint": _CHECKPOINT,
    "channel": (Kind.SENT, Kind.ARRIVED, Kind.BLOCKED, Kind.UNBLOCKED),
    "operator": (Kind.COMMIT_FAILED, Kind.REPEATS),
    "duration": (Kind.DURABLE, Kind.FAILED, Kind.UNBLOCKED, Kind.SNAPSHOT, Kind.PART),
    "value": (Kind.STARTED, Kind.WATERMARK),
    "detail": (Kind.FAILED, Kind.STATE, Kind.ARRIVED, Kind.UNBLOCKED),
}
"""The fields that events of a kind have on every runner."""
_DETAILS: Final[Mapping[Kind, frozenset[str]]] = {
    Kind.ARRIVED: frozenset([each.value for each in Arrival]),
    Kind.UNBLOCKED: frozenset([each.value for each in Unblocked]),
}
_FIRST_TIME: Final = TOTALS.index("busy")
_OF_JOB: Final = range(Kind.STARTED, Kind.SENT)
_OF_TASK: Final = range(Kind.SENT, Kind.WATERMARK)


class BatchCheck:
    """The checks of the batches of one file, which has one plan."""

    def __init__(self, plan: PlanShape) -> None:
        self._plan = plan
        #: The last dictionaries, which were checked. They are kept, so that no other one takes their place in memory.
        self._dictionaries: dict[str, pa.Array] = {}

    def check(self, batch: pa.RecordBatch, attempt: int) -> int:
        """Check ``batch``, which follows events of ``attempt``; return its last attempt.

        Raises: ValueError, or an error of Arrow, with the reason.
        """
        for name in _NUMBERS:
            _check_numbers(name, batch.column(name))
        for name in _NAMES:
            self._check_names(name, batch.column(name))
        totals, detail = batch.column("totals"), batch.column("detail")
        for name in ("time", "seq", "attempt", "task", "kind"):
            _require(not batch.column(name).null_count, f"column {name!r} has nulls")
        if not batch.num_rows:
            return attempt
        kind, task, channel = [_indices(batch.column(name)) for name in ("kind", "task", "channel")]
        for name, kinds in _NEEDED.items():
            absent = kind[to_numbers(batch.column(name).is_null())]
            _require(not np.isin(absent, list(kinds)).any(), f"column {name!r} has a null in an event that needs it")
        for each, texts in _DETAILS.items():
            unknown = set(detail.filter(to_array(kind == each)).unique().to_pylist()) - texts
            _require(not unknown, f"an event {each.label!r} has the detail {str(unknown)[:100]}")
        self._check_places(kind, task, channel)
        self._check_totals(totals, kind, task)
        attempts = to_numbers(batch.column("attempt"))
        _require(attempts[0] >= attempt and (np.diff(attempts) >= 0).all(), "attempts are not in order")
        return int(attempts[-1])

    def _check_names(self, name: str, column: pa.DictionaryArray) -> None:
        indices, dictionary = column.indices, column.dictionary
        indices.validate(full=True)
        self._check_dictionary(name, dictionary)
        bounds = pc.min_max(indices).as_py()
        if bounds["min"] is not None:
            _require(bounds["min"] >= 0 and bounds["max"] < len(dictionary), f"column {name!r} has an invalid index")

    def _check_dictionary(self, name: str, dictionary: pa.Array) -> None:
        last = self._dictionaries.get(name)
        if last is not None and _place(last) == _place(dictionary):
            return
        dictionary.validate(full=True)
        _require(len(dictionary) == self._counts[name], f"{name!r} has {len(dictionary):,} names, unlike the plan")
        if last is None or not dictionary.equals(last):
            _require(dictionary.equals(self._names(name)), f"the names of {name!r} are not those of the plan")
        self._dictionaries[name] = dictionary

    @cached_property
    def _counts(self) -> Mapping[str, int]:
        """How many names there are, counted before they are made."""
        plan = self._plan
        return {
            "task": plan.task_count + 1,
            "channel": plan.channel_count,
            "operator": len(plan.operator_names),
            "kind": len(Kind),
        }

    def _names(self, name: str) -> pa.Array:
        plan = self._plan
        match name:
            case "task":
                names = [*plan.tasks, JOB]
            case "channel":
                names = [channel.name for channel in plan.channels]
            case "operator":
                names = list(plan.operator_names)
            case _:
                names = [kind.label for kind in Kind]
        return to_array(names, pa.string())

    @cached_property
    def _ends(self) -> tuple[Any, Any]:
        """The numbers of the tasks that write and read each channel."""
        number = {task: n for n, task in enumerate(self._plan.tasks)}
        channels = self._plan.channels
        ends = [(number[channel.source], number[channel.target]) for channel in channels]
        pairs = np.array(ends, dtype=np.int64).reshape(len(ends), 2)
        return pairs[:, 0], pairs[:, 1]

    @cached_property
    def _inputs(self) -> Any:
        """The number of input channels of each task, and of the job."""
        return np.bincount(self._ends[1], minlength=self._counts["task"])

    def _check_places(self, kind: Any, task: Any, channel: Any) -> None:
        job = self._counts["task"] - 1
        _require((task[np.isin(kind, _OF_JOB)] == job).all(), "a task has an event of the job")
        _require((task[np.isin(kind, _OF_TASK)] != job).all(), "the job has an event of a task")
        sources, targets = self._ends
        sent = (kind == Kind.SENT) & (channel >= 0)
        others = (kind != Kind.SENT) & (channel >= 0) & (task != job)
        _require((sources[channel[sent]] == task[sent]).all(), "a task sent into a channel of another one")
        _require((targets[channel[others]] == task[others]).all(), "a task has an event of an input of another one")

    def _check_totals(self, totals: pa.ListArray, kind: Any, task: Any) -> None:
        if totals.null_count == len(totals):
            _require(not (kind == Kind.WORK).any(), "an event 'work' has no totals")
            return
        lengths = to_numbers(pc.list_value_length(totals).fill_null(-1))
        work = kind == Kind.WORK
        _require((lengths[~work] == -1).all(), "an event has totals and is not 'work'")
        queued = lengths[work] - len(TOTALS)
        _require(((queued == 0) | (queued == self._inputs[task[work]])).all(), "an event 'work' lacks totals")
        values = totals.flatten()
        absent = to_numbers(values.is_null())
        if not self._plan.is_measured:  # there are no queues, and only times may be null
            absent = absent.reshape(-1, len(TOTALS))[:, :_FIRST_TIME]
        _require(not absent.any(), "totals have nulls")
        _check_numbers("totals", values)


def _check_numbers(name: str, column: pa.Array) -> None:
    column.validate(full=True)
    bounds = pc.min_max(column).as_py()
    if bounds["min"] is not None:
        least, most = _LEAST.get(name, 0), _MOST.get(name, _LIMIT)
        for value in (bounds["min"], bounds["max"]):
            _require(least <= value < most, f"column {name!r} has {value:,}, expected {least:,} to {most - 1:,}")


def _indices(column: pa.DictionaryArray) -> Any:
    """Return the indices of names; -1 for null."""
    return to_numbers(column.indices.fill_null(-1))


def _place(array: pa.Array) -> tuple[int, ...]:
    return (len(array), array.offset, *[buffer.address for buffer in array.buffers() if buffer is not None])


def _require(holds: object, why: str) -> None:
    if not holds:
        raise ValueError(why)
