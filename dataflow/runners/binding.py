"""Bind the operators to the engine: no other module below ``compare``, ``demo`` and ``cli`` imports ``operators``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataflow.contracts.spec import Spec
from dataflow.planning.aggregate_specs import Grouped
from dataflow.planning.graph import Node
from dataflow.runtime.task.library import Library
from operators.aggregation.partials import check_partial, partial_schema, takes_records
from operators.fusion.chains import fuse
from operators.stateful.columns import is_partial

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LIBRARY"]


def _mergeable(node: Node, schema: pa.Schema) -> bool:
    return takes_records(_grouped(node.spec), schema)


def _folded_schema(spec: Spec, schema: pa.Schema) -> pa.Schema:
    return partial_schema(_grouped(spec), schema)


def _shown_rows(spec: Spec, batch: pa.RecordBatch, taken: pa.Schema, made: pa.Schema) -> pa.Table:
    import pyarrow as pa

    from operators.aggregation.show_state import rows_of_partials

    if not is_partial(batch.schema):
        return pa.Table.from_batches([batch])
    return rows_of_partials(_grouped(spec), taken, made, batch)


def _grouped(spec: Spec) -> Grouped:
    """Return a spec that has `Spec.folding`."""
    assert isinstance(spec, Grouped), f"{spec} takes no folded rows"
    return spec


LIBRARY = Library(
    mergeable=_mergeable,
    folded_schema=_folded_schema,
    check_folded=check_partial,
    shown_rows=_shown_rows,
    fuse=fuse,
)
