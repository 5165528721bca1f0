"""Read text keys as dictionaries, where every operator on their way counts the codes and none sees the text.

The logical graph, and with it the schema of streams, user code, sinks, side outputs and checkpoints, has text. Only the
nodes between a source and the operators that group by the column have a dictionary in its place (``Node.encoded``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dataflow.planning.aggregate_specs import Grouped
from dataflow.planning.graph import Graph, Node
from dataflow.planning.specs import Read

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["encode_columns"]


def encode_columns(graph: Graph) -> Graph:
    """Return the same graph with ``Source.encoded`` applied to the keys that may be dictionaries.

    Raises: the errors of reading a sample, such as SourceError.
    """
    from dataflow.state.dictionaries import encoded_schema
    from dataflow.state.extension_types import plain_schema

    result = Graph()
    for node in graph:
        encoded = tuple(name for name in node.schema.names if _comes_encoded(result, node, name))
        spec, schema = node.spec, node.schema
        if isinstance(spec, Read):
            wanted = [name for name in _texts(schema) if _groups(graph, node, name)]
            source = spec.source.encoded(wanted) if wanted else spec.source
            spec, schema = Read(source), plain_schema(source.schema)
            encoded = tuple(name for name in wanted if schema.field(name).type != node.schema.field(name).type)
        elif encoded:
            schema = encoded_schema(schema, encoded)
        result.nodes.append(replace(node, spec=spec, schema=schema, encoded=encoded))
    return result


def _texts(schema: pa.Schema) -> list[str]:
    from dataflow.state.dictionaries import is_textual

    return [field.name for field in schema if is_textual(field.type)]


def _comes_encoded(graph: Graph, node: Node, column: str) -> bool:
    """Return whether ``column`` of ``node`` is an encoded column of its input, in the ``graph`` made so far."""
    if len(node.inputs) != 1 or node.inputs[0].tag is not None or isinstance(node.spec, Grouped):
        return False
    return node.spec.origin_of(column) in graph.nodes[node.inputs[0].source].encoded


def _groups(graph: Graph, node: Node, column: str) -> bool:
    """Return whether a ``column`` of ``node`` is grouped by, and apart from that only passed on."""
    uses = []
    for consumer in graph.consumers(node):
        spec = consumer.spec
        if len(consumer.inputs) != 1 or consumer.inputs[0].tag is not None or not spec.takes_encoded(column):
            return False
        if not isinstance(spec, Grouped):
            uses += [_groups(graph, consumer, name) for name in consumer.schema.names if spec.origin_of(name) == column]
        elif column in spec.keys:
            uses.append(not _late_rows_are_read(graph, consumer))
    return bool(uses) and all(uses)


def _late_rows_are_read(graph: Graph, node: Node) -> bool:
    """Return whether a side output of ``node`` is read: late rows leave as they came."""
    return any(edge.source == node.id and edge.tag is not None for other in graph for edge in other.inputs)
