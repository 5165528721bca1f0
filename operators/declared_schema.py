"""Hold batches to the schema that was declared for them: columns by name, never by position.

One rule for functions, operators and sources of users: the names are compared as a set, types must be equal (an index
of a dictionary may be narrower), nullability and metadata are ignored. A batch that fits leaves in the declared order.
"""

from __future__ import annotations

import pyarrow as pa

from dataflow.errors import SchemaMismatch, did_you_mean
from dataflow.state.dictionaries import wide_type, widened_array

__all__ = ["DeclaredSchema"]

_SHOWN = 8
"""Columns of each schema in a message."""


class DeclaredSchema:
    """Bring batches to ``schema``. ``found`` names the data in messages, ``advice`` says what to change.

    >>> declared = DeclaredSchema(pa.schema({"a": pa.int64(), "b": pa.int64()}), "operator 'swap': its output")
    >>> declared.conformed(pa.record_batch({"b": [2], "a": [1]})).to_pylist()
    [{'a': 1, 'b': 2}]
    """

    __slots__ = ("_advice", "_found", "schema")

    def __init__(self, schema: pa.Schema, found: str, advice: str = "change one of the two") -> None:
        self.schema = schema
        self._found = found
        self._advice = advice

    def conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return ``batch`` with the declared columns in their order; the same object where it has them already.

        Raises: SchemaMismatch that names the columns which do not fit.
        """
        schema = self.schema
        if not batch.schema.equals(schema, check_metadata=True):
            self.check(batch.schema)
            if schema.names:
                columns = [
                    widened_array(column) if column.type != field.type else column
                    for field, column in ((field, batch.column(field.name)) for field in schema)
                ]
                batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        return batch

    def check(self, found: pa.Schema) -> None:
        """Raise SchemaMismatch unless batches of schema ``found`` can be brought to the declared one."""
        expected = self.schema
        problems = [
            f"column {name!r} occurs twice" for name in dict.fromkeys(found.names) if found.names.count(name) > 1
        ]
        for field in expected:
            if field.name not in found.names:
                problems.append(f"column {field.name!r} ({field.type}) is missing")
            elif field.type not in (other := found.field(found.names.index(field.name)).type, wide_type(other)):
                problems.append(f"column {field.name!r} should be {field.type} but is {other}")
        problems += [
            f"column {name!r} is not in the declared schema{did_you_mean(name, expected.names)}"
            for name in found.names
            if name not in expected.names
        ]
        if problems:
            raise SchemaMismatch(
                f"{self._found} does not have the declared schema: {'; '.join(problems)}; declared "
                f"[{_columns(expected)}], found [{_columns(found)}]; {self._advice}"
            )


def _columns(schema: pa.Schema) -> str:
    """
    >>> _columns(pa.schema([(f"c{i}", pa.int8()) for i in range(9)]))
    'c0: int8, c1: int8, c2: int8, c3: int8, c4: int8, c5: int8, c6: int8, c7: int8, 1 more'
    """
    shown = [f"{field.name}: {field.type}" for field, _ in zip(schema, range(_SHOWN), strict=False)]
    return ", ".join([*shown, f"{len(schema) - _SHOWN:,} more"] if len(schema) > _SHOWN else shown)
