"""Read text keys as dictionaries, where every operator on their way counts the codes and none sees the text.

The logical graph, and with it the schema of streams, user code, sinks, side outputs and checkpoints, has text. Only the
nodes between a source and the operators that group by the column have a dictionary in its place (``Node.encoded``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

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
        encoded = _comes_encoded(result, node)
        spec, schema = node.spec, node.schema
        if isinstance(spec, Read):
            texts = _texts(schema)
            grouped = _grouped(graph, node, texts)
            wanted = [name for name in texts if name in grouped]
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


def _comes_encoded(graph: Graph, node: Node) -> tuple[str, ...]:
    """Return the columns of ``node`` that are encoded columns of its input, in the ``graph`` made so far."""
    if len(node.inputs) != 1 or node.inputs[0].tag is not None:
        return ()
    encoded = frozenset(graph.nodes[node.inputs[0].source].encoded)
    return tuple(name for name in node.schema.names if node.spec.origin_of(name) in encoded) if encoded else ()


def _grouped(graph: Graph, node: Node, columns: Iterable[str]) -> set[str]:
    """Return those of the ``columns`` of ``node`` that are grouped by, and apart from that only passed on."""
    uses: dict[str, list[bool]] = {name: [] for name in columns}
    for consumer in graph.consumers(node) if uses else ():
        spec = consumer.spec
        alone = len(consumer.inputs) == 1 and consumer.inputs[0].tag is None
        uses = {name: found for name, found in uses.items() if alone and spec.takes_encoded(name)}
        origins = {name: spec.origin_of(name) for name in consumer.schema.names} if uses else {}
        passed = {name: origin for name, origin in origins.items() if origin in uses}
        grouped = _grouped(graph, consumer, passed)
        for name, origin in passed.items():
            uses[origin].append(name in grouped)
        for key in [key for key in spec.groups_by if key in uses]:
            uses[key].append(not _late_rows_are_read(graph, consumer))
    return {name for name, found in uses.items() if found and all(found)}


def _late_rows_are_read(graph: Graph, node: Node) -> bool:
    """Return whether a side output of ``node`` is read: late rows leave as they came."""
    return any(edge.source == node.id and edge.tag is not None for other in graph for edge in other.inputs)
