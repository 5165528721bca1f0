"""An operator whose key groups have different watermarks: one instance for each range of key groups.

After a change of parallelism a subtask may get key groups of several old subtasks, and these had reached different
watermarks. A range whose watermark was further ahead must not take its late rows for rows on time, fire its windows
again, or return values that had expired. So each range keeps an instance of the operator, which continues exactly where
its old subtask was: it gets a watermark only if it is above the one that the range had reached. A range whose input had
ended is not called any more.

Once all ranges have reached the same watermark, nothing tells them apart, and they become one instance: its state is
made of theirs by the stored rules (``state_shares``), as a restore would do it.

Guarantees: the calls of each instance follow the contract of ``dataflow.contracts.operator``; keys keep their order.
This code assumes: the state of the operator belongs to keys, or is equal for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dataflow.contracts.operator import Operator, OperatorContext, Out, Snapshot
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.runtime.task.parts import StoredRange, range_name
from dataflow.runtime.task.state_shares import NewSubtask, Share, merge_shares

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RangedOperator"]

_NEVER = 2**62
"""A checkpoint id that no job reaches."""


@dataclass(slots=True)
class _Range:
    """A range with its instance. ``reached`` and the ends only move forward."""

    groups: range
    operator: Operator
    reached: int | None
    ended: bool
    ended_ports: set[int]

    @property
    def standing(self) -> tuple[object, ...]:
        return self.reached, self.ended, frozenset(self.ended_ports)


class _Muted(Out):
    """Takes the rows that further ranges emit for rows that come to each of them, so that they are emitted once."""

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        """Drop the rows."""

    def watermark(self, time: int) -> None:
        """Never called: operators that make time have no ranges."""
        raise NotImplementedError

    def idle(self) -> None:
        """Never called, either."""
        raise NotImplementedError


class RangedOperator(Operator):
    """Calls the instance of each range. See the module's text.

    Args:
        context: the context of the subtask; ``restored`` is not used.
        shares: the state of each range, in ascending order; they cover the key groups of the subtask that had state.
        keys: of each input port, the columns whose hash decides the key group of a row; none: its rows go to all.
        make: makes an instance, restored from the snapshot in its context.
        unite: is called with the one operator that takes the place of this one.
    """

    def __init__(
        self,
        context: OperatorContext,
        shares: Sequence[Share],
        keys: Sequence[Sequence[str]],
        make: Callable[[OperatorContext], Operator],
        unite: Callable[[Operator], None],
    ) -> None:
        super().__init__(context)
        self._make = make
        self._unite = unite
        self._keys = [tuple(columns) for columns in keys]
        #: Timers that instances have asked for and that were not called yet: when, and by which range.
        self._scheduled: list[tuple[int, int]] = []
        self._ranges = [
            _Range(
                share.groups,
                make(self._context_of(number, share)),
                share.reached,
                share.ended,
                set(share.ended_ports),
            )
            for number, share in enumerate(shares)
        ]
        #: The first key group of each range, for the range of a key group.
        self._firsts = [each.groups.start for each in self._ranges]

    def _context_of(self, number: int, share: Share) -> OperatorContext:
        return replace(
            self.context,
            key_groups=share.groups,
            restored=share.snapshot,
            schedule=partial(self._schedule, number, self.context.schedule),
            schedule_at=partial(self._schedule, number, self.context.schedule_at),
        )

    def _schedule(self, number: int, schedule: Callable[[int], None], due: int) -> None:
        schedule(due)
        self._scheduled.append((due, number))

    # --- the calls of the contract

    @property
    def kernels(self) -> Sequence[str]:
        return self._ranges[0].operator.kernels

    def open(self) -> None:
        for each in self._ranges:
            each.operator.open()

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        for number, rows in self._divided(port, batch):
            each = self._ranges[number]
            assert not each.ended, f"{self.context.name}: rows for the key groups {each.groups}, which have ended"
            yield from _drained(each.operator.process(port, rows, out if self._keys[port] or not number else _Muted()))

    def _divided(self, port: int, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each range, in their order; all rows for each, if the port has no keys."""
        import numpy as np

        from dataflow.arrow_values import to_array
        from dataflow.state.hashing import hash_rows, key_groups

        if not self._keys[port]:
            yield from [(number, batch) for number, each in enumerate(self._ranges) if not each.ended]
            return
        hashes = hash_rows([batch.column(name) for name in self._keys[port]])
        groups = key_groups(hashes, self.context.max_key_groups)
        numbers = np.maximum(np.searchsorted(self._firsts, groups, side="right") - 1, 0)
        for number in np.unique(numbers).tolist():
            mask = numbers == number
            yield number, batch if mask.all() else batch.filter(to_array(mask))

    def advance(self, watermark: int, out: Out) -> Iterator[None]:
        for each in self._ranges:
            if not each.ended and (each.reached is None or watermark > each.reached):
                each.reached = watermark
                yield from _drained(each.operator.advance(watermark, out))
        if watermark < MAX_WATERMARK and len({each.standing for each in self._ranges}) == 1:
            self._become_one()

    def held(self, watermark: int) -> int:
        """Return the least watermark that any range holds."""
        held = [watermark]
        for each in self._ranges:
            reached = watermark if each.reached is None else max(watermark, each.reached)
            if not each.ended and reached != MAX_WATERMARK:
                held.append(each.operator.held(reached))
        return min(held)

    def ended(self, port: int, out: Out) -> Iterator[None]:
        for each in self._ranges:
            if not each.ended and port not in each.ended_ports:
                each.ended_ports.add(port)
                yield from _drained(each.operator.ended(port, out))

    def timer(self, due: int, out: Out) -> Iterator[None]:
        found = next((entry for entry in self._scheduled if entry[0] == due), None)
        if found is None:
            return
        self._scheduled.remove(found)
        each = self._ranges[found[1]]
        if not each.ended:
            yield from _drained(each.operator.timer(due, out))

    def finish(self, out: Out) -> Iterator[None]:
        for each in self._ranges:
            if not each.ended:
                yield from _drained(each.operator.finish(out))

    def close(self) -> None:
        with ExitStack() as closing:  # each of them, also after an error
            for each in reversed(self._ranges):
                closing.callback(each.operator.close)

    # --- checkpoints

    def snapshots(self) -> Mapping[str, Snapshot]:
        """Return the state of each range, by the name under which it is stored."""
        name = self.context.name
        return {range_name(name, i): each.operator.snapshot() for i, each in enumerate(self._ranges)}

    @property
    def stored_ranges(self) -> list[StoredRange]:
        """The ranges, for a checkpoint."""
        return [
            StoredRange(each.groups.start, each.groups.stop, each.reached, each.ended, tuple(sorted(each.ended_ports)))
            for each in self._ranges
        ]

    @property
    def operators(self) -> Sequence[Operator]:
        """The instances, by range."""
        return [each.operator for each in self._ranges]

    def _become_one(self) -> None:
        """Replace the instances by one, whose state is made of theirs."""
        context = self.context
        groups = range(self._ranges[0].groups.start, self._ranges[-1].groups.stop)
        shares = [
            Share(number, each.groups, _frozen(each.operator.snapshot())) for number, each in enumerate(self._ranges)
        ]
        new = NewSubtask(context.subtask, context.parallelism, groups, context.max_key_groups)
        merged = merge_shares(shares, new, context.name)
        self.close()
        self._unite(self._make(replace(context, restored=merged)))


def _frozen(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with the rows of its logs and readers, as a restore would find them."""
    logs: Any = snapshot.logs
    frozen = {
        name: [{table: reader.read_all() for table, reader in log.freeze(_NEVER, None).items()}]
        for name, log in logs.items()
    }
    tables: Any = snapshot.tables
    whole = {name: table if hasattr(table, "num_rows") else table.read_all() for name, table in tables.items()}
    return Snapshot(snapshot.values, whole, frozen, snapshot.rules)


def _drained(emission: Any) -> Iterator[None]:
    """Yield what a call of an instance yields, if it is a generator."""
    if emission is not None:
        yield from emission
