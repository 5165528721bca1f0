"""Rows ordered by a number, a time or a window; rows with small numbers leave first. A log of new rows.

Rows stay in the batches in which they came. A *run* is some rows. It is sorted by number when a bound first divides it,
and then a part of it is a slice, so that nothing is copied as the bound moves on.

A checkpoint stores the bound below which rows have left (`contracts.declared_state.Log.low`), so its deltas say nothing
of rows that left.

>>> log = RowLog(pa.schema({"k": pa.int64()}))
>>> log.add(pa.record_batch({"k": [7, 8, 9]}), np.array([30, 10, 20]))
>>> [(batch["k"].to_pylist(), numbers.tolist()) for batch, numbers in log.take(25)]
[([8, 9], [10, 20])]
>>> log.entries
1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter, itemgetter

import numpy as np
import pyarrow as pa
from sortedcontainers import SortedKeyList

from dataflow.arrow_values import to_array, to_numbers
from dataflow.state.arrays import Mask, Numbers, fresh
from dataflow.state.columns import check_distinct
from dataflow.state.index import Slots
from dataflow.state.partition import order_by_target
from dataflow.state.parts import LIVE_FIELD, marked, number_field, rows_since_base, small_batches

__all__ = ["KERNELS", "NUMBER", "Part", "RowLog", "WindowRows", "by_number", "in_order"]

KERNELS = ("operators.kernels.time_order", "dataflow.state.kernels.partition")
"""The modules with the kernels that are called."""
NUMBER = "barrierflow:number"
_ROWS, _BATCHES = 16_384, 256
"""The rows, and the batches, after which a run takes no more."""
_FEW = 256
"""A run with fewer rows stays open when a bound divides it: else each bound could leave a run of few rows."""
_MANY = 1024
"""The range of the numbers of a batch from which on they are sorted instead of counted."""

Part = tuple[pa.RecordBatch, Numbers]
"""Rows with their numbers."""


class _Run:
    """Rows with their numbers. ``first``: the first checkpoint that has them; None: none has.

    Of runs with rows of one number, those with a greater ``place`` came later.
    """

    __slots__ = ("_batches", "_is_sorted", "_numbers", "count", "first", "high", "low", "place")

    def __init__(self, place: int, part: Part, low: int, high: int, first: int | None = None) -> None:
        self.place, self.first = place, first
        self._batches, self._numbers = [part[0]], [part[1]]
        self._is_sorted = low == high
        self.count = len(part[1])
        self.low, self.high = low, high

    def add(self, part: Part) -> None:
        """Add rows whose numbers are in the range of the run."""
        self._batches.append(part[0])
        self._numbers.append(part[1])
        self.count += len(part[1])

    def widen(self, low: int, high: int) -> None:
        """Let the run have numbers from ``low`` to ``high`` as well."""
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._is_sorted = self.low == self.high

    @property
    def is_full(self) -> bool:
        return self.count >= _ROWS or len(self._batches) >= _BATCHES

    def parts(self) -> Sequence[Part]:
        """Return the rows as they are kept."""
        return list(zip(self._batches, self._numbers, strict=True))

    def joined(self) -> Part:
        """Return all rows as they came, or sorted."""
        if len(self._batches) > 1:
            self._batches, self._numbers = [pa.concat_batches(self._batches)], [np.concatenate(self._numbers)]
        return self._batches[0], self._numbers[0]

    def divided(self, bound: int) -> tuple[_Run, _Run | None]:
        """Return a run of the rows below ``bound``, of which there are some, and one of the others, if there are any.

        This run must not be used after that. Rows of one number stay in the order of arrival.
        """
        if self.high < bound:
            return self, None
        if not self._is_sorted:
            batch, numbers = in_order(self.parts())
            self._batches, self._numbers, self._is_sorted = [batch], [numbers], True
        stop = int(np.searchsorted(self.joined()[1], bound))
        return self._part(0, stop), self._part(stop, self.count)

    def _part(self, start: int, stop: int) -> _Run:
        """Return a run of some of the rows, at least one, which are sorted."""
        batch, numbers = self.joined()[0].slice(start, stop - start), self.joined()[1][start:stop]
        run = _Run(self.place, (batch, numbers), int(numbers[0]), int(numbers[-1]), self.first)
        run._is_sorted = True
        return run


class RowLog:
    """Rows by number. It is state for `Snapshot.logs`. Only its task calls it.

    Args:
        schema: the columns of the rows.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.entries = 0
        """The number of rows."""
        self._stored = pa.schema([*schema, number_field(NUMBER), LIVE_FIELD])
        check_distinct(self._stored)
        self._runs: SortedKeyList[_Run, tuple[int, int]] = SortedKeyList(key=attrgetter("low", "place"))
        """All runs but the open one."""
        self._open: _Run | None = None
        self._place = 0

    def add(self, batch: pa.RecordBatch, numbers: Numbers) -> None:
        """Add rows, at least one, with their numbers."""
        part, low, high = (batch, numbers), int(numbers.min()), int(numbers.max())
        if self._open is None:
            self._open = self._new_run(part, low, high)
        else:
            self._open.widen(low, high)
            self._open.add(part)
        self.entries += len(numbers)
        if self._open.is_full:
            self._open.joined()
            self._close()

    def _new_run(self, part: Part, low: int, high: int) -> _Run:
        self._place += 1
        return _Run(self._place, part, low, high)

    def _close(self) -> None:
        """Let no run take more rows."""
        if self._open is not None:
            self._runs.add(self._open)
            self._open = None

    def take(self, below: int) -> list[Part]:
        """Remove and return the rows below ``below``.

        Rows of one number come in the order of arrival, also in different parts.
        """
        return [run.joined() for run in self._removed(below)]

    def drop(self, below: int) -> None:
        """Remove the rows below ``below``."""
        self._removed(below)

    def _removed(self, below: int) -> list[_Run]:
        """Remove the rows below ``below``; return them in runs, in the order of arrival."""
        # Runs in the order of their least numbers, so the loop ends at the first one with nothing to remove. They are
        # returned in the order of arrival, because rows of one number may be in several runs, and of equal rows the one
        # that came first counts. An open run of few rows stays open when it is divided: closed, each watermark would
        # leave a run of few rows, and a later one would have to look at all of them.
        removed: list[_Run] = []
        while self._runs and self._runs[0].low < below:
            run = self._runs.pop(0)
            before, after = run.divided(below)
            removed.append(before)
            if after is not None:
                self._runs.add(after)
        if self._open is not None and self._open.low < below:
            before, self._open = self._open.divided(below)
            removed.append(before)
            if self._open is not None and self._open.count >= _FEW:
                self._close()
        self.entries -= sum([run.count for run in removed])
        return sorted(removed, key=attrgetter("place"))

    # --- checkpoints

    def freeze(self, checkpoint: int, since: int | None) -> Mapping[str, pa.RecordBatchReader]:
        """Return a reader of all rows, or of those that came after checkpoint ``since``."""
        self._close()
        frozen: list[tuple[int, Sequence[Part]]] = []
        for run in self._runs:
            if run.first is None:
                run.first = checkpoint
            if since is None or run.first > since:
                frozen.append((run.place, run.parts()))
        schema = marked(self._stored, base=since is None)
        return {"rows": pa.RecordBatchReader.from_batches(schema, _stored_rows(schema, frozen))}

    def durable(self, checkpoint: int) -> None:
        """Do nothing: a run knows its first checkpoint."""

    @property
    def stored(self) -> Mapping[str, pa.Schema]:
        """The columns of a checkpoint."""
        return {"rows": self._stored}

    def restore(self, parts: Sequence[Mapping[str, pa.Table]]) -> None:
        """Add the rows of checkpoints: the tables of a base and of the deltas after it. Raises: CheckpointDamaged."""
        for table in rows_since_base(parts, self._stored):
            for batch in table.to_batches():
                if batch.num_rows:
                    rows = pa.RecordBatch.from_arrays(batch.columns[: len(self.schema)], schema=self.schema)
                    self.add(rows, to_numbers(batch.column(NUMBER)))
        self._close()
        for run in self._runs:
            run.first = 0


