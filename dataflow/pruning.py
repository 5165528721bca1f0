"""Columns that nobody uses are not read: a graph whose sources give only what the pipeline needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from dataflow.errors import GraphError
from dataflow.graph import Graph, Node
from dataflow.row_errors import LATE
from dataflow.source import Source
from dataflow.specs import (
    Aggregate,
    Apply,
    Combine,
    Filter,
    FlatMapRows,
    MapBatches,
    MapRows,
    Project,
    Read,
    Spec,
    Union,
    Watermarks,
    WindowAggregate,
    Write,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["prune"]


def prune(graph: Graph) -> Graph:
    """The same graph with ``Source.select`` applied, and the schemas of operators that pass columns through."""
    used: dict[int, set[str]] = {node.id: set() for node in graph}
    late: set[int] = set()
    for node in reversed(graph.nodes):
        for edge in node.inputs:
            above = graph.schema_of(edge).names
            read = set(above) if node.id in late else {*edge.keys, *_reads(node.spec, used[node.id], above)}
            if edge.tag == LATE:
                late.add(edge.source)  # its late rows come out as they came in
            used[edge.source].update(_passed_on(graph.nodes[edge.source], edge.tag, read))
    pruned = Graph()
    for node in graph:
        spec, schema = node.spec, node.schema
        match spec:
            case Read(source):
                columns = [name for name in schema.names if name in used[node.id]] or schema.names[:1]
                source = _selected(source, columns, node.name)
                spec, schema = Read(source), source.schema
            case Filter() | Watermarks():
                schema = pruned.schema_of(node.inputs[0])
            case Union():
                schema = _common([pruned.schema_of(edge) for edge in node.inputs])
            case _:
                pass
        pruned.nodes.append(replace(node, spec=spec, schema=schema))
    return pruned


def _selected(source: Source, columns: Sequence[str], name: str) -> Source:
    """Return ``source`` with at least ``columns``. Raises: GraphError where its ``select`` gives something else."""
    made: object = source.select(columns)
    if not isinstance(made, Source):
        raise GraphError(
            f"source {name!r} ({type(source).__name__}): select({columns}) returns a Source, but returned a "
            f"{type(made).__name__}"
        )
    missing = [column for column in columns if column not in made.schema.names]
    if missing:
        raise GraphError(
            f"source {name!r} ({type(source).__name__}): select({columns}) returns a source with at least these "
            f"columns, but the one it returned lacks {missing}"
        )
    return made


def _common(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns that all inputs of a union still have, in the order of the first."""
    import pyarrow as pa

    first, *others = schemas
    return pa.schema([field for field in first if all(field.name in other.names for other in others)])


def _passed_on(node: Node, tag: str | None, read: set[str]) -> Iterable[str]:
    """Of the columns ``read`` of an output, those that have to be columns of the node's main output."""
    return [name for name in read if name in node.schema.names] if tag in node.sides else read


def _reads(spec: Spec, used: set[str], available: Sequence[str]) -> Iterable[str]:
    """The input columns an operator needs, if ``used`` of its output are used."""
    match spec:
        case Filter(predicate=predicate):
            return {*used, *predicate.columns()}
        case Project(columns=columns):
            return [name for column in columns for name in column.columns()]
        case Aggregate(keys=keys, aggregations=aggregations):
            return {*keys, *(name for a in aggregations for name in a.columns())}
        case Watermarks(column=column):
            return {*used, column}
        case WindowAggregate(keys=keys, time=time, aggregations=aggregations):
            return {*keys, time.column, *(name for a in aggregations for name in a.columns())}
        case Union():
            return used
        case Read() | MapBatches() | MapRows() | FlatMapRows() | Combine() | Apply() | Write():
            return available
        case _:
            assert_never(spec)
