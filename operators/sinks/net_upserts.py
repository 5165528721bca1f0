"""A sink of signed changes that keeps the net row of each key, and calls a function with the keys whose row changed.

State: for each key its rows, added and taken back, by arrival; equal rows of both kinds cancel out, so a key usually
has one row. Rows that were taken back and not added yet are kept, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.declared_state import Log, Piece, Stateful
from dataflow.contracts.operator import OperatorContext, Out, Snapshot
from dataflow.contracts.render_rows import render_rows
from dataflow.contracts.sink import Guarantee, Sink
from dataflow.contracts.updates import CHANGE, Changes
from dataflow.errors import AmbiguousKey, CheckpointMismatch, GraphError, NegativeNet, SchemaMismatch, UnknownColumn
from dataflow.state.arrays import GREATEST, LEAST, is_key
from dataflow.state.dictionaries import decoded, decoded_schema
from dataflow.state.index import Slots
from dataflow.state.keyed_rows import ROW_TIME, TIME
from dataflow.state.keyed_state import KeyedState
from operators.sinks.net import equal_rows
from operators.sinks.receivers import ReceiverWriter
from operators.stateful.columns import ARRIVAL
from operators.stateful.nested_columns import NestedColumns, can_be_kept

__all__ = ["NetFunction", "NetUpsertSink"]

NetFunction = Callable[[pa.RecordBatch, pa.RecordBatch], object]
"""A function of the new rows, and of the keys that are gone."""

_AT_ONCE = 65_536
"""Keys that are read at once."""

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]


class NetUpsertSink(Sink):
    """The sink that ``upsert_batches`` makes with ``keys``."""

    guarantee = Guarantee.AT_LEAST_ONCE
    idempotent = True

    def __init__(self, factory: Callable[[OperatorContext], NetFunction], name: str, keys: tuple[str, ...]) -> None:
        self._factory = factory
        self._name = name
        self._keys = keys

    def __repr__(self) -> str:
        return f"upsert_batches({self._name}, keys={list(self._keys)})"

    @property
    def keys(self) -> tuple[str, ...]:
        return self._keys

    def check_changes(self, changes: Changes) -> None:
        if changes != "signed":
            raise GraphError(
                f'upsert_batches(keys=) is for signed changes, but the stream has {changes}: write emit="changes" at '
                "the aggregate, or leave keys out, and let the function replace the row of each key"
            )

    def check(self, schema: pa.Schema) -> None:
        for key in self._keys:
            if key not in schema.names or key == CHANGE:
                raise UnknownColumn(key, [name for name in schema.names if name != CHANGE], "upsert_batches(keys=)")
        for field in schema:
            if not can_be_kept(field.type):
                raise SchemaMismatch(
                    f"upsert_batches(keys=) keeps the rows of each key, and cannot keep column {field.name!r} of type "
                    f"{field.type}, because it is nested with a dictionary in it; cast it to one without, or drop it"
                )
            if field.name in self._keys and not is_key(field.type):
                raise SchemaMismatch(
                    f"upsert_batches(keys=) cannot compare keys of column {field.name!r} of type {field.type}; take "
                    "another column, or a column of text made of it"
                )

    def check_columns(self, before: Sequence[str], after: Sequence[str]) -> None:
        raise CheckpointMismatch(
            f"{self!r} keeps the rows of each key, with the columns {[*before]}, and cannot tell which of them a row "
            f"with the columns {[*after]} takes back; keep the columns with select(), or give the rows to another sink "
            "with a name of its own"
        )

    def writer(self, context: OperatorContext) -> NetUpsertWriter:
        return NetUpsertWriter(context, self._factory, self._keys)


class NetUpsertWriter(Stateful, ReceiverWriter):
    """Keeps the rows of the keys of one subtask."""

    def __init__(
        self, context: OperatorContext, factory: Callable[[OperatorContext], NetFunction], keys: tuple[str, ...]
    ) -> None:
        ReceiverWriter.__init__(self, context, factory, "upsert_batches")
        (schema,) = context.input_schemas
        dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        schema = decoded_schema(schema, dictionaries)
        self._schema = schema.remove(schema.get_field_index(CHANGE))
        self._keys = pa.schema([schema.field(key) for key in keys])
        kept = [field for field in schema if field.name not in keys]
        self._rows = pa.schema([*kept, pa.field(ARRIVAL, pa.int64())])
        self._columns = NestedColumns(self._rows)
        self._state = KeyedState(self._keys, pa.schema([]), rows=self._columns.kept)
        self._arrival = 0
        self._is_restored = False

    @property
    def kernels(self) -> Sequence[str]:
        return self._state.kernels

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        self._show_restored()
        if not batch.num_rows:
            return
        first = self._arrival
        arrivals = np.arange(first, first + batch.num_rows)
        self._arrival += batch.num_rows
        slots, _ = self._state.insert([decoded(batch.column(key)) for key in self._keys.names])
        slots = slots.copy()
        columns = [decoded(batch.column(name)) for name in self._rows.names[:-1]]
        rows = pa.RecordBatch.from_arrays([*columns, to_array(arrivals)], schema=self._rows)
        self._state.append(slots, arrivals, self._columns.encode(rows))
        self._show(np.unique(slots), first)

    def finish(self, out: Out) -> None:
        self._show_restored()
        if not self._context.repeated:  # else a change may have come twice
            for slots in self._chunks():
                self._check_end(slots)
        ReceiverWriter.finish(self, out)

    def snapshot(self) -> Snapshot:
        self._call_hook("flush")
        return Stateful.snapshot(self)

    def state(self) -> Mapping[str, Piece]:
        return {"rows": Log(self._state, len(self._keys), counts=[ROW_TIME, ARRIVAL])}

    def restored(self) -> None:
        numbers = self._state.all_rows
        if len(numbers):
            self._arrival = int(self._state.row_records[numbers, TIME].max()) + 1
        self._is_restored = True

    def _chunks(self) -> list[Slots]:
        slots = self._state.slots
        return [slots[at : at + _AT_ONCE] for at in range(0, len(slots), _AT_ONCE)]

    def _show_restored(self) -> None:
        """After a restore, show the row of every key: the run that failed may have shown later ones."""
        if not self._is_restored:
            return
        self._is_restored = False
        for slots in self._chunks():
            owners, rows, added = self._read(slots)
            last = _last_by_owner(owners, added, len(slots))
            shown = np.flatnonzero(last >= 0)
            self._call(self._keys_of(slots), shown, rows.take(to_array(last[shown])), np.empty(0, np.int64))

    def _show(self, slots: Slots, first: int) -> None:
        """Cancel out the rows of ``slots``, and call the function with those whose row changed; new: from ``first``."""
        owners, rows, added = self._read(slots)
        keys = self._keys_of(slots)
        numbers = equal_rows([to_array(owners), *[rows.column(name) for name in self._compared]])
        kept = _uncancelled(numbers, added)
        old = to_numbers(rows.column(ARRIVAL)) < first
        before, after = (_last_by_owner(owners, added & some, len(slots)) for some in (old, kept))
        if not kept.all():
            self._rewrite(keys, slots, owners, rows, kept)
        has, had = after >= 0, before >= 0
        changed = np.flatnonzero(has & ~(had & (numbers[before] == numbers[after])))
        self._call(keys, changed, rows.take(to_array(after[changed])), np.flatnonzero(had & ~has))

    def _rewrite(self, keys: list[pa.Array], slots: Slots, owners: Places, rows: pa.RecordBatch, kept: Mask) -> None:
        """Remove the rows that are not ``kept``. Keys without rows go; slots are valid no longer."""
        affected = np.zeros(len(slots), np.bool_)
        affected[owners[~kept]] = True
        self._state.drop_before(GREATEST, slots[affected])
        stay = np.flatnonzero(kept & affected[owners])
        if len(stay):
            again, _ = self._state.insert([key.take(to_array(owners[stay])) for key in keys])
            some = rows.take(to_array(stay))
            self._state.append(again.copy(), to_numbers(some.column(ARRIVAL)), self._columns.encode(some))

    def _call(self, keys: list[pa.Array], changed: Places, rows: pa.RecordBatch, gone: Places) -> None:
        """Call the function with the new ``rows`` of the keys ``changed``, and with the keys ``gone``."""
        if not len(changed) and not len(gone):
            return
        columns = dict(zip(self._keys.names, [key.take(to_array(changed)) for key in keys], strict=True))
        columns.update({name: rows.column(name) for name in self._compared})
        new = pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)
        self.receiver(new, pa.RecordBatch.from_arrays([key.take(to_array(gone)) for key in keys], schema=self._keys))

    def _read(self, slots: Slots) -> tuple[Places, pa.RecordBatch, Mask]:
        """Return the rows of ``slots``: for each its place in ``slots``, its columns, and whether it was added."""
        offsets, kept = self._state.between(slots, LEAST, GREATEST)
        rows = self._columns.decode(kept)
        owners = np.repeat(np.arange(len(slots)), np.diff(offsets))
        return owners, rows, to_numbers(rows.column(CHANGE)) > 0

    def _keys_of(self, slots: Slots) -> list[pa.Array]:
        return self._state.keys(slots)

    @property
    def _compared(self) -> list[str]:
        """The columns of a row beside its keys."""
        return [name for name in self._rows.names if name not in (CHANGE, ARRIVAL)]

    def _check_end(self, slots: Slots) -> None:
        """Raise an error if a key has two rows, or a row that was taken back and never added."""
        owners, _, added = self._read(slots)
        counts = np.bincount(owners[added], minlength=len(slots))
        if (counts > 1).any():
            key = self._shown_key(slots[counts > 1])
            others = f", and so have {more:,} more keys" if (more := int((counts > 1).sum()) - 1) else ""
            raise AmbiguousKey(
                f"sink {self._context.name!r}: the key {key} has {counts.max()} rows at the end{others}; "
                "keys= of upsert_batches must name columns of which each value has at most one row"
            )
        if not added.all():
            key = self._shown_key(slots[owners[~added]])
            raise NegativeNet(f"sink {self._context.name!r}: a row of key {key} was taken back and never added")

    def _shown_key(self, slots: Slots) -> str:
        (row,) = render_rows(pa.RecordBatch.from_arrays(self._keys_of(slots[:1]), schema=self._keys))
        return f"{row}"


def _last_by_owner(owners: Places, chosen: Mask, count: int) -> Places:
    """Return for each of ``count`` owners the place of its last chosen row, -1 if it has none. Rows are by owner."""
    last = np.full(count, -1, np.int64)
    places = np.flatnonzero(chosen)
    last[owners[places]] = places  # of equal owners, numpy assigns the last
    return last


def _uncancelled(numbers: Places, added: Mask) -> Mask:
    """Return which rows are left of each number: the last of those that were added, or else that were taken back."""
    net = np.zeros(int(numbers.max(initial=-1)) + 1, np.int64)
    np.add.at(net, numbers, np.where(added, 1, -1))
    kept = np.zeros(len(numbers), np.bool_)
    for sign, rows in ((1, np.flatnonzero(added)), (-1, np.flatnonzero(~added))):
        back = rows[::-1]
        order = back[np.argsort(numbers[back], kind="stable")]  # by number, the last row first
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
        kept[order] = rank < sign * net[numbers[order]]
    return kept
