"""Rows in messages: whatever a batch holds, showing it never fails.

Some values have no Python value: times beyond year 9999, nanoseconds where pandas is not installed, zones that this
machine does not know. Who reports one error must not raise another.

>>> import pyarrow as pa
>>> render_rows(pa.record_batch({"t": pa.array([2**60], pa.timestamp("us")), "x": ["a"]}))
[{'t': '<1152921504606846976 as timestamp[us]>', 'x': 'a'}]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["render_rows"]


def render_rows(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Every row as a dict of Python values, or of text in the place of those there are none for."""
    names = rows.schema.names
    return [dict(zip(names, values, strict=True)) for values in zip(*map(_values, rows.columns), strict=True)]


def _values(column: Any) -> list[Any]:
    try:
        return column.to_pylist()
    except Exception:
        return [_value(scalar) for scalar in column]


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except Exception:
        raw = getattr(scalar, "value", None)
        return f"<{raw if isinstance(raw, int) else 'a value'} as {scalar.type}>"