class WindowRows(RowLog):
    """Rows by the number of their window or slice of time, which many rows share: a run has rows of one number.

    So nothing ever divides a run. With runs as in a `RowLog`, a join of windows of rows that are out of order took 1.24
    times as long.

    >>> log = WindowRows(pa.schema({"k": pa.int64()}))
    >>> log.add(pa.record_batch({"k": [7, 8, 9]}), np.array([3, 1, 1]))
    >>> log.numbers(9).tolist(), log.rows(1, 3)["k"].to_pylist()
    ([1, 3], [8, 9])
    """

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._growing: dict[int, _Run] = {}
        """The runs that take more rows."""

    def add(self, batch: pa.RecordBatch, numbers: Numbers) -> None:
        low, high = int(numbers.min()), int(numbers.max())
        self.entries += len(numbers)
        if low == high:
            self._add_to_run((batch, numbers), low)
            return
        if high - low < _MANY:
            order, offsets = order_by_target((numbers - low).astype(np.int32), high - low + 1)
            numbers = numbers[order]
        else:
            order = by_number(numbers)
            numbers = numbers[order]
            offsets = np.append(np.flatnonzero(np.diff(numbers, prepend=low - 1)), len(numbers))
        for start, stop in pairwise(offsets.tolist()):
            if start < stop:
                part = batch.take(to_array(order[start:stop])), numbers[start:stop]
                self._add_to_run(part, int(numbers[start]))

    def _add_to_run(self, part: Part, number: int) -> None:
        run = self._growing.get(number)
        if run is None:
            run = self._growing[number] = self._new_run(part, number, number)
            self._runs.add(run)
        else:
            run.add(part)
        if run.is_full:
            run.joined()
            del self._growing[number]

    def numbers(self, stop: int) -> Numbers:
        """Return the numbers below ``stop`` that rows have, each once, in ascending order."""
        return np.unique(np.array([run.low for run in self._runs.irange_key(max_key=(stop, 0))], np.int64))

    def rows(self, first: int, stop: int) -> pa.RecordBatch:
        """Return the rows with a number from ``first`` to ``stop`` - 1, in the order of numbers and then of arrival."""
        runs = self._runs.irange_key((first, 0), (stop, 0))
        batches = [batch for run in runs for batch, _ in run.parts()]
        if len(batches) > 1:
            return pa.concat_batches(batches)
        return batches[0] if batches else pa.RecordBatch.from_pylist([], self.schema)

    def keep(self, number: int, chosen: Mask) -> None:
        """Keep only some rows of a number; ``chosen`` has an entry for each of ``rows(number, number + 1)``.

        A checkpoint made of a base and deltas may still have the others.
        """
        self._growing.pop(number, None)
        self.entries -= len(chosen) - int(chosen.sum())
        kept: dict[int | None, tuple[int, list[pa.RecordBatch]]] = {}  # by the first checkpoint that has them
        for run in list(self._runs.irange_key((number, 0), (number + 1, 0))):
            own, chosen = chosen[: run.count], chosen[run.count :]
            self._runs.remove(run)
            if own.any():
                batch = run.joined()[0].filter(to_array(own))
                kept.setdefault(run.first, (run.place, []))[1].append(batch)
        for first, (place, batches) in kept.items():
            batch = pa.concat_batches(batches)
            part = batch, np.full(batch.num_rows, number, np.int64)
            self._runs.add(_Run(place, part, number, number, first))

    def _close(self) -> None:
        self._growing.clear()

    def _removed(self, below: int) -> list[_Run]:
        runs = super()._removed(below)
        for run in runs:
            self._growing.pop(run.low, None)
        return runs


