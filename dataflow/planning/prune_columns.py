"""Prune the columns that no operator reads: a graph whose sources read only the columns that the pipeline needs.

Invariant: each operator gets the columns that it needs to emit every column its outputs still have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dataflow.contracts.source import Source
from dataflow.errors import GraphError
from dataflow.planning.graph import Graph, Node
from dataflow.planning.specs import Read

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["prune_columns"]


def prune_columns(graph: Graph) -> Graph:
    """Return the same graph with ``Source.select`` applied, and the schemas of operators that pass columns through.

    Raises: GraphError if a source's ``select`` returns no source, or one without the columns.
    """
    from dataflow.state.extension_types import plain_schema

    used: dict[int, set[str]] = {node.id: set() for node in graph}
    late: set[int] = set()
    specs = {node.id: node.spec for node in graph}
    for node in reversed(graph.nodes):
        inputs = [graph.schema_of(edge) for edge in node.inputs]
        # reads() does not cover side outputs; an operator's late rows leave as they came in
        reads_all = node.id in late or (node.is_users and bool(node.sides))
        specs[node.id] = node.spec.pruned(used[node.id])
        node = replace(node, spec=specs[node.id])
        needed = [set(schema.names) for schema in inputs] if reads_all else _columns_read(node, inputs, used[node.id])
        for edge, read in zip(node.inputs, needed, strict=True):
            if edge.tag in graph.nodes[edge.source].spec.late_outputs:
                late.add(edge.source)
            used[edge.source].update(_main_columns(graph.nodes[edge.source], edge.tag, read))
    pruned = Graph()
    for node in graph:
        spec, schema = specs[node.id], node.schema
        if isinstance(spec, Read):
            columns = [name for name in schema.names if name in used[node.id]] or _narrowest(schema)
            source = _select_columns(spec.source, columns, node.name)
            spec, schema = Read(source), plain_schema(source.schema)
        else:
            schema = spec.narrowed([pruned.schema_of(edge) for edge in node.inputs], schema)
        pruned.nodes.append(replace(node, spec=spec, schema=schema))
    return pruned


def _narrowest(schema: pa.Schema) -> list[str]:
    """Return the column with the fewest bytes a row: a batch without columns could not say how many rows it has."""
    return [min(schema, key=_width).name] if len(schema) else []


def _width(field: pa.Field) -> int:
    """Return the bits of a value; of text, lists and the like, many."""
    try:
        return int(field.type.bit_width)
    except ValueError:
        return 1 << 20


def _columns_read(node: Node, inputs: Sequence[pa.Schema], used: set[str]) -> list[set[str]]:
    """Return the columns of each input that the operator needs for its main output, of which others read ``used``.

    An output column that ``narrowed`` leaves in the schema must be emitted, so it counts as used.
    """
    import pyarrow as pa

    while True:
        reads = [node.spec.reads(port, used) for port in range(len(inputs))]
        columns = [
            {*edge.keys, *(schema.names if read is None else read)}
            for edge, schema, read in zip(node.inputs, inputs, reads, strict=True)
        ]
        left = [
            schema if names.issuperset(schema.names) else pa.schema([f for f in schema if f.name in names])
            for schema, names in zip(inputs, columns, strict=True)
        ]
        emitted = used.union(node.spec.narrowed(left, node.schema).names) if inputs else used
        if emitted == used:
            return columns
        used = emitted


def _select_columns(source: Source, columns: Sequence[str], name: str) -> Source:
    """Return ``source`` with at least ``columns``. Raises: GraphError if its ``select`` returns something else."""
    selected: object = source.select(columns)
    if not isinstance(selected, Source):
        raise GraphError(
            f"source {name!r} ({type(source).__name__}): select({columns}) must return a Source, got a "
            f"{type(selected).__name__}; return self to read all columns"
        )
    present = frozenset(selected.schema.names)
    missing = [column for column in columns if column not in present]
    if missing:
        raise GraphError(
            f"source {name!r} ({type(source).__name__}): select({columns}) must return a source with at least "
            f"these columns, but its schema lacks {missing}"
        )
    return selected


def _main_columns(node: Node, tag: str | None, read: set[str]) -> Iterable[str]:
    """Return the columns among ``read``, of output ``tag``, that must be columns of the node's main output."""
    return read.intersection(node.schema.names) if tag in node.sides else read
