"""Rows that are queued in channels, from samples of the tasks that read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dataflow.events.kinds import TOTALS, Kind
from dataflow.events.plan_shape import ChannelShape
from dataflow.views.select_events import where

if TYPE_CHECKING:
    from dataflow.views.events import Events

__all__ = ["queued_rows"]


def queued_rows(events: Events, attempt: int, begin: int, end: int, channels: Sequence[ChannelShape]) -> dict[str, int]:
    """Return the rows in each of ``channels`` at the first sample of its reader between ``begin`` and ``end``.

    A channel is left out if its reader has no such sample, or one without queues.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    readers = {channel.target for channel in channels}
    if not readers or events.unified.num_rows == 0:
        return {}
    table = events.unified.select(["time", "task", "totals"]).filter(where(events, [Kind.WORK], attempt=attempt))
    table = table.filter(pc.and_(pc.greater_equal(table["time"], begin), pc.less_equal(table["time"], end)))
    if table.num_rows == 0:
        return {}
    codes = table["task"].combine_chunks()
    known = codes.dictionary.to_pylist()
    found, at = np.unique(codes.indices.fill_null(len(known)).to_numpy(zero_copy_only=False), return_index=True)
    first = {[*known, ""][code]: row for code, row in zip(found.tolist(), at.tolist(), strict=True)}
    wanted = {task: first[task] for task in sorted(readers & first.keys())}
    totals = table["totals"].take(pa.array(wanted.values(), pa.int64())).to_pylist()
    queues = {task: (values or [])[len(TOTALS) :] for task, values in zip(wanted, totals, strict=True)}
    inputs: dict[str, list[str]] = {task: [] for task in queues}
    for channel in events.plan.channels:  # in the order of the queues
        if channel.target in inputs:
            inputs[channel.target].append(channel.name)
    queued = {
        name: rows
        for task, names in inputs.items()
        if len(names) == len(queues[task])
        for name, rows in zip(names, queues[task], strict=True)
        if rows is not None
    }
    return {channel.name: queued[channel.name] for channel in channels if channel.name in queued}