def in_order(parts: Sequence[Part]) -> Part:
    """Return the rows of ``parts``, at least one, in ascending order of their numbers; equal ones as they are."""
    batches, numbers = [batch for batch, _ in parts], np.concatenate([numbers for _, numbers in parts])
    batch = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
    if (numbers[1:] >= numbers[:-1]).all():
        return batch, numbers
    order = by_number(numbers)
    return batch.take(to_array(order)), numbers[order]


def by_number(numbers: Numbers) -> Slots:
    """Return the rows in ascending order of their numbers; rows of one number in the order in which they are.

    >>> by_number(np.array([30, -10, 30, 20])).tolist()
    [1, 3, 0, 2]
    """
    from operators.kernels.time_order import BITS, order_by_digit

    count = len(numbers)
    low, high = (int(numbers.min()), int(numbers.max())) if count else (0, 0)
    bits = (high - low).bit_length()
    if bits > 3 * BITS or count < 64:
        return np.argsort(numbers, kind="stable").astype(np.int32)
    order = np.arange(count, dtype=np.int32)
    counts, other = np.empty((1 << BITS) + 1, np.int64), fresh(np.int32, count)
    for shift in range(0, bits, BITS):
        order_by_digit(numbers, low, shift, order, counts, other)
        order, other = other, order
    return order


def _stored_rows(schema: pa.Schema, frozen: list[tuple[int, Sequence[Part]]]) -> Iterator[pa.RecordBatch]:
    """Yield frozen rows, in the order of arrival where their numbers are equal."""
    for _, parts in sorted(frozen, key=itemgetter(0)):
        rows = pa.concat_batches([batch for batch, _ in parts]) if len(parts) > 1 else parts[0][0]
        numbers = np.concatenate([numbers for _, numbers in parts]) if len(parts) > 1 else parts[0][1]
        own = [to_array(numbers), to_array(np.ones(len(numbers), np.bool_))]
        yield from small_batches(pa.RecordBatch.from_arrays([*rows.columns, *own], schema=schema))
