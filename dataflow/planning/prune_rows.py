"""Tell sources which rows the filters next to them drop, so that they need not read these.

Only filters that run in the source's own tasks count, ahead of every operator that sees which rows there are:
watermarks, functions, shuffles, aggregates. So no row is missing in a channel, or in a report of rows sent twice.

Invariant: a row that fails a condition would raise no error and reach no side output, because nothing up to the filter
that drops it can raise or has a second consumer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dataflow.contracts.source import Comparison, Condition, Source
from dataflow.errors import GraphError
from dataflow.planning.graph import Graph, Node, Partitioning
from dataflow.planning.specs import Read

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.expressions import Expr

__all__ = ["conditions_of", "prune_rows"]

_FLIPPED: Final[dict[Comparison, Comparison]] = {
    "==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=",
}  # fmt: skip


def prune_rows(graph: Graph, parallelism: int) -> Graph:
    """Return the same graph with ``Source.skipping`` applied.

    Args:
        graph: a graph whose unused columns were pruned.
        parallelism: subtasks of each operator that has no parallelism of its own.

    Raises: GraphError if a source's ``skipping`` returns no source, or one with other columns.
    """
    nodes = list(graph.nodes)
    for node in graph:
        if isinstance(node.spec, Read) and (conditions := _conditions_after(graph, node, parallelism)):
            nodes[node.id] = replace(node, spec=Read(_skip(node.spec.source, conditions, node.name)))
    return Graph(nodes)


def conditions_of(predicate: Expr, schema: pa.Schema) -> list[Condition]:
    """Return the comparisons of a column with a constant that all must hold for ``predicate`` to be true.

    Args:
        predicate: an expression that never raises.
        schema: the columns that it reads.

    >>> import pyarrow as pa
    >>> from dataflow.expressions import col
    >>> schema = pa.schema({"x": pa.int64(), "y": pa.int64()})
    >>> [(c.column, c.operator, c.value) for c in conditions_of((3 < col("x")) & (col("x") < col("y")), schema)]
    [('x', '>', <pyarrow.Int64Scalar: 3>)]
    """
    return list(_conjuncts(predicate, schema))


def _conjuncts(predicate: Expr, schema: pa.Schema) -> Iterator[Condition]:
    from dataflow.expressions.evaluation import constant
    from dataflow.expressions.nodes import Alias, Binary, BinaryOperator, Column, Literal
    from dataflow.expressions.typing import resolve

    match predicate:
        case Alias(operand):
            yield from _conjuncts(operand, schema)
        case Binary(BinaryOperator.AND, left, right):
            yield from _conjuncts(left, schema)
            yield from _conjuncts(right, schema)
        case Binary(operator, left, right) if operator.value in _FLIPPED:
            word: Comparison = operator.value
            if isinstance(left, Literal):
                left, right, word = right, left, _FLIPPED[word]
            compared = resolve(predicate, schema, "filter")
            # a literal that is null or NaN equals nothing, so only this drops it here
            if isinstance(left, Column) and isinstance(right, Literal) and right.value == right.value is not None:
                value = constant(right.value, compared.compute[0])
                yield Condition(left.label, word, value)


def _conditions_after(graph: Graph, source: Node, parallelism: int) -> list[Condition]:
    """Return the conditions, on columns of ``source``, of the filters that follow it."""
    from dataflow.expressions.safety import never_raises
    from dataflow.expressions.typing import resolve

    node, conditions = source, list[Condition]()
    origins: dict[str, str | None] = {name: name for name in source.schema.names}
    while (after := _only_consumer(graph, node, parallelism)) is not None:
        spec = after.spec
        resolved = [resolve(expression, node.schema, after.name) for expression in spec.expressions or ()]
        if not all([never_raises(expression) for expression in resolved]):
            break
        for condition in () if spec.condition is None else conditions_of(spec.condition, node.schema):
            origin = origins[condition.column]
            conditions += [] if origin is None else [replace(condition, column=origin)]
        before = {name: spec.origin_of(name) for name in after.schema.names}
        origins = {name: None if old is None else origins[old] for name, old in before.items()}
        node = after
    return conditions


def _only_consumer(graph: Graph, node: Node, parallelism: int) -> Node | None:
    """Return the operator that alone takes the rows of ``node``, in the same tasks, and only computes expressions.

    Returns: None if there is none.
    """
    edges = [(after, edge) for after in graph for edge in after.inputs if edge.source == node.id]
    if len(edges) != 1:
        return None
    ((after, edge),) = edges
    joined = edge.tag is None and edge.partitioning in (None, Partitioning.FORWARD)
    together = (after.parallelism or parallelism) == (node.parallelism or parallelism)
    return after if joined and together and after.spec.expressions is not None and not after.sides else None


def _skip(source: Source, conditions: Sequence[Condition], name: str) -> Source:
    skipping: object = source.skipping(conditions)
    if not isinstance(skipping, Source) or skipping.schema != source.schema:
        raise GraphError(
            f"source {name!r} ({type(source).__name__}): skipping(conditions) must return a Source with the same "
            f"columns, got a {type(skipping).__name__}; return self to read all rows"
        )
    return skipping
