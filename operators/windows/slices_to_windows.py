"""State by slice as state by window, for an aggregate that was added and whose records cannot be merged.

A record of a slice counts for each window that has the slice. So the records of a window are merged from those of its
slices, as results of windows are (``slides``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.operator import Snapshot
from dataflow.expressions import Aggregation
from dataflow.state.keyed_state import KeyedState
from dataflow.state.parts import arranged, counting
from operators.aggregation.partials import merge_column
from operators.aggregation.records import Records
from operators.stateful.columns import WINDOW
from operators.stateful.window_numbers import BySlice, ByWindow

__all__ = ["by_windows"]

_AT_ONCE: Final = 1 << 14
"""Records of slices that are merged into windows together."""


def by_windows(
    stored: Snapshot,
    slices: BySlice,
    windows: ByWindow,
    keys: pa.Schema,
    aggregations: Sequence[Aggregation],
    rows: pa.Schema,
    where: str,
) -> pa.Table:
    """Return the log "state" of a checkpoint, which is by slice, as a base by window.

    Windows that are over are among the rows. The columns are those of records that can be merged.

    Args:
        stored: the state of the operator.
        slices: how the state is numbered.
        windows: how it is to be numbered.
        keys: the user's key columns.
        aggregations: those that the state has.
        rows: the columns of the rows that are aggregated.
        where: the name of the operator.
    """
    window = pa.field(WINDOW, pa.int64())

    def empty(key_schema: pa.Schema) -> tuple[Records, KeyedState]:
        records = Records(aggregations, rows, where, merged_by=merge_column(slices))
        return records, KeyedState(key_schema, records)

    before, held = empty(keys.append(window))
    merged, result = empty(pa.schema([*keys, *windows.key_fields, window]))
    low, parts = stored.rules["state"].low, []
    for part in _parts(stored):
        table = part["keys"] if low is None else counting(part["keys"], *low)
        slices.check(table.column(len(keys)))
        parts.append({"keys": arranged(table, held.stored["keys"])})
    held.restore(parts)
    slots = held.slots
    slots = slots[np.argsort(to_numbers(held.keys(slots)[-1]), kind="stable")]
    for start in range(0, len(slots), _AT_ONCE):
        some = slots[start : start + _AT_ONCE]
        *of_user, numbers = held.keys(some)
        entries = windows.of_slices(to_numbers(numbers))
        assert entries.starts is not None, "windows have starts"
        assert entries.rows is not None, "a slice may be in several windows"
        taken = [key.take(to_array(entries.rows)) for key in of_user]
        places, _ = result.insert([*taken, to_array(entries.starts), to_array(entries.numbers)])
        merged.merge_from(before, some[entries.rows], places, 0)
    (table,) = [reader.read_all() for reader in result.freeze(1).values()]
    return table


def _parts(stored: Snapshot) -> Sequence[Mapping[str, pa.Table]]:
    parts: Any = stored.logs["state"]
    return parts
