"""Cells of sessions for aggregates whose records cannot be merged: they hold their rows as well."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.errors import CheckpointMismatch, SchemaMismatch
from dataflow.expressions import Aggregation
from dataflow.expressions.aggregates import identities
from dataflow.planning.evolved_aggregates import ROWS, WAY_OUT, check_rows
from dataflow.state.arrays import GREATEST, LEAST, Numbers, is_bytes, is_word, plain
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState
from dataflow.state.parts import is_base, marked
from dataflow.state.ranges import SEQUENCE
from operators.aggregation.partials import folded_columns
from operators.aggregation.records import Records, SumOverflow
from operators.windows.folded_sessions import FoldedSessions, is_free_of_order
from operators.windows.session_cells import MergedCells, Overflow
from operators.windows.session_chains import Sessions

__all__ = ["RowCells", "make_cells"]


class RowCells(MergedCells):
    """Cells with a record for the aggregates that can be merged, and with all of their rows for the others.

    If all of the others are free of the order of rows, sessions that change after they came out have records, too.
    """

    def __init__(
        self, keys: pa.Schema, gap: int, aggregations: Sequence[Aggregation], rows: pa.Schema, where: str, time: str
    ) -> None:
        self._all = aggregations
        self._unmerged = _unmergeable(aggregations, rows, where)
        self._kept = self._kept_columns(folded_columns(rows, (), self._unmerged), where)
        super().__init__(keys, gap, [a for a in aggregations if a not in self._unmerged], rows, where, time)
        self._folds_once = all([is_free_of_order(a, time) for a in self._unmerged])
        self._folds_by_arrival = any([_goes_by_arrival(a, time) for a in self._unmerged])
        self._sessions = FoldedSessions(self._unmerged, self._kept, where)

    @staticmethod
    def _kept_columns(rows: pa.Schema, where: str) -> pa.Schema:
        fields = []
        for field in rows:
            type_ = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            type_ = plain(pa.nulls(0, type_)).type
            if not (is_word(type_) or is_bytes(type_)):
                raise SchemaMismatch(
                    f"{where}: sessions with such aggregates keep rows, and the column {field.name!r} of type "
                    f"{field.type} cannot be kept: compute a column of numbers, times or text of it before, or use "
                    "aggregates that can be merged, such as count, sum, min, max and mean of numbers"
                )
            fields.append(pa.field(field.name, type_))
        return pa.schema(fields)

    @property
    def owners(self) -> Mapping[str, Sequence[str]]:
        """The columns of each aggregate: of those that cannot be merged, the columns of the rows."""
        named = zip(identities(self._unmerged), self._unmerged, strict=True)
        return {**super().owners, **{identity: list(a.columns()) for identity, a in named}}

    def converted(
        self, part: Mapping[str, pa.Table], owners: Mapping[str, Sequence[str]], added: Collection[str]
    ) -> Mapping[str, pa.Table]:
        part = super().converted(part, owners, added)
        if ROWS not in part:  # the aggregates of the checkpoint needed none
            stored = self.state.stored[ROWS]
            empty = marked(stored, base=is_base(part["keys"]), keys=len(self._keys) + 2).empty_table()
            return {**part, ROWS: empty}
        for identity, aggregation in zip(identities(self._unmerged), self._unmerged, strict=True):
            if identity in added:
                check_rows(aggregation, part[ROWS].column_names)
        return part

    def check_shown(self, parts: Sequence[Mapping[str, pa.Table]], added: Collection[str]) -> None:
        new = [identity for identity in identities(self._unmerged) if identity in added]
        if new and any([ROWS in part for part in parts]):
            raise CheckpointMismatch(
                f"the aggregate {new[0]} cannot be added, because it is computed from rows of sessions, and those that "
                f"were shown without it would be taken back with a value of it; {WAY_OUT}"
            )

    def _new_state(self, keys: pa.Schema) -> KeyedState:
        return KeyedState(keys, self._records, rows=self._kept)

    @property
    def kernels(self) -> Sequence[str]:
        unmerged = Records(self._unmerged, self._kept, self._where)
        return (*super().kernels, *unmerged.kernels, *self._sessions.kernels)

    def _fold(self, batch: pa.RecordBatch, times: Numbers, slots: Slots) -> None:
        super()._fold(batch, times, slots)
        columns = []
        for field in self._kept:
            column = plain(batch.column(field.name))
            columns.append(column.dictionary_decode() if pa.types.is_dictionary(column.type) else column)
        rows = pa.RecordBatch.from_arrays(columns, schema=self._kept)
        self.state.append(slots, times, rows)
        self._sessions.fold(rows, slots)

    def expect_changes(self, sessions: Sessions) -> None:
        if self._folds_once:
            self._sessions.make(sessions, self._rows_of)

    def _rows_of(self, slots: Slots) -> tuple[Numbers, pa.RecordBatch]:
        return self.state.between(slots, LEAST, GREATEST)

    def _read(self, sessions: Sessions) -> list[pa.Array]:
        merged = iter(super()._read(sessions) if self._aggregations else ())
        unmerged = iter(self._read_unmerged(sessions))
        return [next(unmerged if a in self._unmerged else merged) for a in self._all]

    def _read_unmerged(self, sessions: Sessions) -> list[pa.Array]:
        slots = self._sessions.current(sessions, self._rows_of)
        folded = slots >= 0
        if folded.all():
            return self._sessions.read(slots)
        try:
            others = self._read_rows(sessions.chosen(~folded))
        except SumOverflow as error:
            error.row = int(np.flatnonzero(~folded)[error.row])
            raise
        if not folded.any():
            return others
        places = np.empty(len(sessions), np.int64)
        places[np.argsort(~folded, kind="stable")] = np.arange(len(sessions))
        columns = zip(self._sessions.read(slots[folded]), others, strict=True)
        return [pa.concat_arrays(pair).take(to_array(places)) for pair in columns]

    def _read_rows(self, sessions: Sessions) -> list[pa.Array]:
        """Fold all rows of sessions: in the order of time, or of arrival."""
        offsets, rows = self.state.rows_between(sessions.cells, LEAST, GREATEST)
        numbers = np.repeat(sessions.numbers, np.diff(offsets))
        if self._folds_by_arrival:
            order = np.argsort(self.state.row_records[rows, SEQUENCE])
            rows, numbers = rows[order], numbers[order]
        records = Records(self._unmerged, self._kept, self._where)
        try:
            records.fold(self.state.read_rows(rows), numbers, len(sessions))
        except SumOverflow as error:
            error.row = int(numbers[error.row])
            raise
        return records.read(np.arange(len(sessions), dtype=np.int32))

    def absorb(self, slots: Slots, overflow: Overflow) -> None:
        """Keep the cells: their rows are needed until the session comes out."""

    def delete(self, slots: Slots) -> None:
        self._sessions.drop(slots)
        super().delete(slots)


def _goes_by_arrival(aggregation: Aggregation, time: str) -> bool:
    """Return whether rows are folded in the order of arrival, and not by their times in the column ``time``."""
    by = aggregation.by
    return aggregation.functions is not None or (by is not None and not by.is_column(time))


def _unmergeable(aggregations: Sequence[Aggregation], rows: pa.Schema, where: str) -> list[Aggregation]:
    """Return the aggregates whose records cannot be merged, and those that choose a row with one of them."""
    alone = [a for a in aggregations if not Records([a], rows, where).mergeable]
    together = any([a.chooses_a_row for a in alone])
    return [a for a in aggregations if a in alone or (together and a.chooses_a_row)]


def make_cells(
    keys: pa.Schema, gap: int, aggregations: Sequence[Aggregation], rows: pa.Schema, where: str, time: str
) -> MergedCells:
    """Return empty cells for ``aggregations``.

    Raises: SchemaMismatch for arguments that cannot be aggregated, or rows that cannot be kept.
    """
    kind = MergedCells if Records(aggregations, rows, where).mergeable else RowCells
    return kind(keys, gap, aggregations, rows, where, time)
