"""What tasks did, from samples of their totals: spans between two samples, and shares of an interval."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

from dataflow.errors import EventsDamaged
from dataflow.events.kinds import TOTALS, Kind
from dataflow.views.checkpoint_facts import WorkSpan
from dataflow.views.select_events import numbers, where

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.views.events import Events

__all__ = ["Activity", "WorkSpans", "activity", "emits", "work_spans"]

_UNCERTAIN: Final = 0.2
"""The largest part of an interval of which samples may leave open what the task did, for its shares to be known."""


class WorkSpans(Mapping[str, tuple[WorkSpan, ...]]):
    """The spans of each task, built when they are read: a recording may have a million samples.

    ``samples`` has a row of time, totals, whether busy time is unknown, and how long the step lasted that ended then or
    goes on, for each sample of a task, in order, at least two.
    """

    def __init__(self, samples: Mapping[str, Any]) -> None:
        self._samples = samples
        self._spans: dict[str, tuple[WorkSpan, ...]] = {}

    def __getitem__(self, task: str) -> tuple[WorkSpan, ...]:
        if task not in self._spans:
            rows = self._samples[task].tolist()
            self._spans[task] = tuple([span for pair in pairwise(rows) for span in _spans(*pair)])
        return self._spans[task]

    def __iter__(self) -> Iterator[str]:
        return iter(self._samples)

    def __len__(self) -> int:
        return len(self._samples)


def _spans(before: Sequence[int], after: Sequence[int]) -> Iterator[WorkSpan]:
    """Return what a task did between two samples; the step at the end of that time, if it is known, is its own span."""
    begin, end, is_unknown, lasted = before[0], after[0], after[-2], after[-1]
    rows_in, rows_out, *times = [max(0, new - old) for old, new in zip(before[1:-2], after[1:-2], strict=True)]
    busy, waiting, blocked, back_pressured = times
    if is_unknown or lasted <= 0:
        yield WorkSpan(begin, end, busy, waiting, blocked, back_pressured, rows_in, rows_out, not is_unknown)
        return
    middle = max(begin, end - lasted)
    if begin < middle:
        yield WorkSpan(begin, middle, max(0, busy - lasted), waiting, blocked, back_pressured, 0, 0)
    yield WorkSpan(middle, end, end - middle, 0, 0, 0, rows_in, rows_out)


def work_spans(events: Events, attempt: int, begin: int, end: int) -> WorkSpans:
    """Return what each task did between ``begin`` and ``end``, from the last sample before it to the first one after.

    All totals are 0 at the start of an attempt, which counts as a sample.

    Raises: EventsDamaged if a sample has too few totals.
    """
    import numpy as np

    selected = where(events, [Kind.WORK], attempt=attempt)
    table = events.unified.select(["time", "task"]).filter(selected)
    if table.num_rows == 0:
        return WorkSpans({})
    names = table["task"].combine_chunks()
    known = names.dictionary.to_pylist()
    codes, times = names.indices.fill_null(len(known)).to_numpy(zero_copy_only=False), numbers(table, "time")
    rows = _covering(codes, times, begin, end)
    at = selected.combine_chunks().to_numpy(zero_copy_only=False).nonzero()[0]
    codes, samples = codes[rows], _samples(events.unified.select(["time", "totals", "duration"]).take(at[rows]))
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order], prepend=-1, append=-1))
    by_code = {int(codes[order[at]]): _once(samples[order[at:to]], begin) for at, to in pairwise(edges)}
    by_task = {[*known, ""][code]: some for code, some in by_code.items()}
    return WorkSpans({task: some for task, some in by_task.items() if len(some) > 1})


def _covering(codes: Any, times: Any, begin: int, end: int) -> Any:
    """Return the rows of an interval, and for each task the last row before it and the first one after it."""
    import numpy as np

    low, high = np.searchsorted(times, begin, "left"), np.searchsorted(times, end, "right")
    before = low - 1 - np.unique(codes[:low][::-1], return_index=True)[1]
    after = high + np.unique(codes[high:], return_index=True)[1]
    return np.concatenate([np.sort(before), np.arange(low, high), np.sort(after)])


def _samples(table: pa.Table) -> Any:
    """Return a row of ``WorkSpans`` for each sample. Raises: EventsDamaged if one has too few totals."""
    import numpy as np

    totals = table["totals"].combine_chunks()
    lengths, wide = totals.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), len(TOTALS)
    if len(lengths) and lengths.min() < wide:
        raise EventsDamaged(f"a sample of work has {lengths.min()} totals; expected {', '.join(TOTALS)}, and queues")
    entries = totals.flatten()
    values = entries.fill_null(0).to_numpy(zero_copy_only=False)
    first = np.cumsum(lengths) - lengths
    unknown = entries.is_null().to_numpy(zero_copy_only=False)[first + TOTALS.index("busy")]
    times, sums = numbers(table, "time"), values[first[:, None] + np.arange(wide)]
    columns = [times[:, None], sums, unknown[:, None], numbers(table, "duration")[:, None]]
    return np.concatenate(columns, axis=1).astype(np.int64)


def _once(samples: Any, begin: int) -> Any:
    """Return the samples of a task, the last one of each time; first the start of the attempt if none precedes.

    Of samples of one time, one may tell how long a step lasted.
    """
    import numpy as np

    if samples[0, 0] > begin:
        samples = np.concatenate([np.zeros((1, samples.shape[1]), np.int64), samples])
    times = samples[:, 0]
    is_last = np.append(times[1:] > times[:-1], True)
    kept = samples[is_last]
    kept[:, -1] = np.maximum.reduceat(samples[:, -1], np.flatnonzero(np.append(True, is_last[:-1])))
    return kept


@dataclass(frozen=True, slots=True)
class Activity:
    """The shares of an interval that a task spent; they add up to 1. ``ready``: it waited for a thread to work on."""

    busy: float
    waiting: float
    blocked: float
    back_pressured: float

    @property
    def ready(self) -> float:
        """The share in which the task could have worked, and no thread took it."""
        return max(0.0, 1.0 - self.busy - self.waiting - self.blocked - self.back_pressured)


def activity(spans: Sequence[WorkSpan], begin: int, end: int) -> Activity | None:
    """Return what a task did between ``begin`` and ``end``.

    Returns: its shares; None if samples are missing, or too far apart to tell, or its busy time is not measured.

    A span that is partly outside of the interval counts in proportion. That is uncertain: the more of the span is
    outside, the more. More than a fifth of the interval may not be uncertain.

    >>> whole = WorkSpan(0, 100, busy=80, waiting=20, blocked=0, back_pressured=0, rows_in=5, rows_out=5)
    >>> activity([whole], 0, 100)
    Activity(busy=0.8, waiting=0.2, blocked=0.0, back_pressured=0.0)
    >>> activity([whole], 0, 20) is None  # were these the 20 that it waited?
    True
    """
    if begin >= end or not spans or spans[0].begin > begin or spans[-1].end < end:
        return None
    sums, unsure = [0.0, 0.0, 0.0, 0.0], 0.0
    at = max(0, bisect_right(spans, begin, key=lambda span: span.begin) - 1)
    while at < len(spans) and spans[at].begin < end:
        span = spans[at]
        if not span.is_measured:
            return None
        length, inside = span.end - span.begin, min(span.end, end) - max(span.begin, begin)
        times = _fitted((span.busy, span.waiting, span.blocked, span.back_pressured), length)
        sums = [total + time * inside / length for total, time in zip(sums, times, strict=True)]
        unsure += max([min(time, inside) - max(0, time - (length - inside)) for time in times])
        at += 1
    if unsure > _UNCERTAIN * (end - begin):
        return None
    return Activity(*[total / (end - begin) for total in sums])


def emits(spans: Sequence[WorkSpan], begin: int, end: int) -> bool:
    """Return whether a task emitted rows between ``begin`` and ``end``, in spans that lie in it for the most part."""
    at = max(0, bisect_right(spans, begin, key=lambda span: span.begin) - 1)
    for span in islice(spans, at, None):
        if span.begin >= end:
            return False
        inside = min(span.end, end) - max(span.begin, begin)
        if span.rows_out and 2 * inside > span.end - span.begin:
            return True
    return False


def _fitted(times: Sequence[int], length: int) -> Sequence[float]:
    """Return times that together are at most ``length``: a sample may be taken within a step that is counted later."""
    total = sum(times)
    return times if total <= length else [time * length / total for time in times]
