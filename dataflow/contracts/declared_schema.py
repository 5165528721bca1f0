"""Check batches against the schema declared for them: columns by name, never by position.

The same rule holds for functions, operators and sources of users: the names are compared as a set, types must be equal
(an index of a dictionary may be narrower). A batch's nullability flags and metadata are ignored, but a column declared
not null must hold no null: else a sink would write a file that violates its own schema, or be blamed for it. Columns of
extension types become plain ones, in the schema and in batches. Batches that fit are returned with columns in the
declared order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.arrow_values import to_array
from dataflow.errors import SchemaMismatch, did_you_mean, repeated_names
from dataflow.state.dictionaries import either_schema, wide_type, widened_array
from dataflow.state.extension_types import plain_schema

__all__ = ["DeclaredSchema", "misplaced_nulls"]

_SHOWN = 8
"""Limit for the columns of each schema shown in a message."""


class DeclaredSchema:
    """Converts batches to ``schema``. ``found`` names the data in messages, ``advice`` is the change to suggest.

    The columns ``either`` are dictionaries of text, and a batch may have their text instead.

    >>> declared = DeclaredSchema(pa.schema({"a": pa.int64(), "b": pa.int64()}), "operator 'swap': its output")
    >>> declared.conformed(pa.record_batch({"b": [2], "a": [1]})).to_pylist()
    [{'a': 1, 'b': 2}]
    """

    __slots__ = ("_advice", "_either", "_found", "_strict", "schema")

    def __init__(
        self,
        schema: pa.Schema,
        found: str,
        advice: str = "change the data or the schema",
        either: Collection[str] = (),
    ) -> None:
        self.schema = schema = plain_schema(schema)
        self._either = either
        self._found = found
        self._advice = advice
        self._strict = [(index, field) for index, field in enumerate(schema) if _has_strict(field)]

    def conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return ``batch`` with the declared columns in their order; the same object if it already has them.

        Raises: SchemaMismatch that names the columns that do not fit, or have nulls although declared not null.
        """
        schema = self.schema
        if not batch.schema.equals(schema, check_metadata=True):
            self.check(batch.schema)
            schema = self._expected(batch.schema)
            if schema.names:
                columns = [
                    widened_array(column) if column.type != field.type else column
                    for field, column in ((field, batch.column(field.name)) for field in schema)
                ]
                batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        if self._strict:
            self._check_nulls(batch)
        return batch

    def _expected(self, found: pa.Schema) -> pa.Schema:
        """Return the declared schema, with text where ``found`` may have it."""
        if not self._either:
            return self.schema
        places = [found.get_field_index(name) for name in self.schema.names]
        return either_schema(self.schema, self._either, [None if i < 0 else found.types[i] for i in places])

    def _check_nulls(self, batch: pa.RecordBatch) -> None:
        for index, field in self._strict:
            for name, nulls in misplaced_nulls(batch.column(index), field):
                raise SchemaMismatch(
                    f"{self._found} does not have the declared schema: column {name!r} should be {field.type}, not "
                    f"null, but {nulls:,} of its values are null; {self._advice}"
                )

    def check(self, found: pa.Schema) -> None:
        """Raise SchemaMismatch unless batches of schema ``found`` can be converted to the declared one."""
        expected = self._expected(found)
        expected_names = frozenset(expected.names)
        problems = [f"column {name!r} occurs twice" for name in repeated_names(found.names)]
        types_ = dict(zip(reversed(found.names), reversed(found.types), strict=True))  # the first of each name
        for field in expected:
            if field.name not in types_:
                problems.append(f"column {field.name!r} ({field.type}) is missing")
            elif field.type not in (other := types_[field.name], wide_type(other)):
                problems.append(f"column {field.name!r} should be {field.type} but is {other}")
        problems += [
            f"column {name!r} is not in the declared schema{did_you_mean(name, expected.names)}"
            for name in dict.fromkeys(found.names)
            if name not in expected_names
        ]
        if problems:
            raise SchemaMismatch(
                f"{self._found} does not have the declared schema: {'; '.join(problems)}; declared "
                f"[{_columns(expected)}], found [{_columns(found)}]; {self._advice}"
            )


def _has_strict(field: pa.Field) -> bool:
    """Return whether ``field``, or a field inside it, is declared not null."""
    return not field.nullable or any(_has_strict(child) for child in _children(field.type))


def _children(type_: pa.DataType) -> Sequence[pa.Field]:
    if types.is_struct(type_):
        return list(type_)
    if types.is_map(type_):
        return [type_.item_field]  # Arrow itself refuses a key that is null
    return [type_.value_field] if _is_list(type_) else []


def _is_list(type_: pa.DataType) -> bool:
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
    return any(is_one(type_) for is_one in lists)


def misplaced_nulls(
    column: pa.Array, field: pa.Field, name: str | None = None, rows: pa.BooleanArray | None = None
) -> Iterator[tuple[str, int]]:
    """Yield each field of ``column`` that ``field`` declares not null and that has nulls, and how many.

    The values inside a null do not count. ``name``, if given, is reported instead of the field's own. ``rows`` says
    which rows count; None: all.
    """
    name = name or field.name
    if not field.nullable and (nulls := _null_count(column, rows)):
        yield name, nulls
    children = [(index, child) for index, child in enumerate(_children(field.type)) if _has_strict(child)]
    if not children:
        return
    if types.is_struct(column.type):  # not filtered: Arrow cannot filter views, which other fields may have
        if column.null_count:
            rows = column.is_valid() if rows is None else pc.and_(rows, column.is_valid())
    else:
        column, rows = column if rows is None else _filtered(column, rows), None
    for index, child in children:
        yield from misplaced_nulls(_values(column, index), child, f"{name}.{child.name}", rows)


def _null_count(column: pa.Array, rows: pa.BooleanArray | None) -> int:
    """Return the number of nulls of ``column`` in ``rows``; None: in all rows."""
    if types.is_dictionary(column.type) and column.dictionary.null_count:
        column = column.dictionary_decode()
    if rows is None or not column.null_count:
        return int(column.null_count)
    return int(pc.and_(rows, column.is_null()).true_count)


def _filtered(column: pa.Array, rows: pa.BooleanArray) -> pa.Array:
    """Return the values of ``rows``, also of types that Arrow cannot filter."""
    try:
        return column.filter(rows)
    except pa.ArrowNotImplementedError:  # Arrow cannot filter views inside lists and maps
        values = [value for value, keep in zip(column.to_pylist(), rows.to_pylist(), strict=True) if keep]
        return to_array(values, column.type)


def _values(column: pa.Array, child: int) -> pa.Array:
    """Return child ``child`` of a struct, or the values of a list or map without those inside a null."""
    if types.is_struct(column.type):
        return column.field(child)  # by number: a struct may have two fields of one name
    if types.is_map(column.type):
        column = _filtered(column, column.is_valid()) if column.null_count else column
        first, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
        return column.items.slice(first, end - first)  # a slice still has all items
    return column.flatten()


def _columns(schema: pa.Schema) -> str:
    """Return the columns of ``schema`` as text, at most ``_SHOWN`` of them.

    >>> _columns(pa.schema([(f"c{i}", pa.int8()) for i in range(9)]))
    'c0: int8, c1: int8, c2: int8, c3: int8, c4: int8, c5: int8, c6: int8, c7: int8, 1 more'
    """
    shown = [f"{field.name}: {field.type}" for field, _ in zip(schema, range(_SHOWN), strict=False)]
    return ", ".join([*shown, f"{len(schema) - _SHOWN:,} more"] if len(schema) > _SHOWN else shown)
