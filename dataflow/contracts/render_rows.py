"""Render rows as Python values for messages, without raising.

Some values have no Python value: times beyond year 9999, nanoseconds if pandas is not installed, time zones that this
machine does not know. Reporting one error must not raise another.

>>> import pyarrow as pa
>>> render_rows(pa.record_batch({"t": pa.array([2**60], pa.timestamp("us")), "x": ["a"]}))
[{'t': '<1152921504606846976 as timestamp[us]>', 'x': 'a'}]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dataflow.contracts.execution import ORDER

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["render_rows"]


def render_rows(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Return every row as a dict of Python values; a value that has none is described as text.

    The place of a row in its source, which plans of a batch add, is left out.
    """
    names = [name for name in rows.schema.names if name != ORDER]
    rows = rows.select(names)
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
