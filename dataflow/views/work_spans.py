"""What tasks did, from samples of their totals: spans between two samples, and shares of an interval."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from dataflow.errors import EventsDamaged
from dataflow.events.kinds import TOTALS, Kind
from dataflow.views.checkpoint_facts import WorkSpan
from dataflow.views.select_events import numbers, select

if TYPE_CHECKING:
    from dataflow.views.events import Events

__all__ = ["Activity", "WorkSpans", "activity", "work_spans"]

_UNCERTAIN: Final = 0.2
"""The largest part of an interval of which samples may leave open what the task did, for its shares to be known."""


class WorkSpans(Mapping[str, tuple[WorkSpan, ...]]):
    """The spans of each task, built when they are read: a recording may have a million samples.

    ``samples`` has a row of time and totals for each sample of a task, in order, at least two.
    """

    def __init__(self, samples: Mapping[str, Any]) -> None:
        self._samples = samples
        self._spans: dict[str, tuple[WorkSpan, ...]] = {}

    def __getitem__(self, task: str) -> tuple[WorkSpan, ...]:
        if task not in self._spans:
            rows = self._samples[task].tolist()
            self._spans[task] = tuple(map(_span, rows, rows[1:]))
        return self._spans[task]

    def __iter__(self) -> Iterator[str]:
        return iter(self._samples)

    def __len__(self) -> int:
        return len(self._samples)


def _span(before: Sequence[int], after: Sequence[int]) -> WorkSpan:
    rows_in, rows_out, *times = [max(0, new - old) for old, new in zip(before[1:], after[1:], strict=True)]
    busy, waiting, blocked, back_pressured = times
    return WorkSpan(before[0], after[0], busy, waiting, blocked, back_pressured, rows_in, rows_out)


def work_spans(events: Events, attempt: int, begin: int, end: int) -> WorkSpans:
    """Return what each task did between ``begin`` and ``end``, from the last sample before it to the first one after.

    All totals are 0 at the start of an attempt, which counts as a sample.

    Raises: EventsDamaged if a sample has too few totals.
    """
    import numpy as np

    table = select(events, [Kind.WORK], attempt=attempt)
    if table.num_rows == 0:
        return WorkSpans({})
    totals = table["totals"].combine_chunks()
    lengths, wide = totals.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), len(TOTALS)
    if lengths.min() < wide:
        raise EventsDamaged(
            f"a sample of work has {lengths.min()} totals; expected {wide} or more: {', '.join(TOTALS)}"
        )
    values = totals.flatten().fill_null(0).to_numpy(zero_copy_only=False)
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    samples = np.empty((len(first), 1 + wide), np.int64)
    samples[:, 0] = numbers(table, "time")
    samples[:, 1:] = values[first[:, None] + np.arange(wide)]
    names = table["task"].combine_chunks()
    codes = names.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    samples, codes = samples[order], codes[order]
    edges = np.flatnonzero(np.diff(codes, prepend=codes[0] - 1, append=codes[-1] + 1))
    known = names.dictionary.to_pylist()
    by_task = {
        known[codes[at]]: part for at, to in pairwise(edges) if len(part := _window(samples[at:to], begin, end)) > 1
    }
    return WorkSpans(by_task)


def _window(samples: Any, begin: int, end: int) -> Any:
    """Return the samples of a task that cover an interval as far as there are any, each time once: its last sample."""
    import numpy as np

    start = np.zeros((1, samples.shape[1]), np.int64)
    samples = np.concatenate([start, samples])
    times = samples[:, 0]
    samples = samples[np.append(times[1:] > times[:-1], True)]
    times = samples[:, 0]
    low = max(0, int(np.searchsorted(times, begin, "right")) - 1)
    high = int(np.searchsorted(times, end, "left")) + 1
    return samples[low:high]


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
    """Return what a task did between ``begin`` and ``end``; None if samples are missing, or too far apart to tell.

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
        length, inside = span.end - span.begin, min(span.end, end) - max(span.begin, begin)
        times = _fitted((span.busy, span.waiting, span.blocked, span.back_pressured), length)
        sums = [total + time * inside / length for total, time in zip(sums, times, strict=True)]
        unsure += max([min(time, inside) - max(0, time - (length - inside)) for time in times])
        at += 1
    if unsure > _UNCERTAIN * (end - begin):
        return None
    return Activity(*[total / (end - begin) for total in sums])


def _fitted(times: Sequence[int], length: int) -> Sequence[float]:
    """Return times that together are at most ``length``: a sample may be taken within a step that is counted later."""
    total = sum(times)
    return times if total <= length else [time * length / total for time in times]
