"""Conversion of rows of Python values to record batches of a declared schema, with errors by row and column.

>>> rows = RowBatches(pa.schema({"x": pa.int64()}), "map 'double'")
>>> batch, misfits = rows.batch([{"x": 1}, {"x": "two"}, {"x": 3}])
>>> batch.to_pylist(), list(misfits)
([{'x': 1}, {'x': 3}], [1])
>>> print(misfits[1])
map 'double': column 'x' should be int64 but the row has 'two' (str)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.declared_schema import misplaced_nulls
from dataflow.errors import SchemaMismatch, did_you_mean

__all__ = ["RowBatches", "cuts"]

Row = Mapping[str, Any]
_SHOWN = 80


class RowBatches:
    """Makes batches of ``schema``. ``where`` names the producer of the rows in messages.

    Values are converted if nothing is lost: an int to a float column, 2.0 to an integer, an aware datetime to a
    timestamp of any zone, a UUID to text.
    """

    def __init__(self, schema: pa.Schema, where: str) -> None:
        self._schema = schema
        self._names = frozenset(schema.names)
        self._where = where

    def check(self, row: object) -> None:
        """Raise TypeError if ``row`` is not a mapping, SchemaMismatch if its keys are not the schema's columns."""
        if type(row) is not dict and not isinstance(row, Mapping):  # the first test is ten times as fast
            raise TypeError(
                f"{self._where}: a row must be a dict with the columns {self._schema.names}, got {_shown(row)}; "
                "use map_batches for functions over whole batches"
            )
        if row.keys() != self._names:
            missing = [name for name in self._schema.names if name not in row]
            problems = [f"column {name!r} is missing" for name in missing]
            problems += [
                f"column {name!r} is not in the declared schema{did_you_mean(str(name), self._schema.names)}"
                for name in row
                if name not in self._names
            ]
            raise SchemaMismatch(f"{self._where}: {'; '.join(problems)}; change the row or the declared schema=")

    def batch(self, rows: Sequence[Row]) -> tuple[pa.RecordBatch, dict[int, Exception]]:
        """Return the checked ``rows`` that fit as a batch, and an error for each that does not, by its index."""
        columns, misfits = [], dict[int, Exception]()
        for field in self._schema:
            values = [row[field.name] for row in rows]
            column = self._column(field, values)
            if column is None:
                misfits.update(self._misfits(field, values))
            columns.append(column)
        if misfits:
            return self.batch([row for i, row in enumerate(rows) if i not in misfits])[0], dict(sorted(misfits.items()))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema), misfits

    def _column(self, field: pa.Field, values: Sequence[object]) -> pa.Array | None:
        """Return the values as a column; None if some do not fit."""
        try:
            column = to_array(values, field.type)
        except Exception:  # pyarrow raises a dozen kinds; _misfits finds the value, one by one
            if pa.types.is_string(field.type) and any(isinstance(value, UUID) for value in values):
                return self._column(field, [str(value) if isinstance(value, UUID) else value for value in values])
            return None
        if cuts(field.type, values):
            return None
        return None if any(misplaced_nulls(column, field)) else column

    def _misfits(self, field: pa.Field, values: Sequence[object]) -> dict[int, Exception]:
        errors: dict[int, Exception] = {}
        for i, value in enumerate(values):
            if self._column(field, [value]) is None:
                kind = f"{field.type}" if field.nullable else f"{field.type}, not null,"
                errors[i] = SchemaMismatch(
                    f"{self._where}: column {field.name!r} should be {kind} but the row has {_shown(value)}"
                )
        assert errors, (
            f"{self._where}: column {field.name!r}: each of {len(values)} values converts, but not all of them"
        )
        return errors


_EXACT: Final = {int, bool, str, bytes, type(None)}
_STEPS: Final = {"s": 1_000_000, "ms": 1_000}


def cuts(type_: pa.DataType, values: Sequence[object]) -> bool:
    """Return whether ``pa.array(values, type_)`` would truncate silently: 1.5 as an integer, a datetime as a date.

    >>> cuts(pa.int64(), [1, 2.0, None]), cuts(pa.list_(pa.int64()), [[1], [2, 2.5]])
    (False, True)
    """
    if pa.types.is_nested(type_):
        present = [value for value in values if value is not None]
        return any([cuts(field.type, parts) for field, parts in _parts(type_, present)])
    whole = pa.types.is_integer(type_) or pa.types.is_temporal(type_)
    return whole and not _EXACT.issuperset(map(type, values)) and any([_is_cut(type_, value) for value in values])


def _parts(type_: pa.DataType, values: Sequence[Any]) -> list[tuple[pa.Field, list[Any]]]:
    """Return the fields of a nested type, each with its parts of ``values``, which convert to the type."""
    if pa.types.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        rows = [dict(value) for value in values]
        return [(field, [row.get(field.name) for row in rows]) for field in fields]
    if pa.types.is_map(type_):
        pairs = [pair for value in values for pair in (value.items() if isinstance(value, Mapping) else value)]
        return [(type_.key_field, [key for key, _ in pairs]), (type_.item_field, [item for _, item in pairs])]
    if hasattr(type_, "value_field"):
        return [(type_.value_field, [part for value in values for part in value])]
    return []


def _is_cut(type_: pa.DataType, value: object) -> bool:
    match value:
        case float() | Decimal() | np.floating():
            return not math.isfinite(value) or value != int(value)
        case datetime() if pa.types.is_date(type_):
            return value.time() != time()
        case datetime() if pa.types.is_timestamp(type_):
            return value.microsecond % _STEPS.get(type_.unit, 1) != 0
        case timedelta() if pa.types.is_duration(type_):
            return value.microseconds % _STEPS.get(type_.unit, 1) != 0
        case _:
            return False


def _shown(value: object) -> str:
    text = repr(value)
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return f"{text} ({type(value).__name__})"
