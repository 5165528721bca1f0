"""Running aggregates per key: counts, sums, extremes, means and more, updated with every batch.

With ``Emit.UPDATES`` the output is a changelog (one row for each key a batch touched, or at intervals), with
``Emit.CHANGES`` it is signed changes (the row that was shown of a key, and its new one), with ``Emit.FINAL`` one row a
key at the end. The input may have signed changes, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.declared_state import Log, Passed, Piece, Stateful, Value
from dataflow.contracts.operator import OperatorContext, Out, Snapshot
from dataflow.contracts.windows import EventTime
from dataflow.errors import ConfigurationError, SchemaMismatch, UnknownColumn
from dataflow.expressions import Aggregation, col
from dataflow.planning.aggregate_specs import Emit
from dataflow.state.dictionaries import key_schema
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState, Ttl
from operators.aggregation.layout import SHOWN, TOUCHED
from operators.aggregation.records import Records, SumOverflow
from operators.aggregation.show_state import shown_state
from operators.aggregation.sums import overflow_of
from operators.stateful.changes import ShownRows
from operators.stateful.chunks import CHUNK, emitted
from operators.stateful.columns import RECORD, is_partial, key_columns, state_keys
from operators.stateful.expiry import KeyExpiry
from operators.stateful.lives import Lives

__all__ = ["AggregateOperator"]

_SHOWN_ROWS = "shown"
"""The table of a snapshot with the shown rows of the keys touched since the last emission."""

_ONE_ROW = pa.RecordBatch.from_arrays([pa.nulls(1)], [""])


class AggregateOperator(Stateful):
    """Folds rows, or partial records of them (``operators.aggregation.combine``), into one record a key.

    Emission: with ``Emit.UPDATES``, every ``process`` emits one row for each key of its batch, in order of first touch;
    with ``every`` (microseconds) the keys touched since the last emission are emitted by timers, and the rest by
    ``finish``. ``Emit.CHANGES`` does the same with two rows a key, but none for keys whose row is as it was shown. With
    ``Emit.FINAL``, ``finish`` emits one row a key, in the order of the keys' first rows, and drops the state. If the
    input has signed changes, ``weight`` is their column: keys are emitted while they have rows, and are dropped when
    nothing is left of them.

    State: one slot a key; see ``operators.aggregation.records``. With ``Emit.CHANGES`` also the shown rows of the keys
    touched since the last emission, of which there are some only with ``every``.

    Raises: UnknownColumn and SchemaMismatch when built; OverflowError when a sum of integers exceeds 64 bits, naming
    the key and the column.
    """

    def __init__(
        self,
        context: OperatorContext,
        keys: Sequence[str],
        aggregations: Sequence[Aggregation],
        emit: Emit,
        every: int | None = None,
        ttl: Ttl | None = None,
        time: EventTime | None = None,
        weight: str | None = None,
    ) -> None:
        if every is not None and (emit is Emit.FINAL or every <= 0):
            raise ConfigurationError(f"{context.name}: every={every} us needs a positive interval, and not Emit.FINAL")
        (schema,) = context.input_schemas
        for key in keys:
            if key not in schema.names:
                raise UnknownColumn(key, schema.names, context.name)
        self._context = context
        self._emit = emit
        self._every = every
        self._weight = None if weight is None else col(weight)
        self._passed = Passed()
        self._expiry = None if ttl is None else KeyExpiry(ttl, time, context, self._passed)
        self._timer_set = False
        self._aggregations = list(aggregations)
        self._keys = list(keys)
        self._key_schema = state_keys(key_schema(context.output_schema, keys))
        self._has_emitted = False
        self._lives = Lives()
        self._start()
        self._check_output()

    def _start(self) -> None:
        """Begin with empty state."""
        schema, where = self._context.input_schemas[0], self._context.name
        flags = [*([TOUCHED] if self._every is not None else []), *([SHOWN] if self._emit is Emit.CHANGES else [])]
        self._records = Records(self._aggregations, schema, where, self._weight, flags=flags)
        ttl = None if self._expiry is None else self._expiry.ttl
        self._state = KeyedState(self._key_schema, self._records, ttl=ttl)
        is_shown = self._emit is Emit.CHANGES
        self._shown = ShownRows(self._state, self._key_schema, self._records.types) if is_shown else None

    def _present(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Return whether each slot has a row in the result: if it has rows, and always over all rows."""
        return self._records.present(slots) if self._keys else np.ones(len(slots), np.bool_)

    @property
    def kernels(self) -> Sequence[str]:
        return (*self._state.kernels, *(self._lives.kernels if self._expiry is not None else ()))

    def open(self) -> None:
        if len(self._records.touched):
            self._set_timer()

    @classmethod
    def show(cls, spec: Any, snapshot: Snapshot, inputs: Sequence[pa.Schema], output: pa.Schema) -> Snapshot:
        return shown_state(spec, snapshot, inputs[0], output)

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if not batch.num_rows:
            return None
        keys = key_columns(batch, self._keys)
        if self._expiry is None:
            slots, _ = self._state.insert(keys)
        else:
            slots, fresh = self._expiry.insert(self._state, keys, batch)
            if self._shown is not None:
                self._shown.drop(slots[fresh])  # a row that expired is not taken back
            lasting = self._lives.lasting(slots, fresh, len(self._state.records))
            if lasting is not None:
                batch, slots = batch.filter(to_array(lasting)), slots[lasting]
        if self._shown is not None:
            self._keep_shown(self._shown, slots)
        self._fold(batch, slots)
        if self._expiry is not None:
            self._expiry.sweep(self._state, len(slots))
        if self._every is not None:
            self._set_timer()
        elif self._shown is not None:
            return self._emit_touched(out)
        elif self._emit is Emit.UPDATES:
            out.emit(self._rows(self._records.touched))
            self._records.forget_touched()
        elif self._weight is not None:
            touched = self._records.touched.copy()
            self._state.change(touched)
            self._records.forget_touched()
            self._drop_vacant(touched)
        return None

    def _fold(self, batch: pa.RecordBatch, slots: Slots) -> None:
        with self._naming_key(slots):
            if is_partial(batch.schema):
                self._records.merge(batch.column(RECORD), slots)
            else:
                self._records.fold(batch, slots)

    @contextmanager
    def _naming_key(self, slots: Slots) -> Iterator[None]:
        """Name operator, column and key in the error of a sum that does not fit; row i of it is of ``slots[i]``."""
        try:
            yield
        except SumOverflow as error:
            key = self._state.keys(slots[error.row : error.row + 1])
            raise overflow_of(self._context.name, error, key, self._key_schema) from error

    def advance(self, watermark: int, out: Out) -> None:
        if self._expiry is not None:
            self._expiry.advance(watermark, self._state)

    def timer(self, due: int, out: Out) -> Iterator[None] | None:
        self._timer_set = False
        return self._emit_touched(out) if len(self._records.touched) else None

    def finish(self, out: Out) -> Iterator[None] | None:
        if not self._keys and not self._state.live and not self._has_emitted:
            slots, _ = self._state.insert(key_columns(_ONE_ROW, ()))  # there were no rows: an empty record
            if self._emit is Emit.UPDATES:
                out.emit(self._rows(slots))
            elif self._shown is not None:
                self._keep_shown(self._shown, slots)
        if self._emit is Emit.FINAL:
            return self._emit_all(out)
        return self._emit_touched(out) if len(self._records.touched) else None

    def state(self) -> Mapping[str, Piece]:
        count = len(self._key_schema)
        pieces: dict[str, Piece] = {
            "state": Log(self._state, count, owners=self._records.owners, initial=self._records.initial),
            "emitted": Value(self, "_has_emitted", bool, "all"),
        }
        if self._expiry is not None:
            pieces |= self._expiry.state()
        if self._shown is not None:
            pieces[_SHOWN_ROWS] = self._shown.piece(count, self._changed, self._records)
        return pieces

    def _changed(self) -> Slots:
        """Return the slots that were shown and have changed since."""
        return self._shown_of(self._records.touched)

    def _shown_of(self, slots: Slots) -> Slots:
        return slots[self._records.shown(slots)]

    def _keep_shown(self, shown: ShownRows, slots: Slots) -> None:
        """List ``slots``, which are about to change, as touched, and keep the rows shown of those that were not."""
        gone = self._shown_of(self._records.touch(slots))
        shown.keep(gone, self._records.read(gone))

    def _rows(self, slots: Slots) -> pa.RecordBatch:
        slots = slots[self._present(slots)]
        return self._batch(slots, self._read(slots))

    def _read(self, slots: Slots) -> list[pa.Array]:
        with self._naming_key(slots):
            return self._records.read(slots)

    def _batch(self, slots: Slots, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*self._user_keys(slots), *columns], schema=self._context.output_schema)

    def _user_keys(self, slots: Slots) -> list[pa.Array]:
        """Return the key columns of the output; over all rows there are none."""
        return self._state.keys(slots)[: len(self._keys)]

    def _drop_vacant(self, slots: Slots) -> None:
        """Drop the keys of ``slots`` of which nothing is left."""
        if self._weight is not None and self._keys:
            self._state.delete(self._records.vacant(slots))

    def _emit_touched(self, out: Out) -> Iterator[None]:
        touched = self._records.touched.copy()
        self._state.change(touched)
        self._records.forget_touched()
        if self._shown is None:
            yield from emitted((self._rows(touched[at : at + CHUNK]) for at in range(0, len(touched), CHUNK)), out)
            return
        present = self._present(touched)
        self._records.show(touched, present)
        changes = self._shown.changes(touched, self._read, present)
        yield from emitted((self._batch(slots, [*values, to_array(w)]) for slots, values, w in changes), out)
        self._drop_vacant(touched)

    def _emit_all(self, out: Out) -> Iterator[None]:
        slots = self._state.slots
        for start in range(0, len(slots), CHUNK):
            out.emit(self._rows(slots[start : start + CHUNK]))
            yield
        self._has_emitted = not self._keys
        self._start()

    def _set_timer(self) -> None:
        if self._every is not None and not self._timer_set:
            self._timer_set = True
            self._context.schedule(self._context.clock.now() + self._every)

    def _check_output(self) -> None:
        change = [pa.int8()] if self._emit is Emit.CHANGES else []
        expected = [*self._key_schema.types[: len(self._keys)], *self._records.types, *change]
        if self._context.output_schema.types != expected:
            raise SchemaMismatch(
                f"{self._context.name}: keys and aggregates have the types {[str(t) for t in expected]}, but the "
                f"output schema has {[str(t) for t in self._context.output_schema.types]}"
            )
