"""The graph of a batch: it computes what the graph of the stream computes, once, at the end of the input.

Each operator gets the settings of `Spec.in_batch`. Where its output depends on the arrival of rows, it gets an order of
them: event time, then the place in the sources, a column that row-wise operators carry from the source on.

Invariant: each operator of the pipeline keeps its name, its inputs, and the columns of its output. Only between two of
them is there a column more, the place in the sources.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dataflow.contracts.checkpointing import Checkpointing, Mode
from dataflow.contracts.execution import ORDER, RowOrder
from dataflow.contracts.spec import Spec
from dataflow.contracts.updates import CHANGE, Signed
from dataflow.contracts.windows import EventTime
from dataflow.errors import ConfigurationError
from dataflow.planning.batch_specs import AddChange, DropPlace, NumberRows, Sorted
from dataflow.planning.graph import Edge, Graph, Node
from dataflow.planning.specs import Read

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.expressions import Expr

__all__ = ["batch_graph", "refuse_in_batch"]


def refuse_in_batch(
    graph: Graph, checkpoint: Checkpointing | None, method: str = "run", replaced: Collection[str] = ()
) -> None:
    """Raise ConfigurationError for what a batch cannot be: input without an end, time by the clock, some settings.

    ``replaced``: the names of sources that are not read, because the runner has other input for them.
    """
    where = f"{method}(execution='batch')"
    for node in graph:
        if isinstance(node.spec, Read) and not node.spec.source.bounded and node.name not in replaced:
            raise ConfigurationError(
                f"{where}: source {node.name!r} ({type(node.spec.source).__name__}) has no end, so a batch would never "
                "finish; read input that is complete, as with op.read_parquet(...), or leave execution= out"
            )
        if node.spec.times_by_clock:
            raise ConfigurationError(
                f"{where}: {node.name!r} (with_processing_time) takes times from the clock, which says nothing in a "
                "batch; use event time, with_watermark(column), or leave execution= out"
            )
    if checkpoint is None:
        return
    if checkpoint.mode is not Mode.ALIGNED:
        raise ConfigurationError(
            f"{where}: Checkpointing(mode={checkpoint.mode.value!r}) is for streams; a batch has one checkpoint, at "
            "its end, so leave mode= out"
        )
    if checkpoint.every is not None:
        raise ConfigurationError(
            f"{where}: Checkpointing(every=) is for streams; a batch has one checkpoint, at its end, so leave every= "
            "out"
        )


def batch_graph(graph: Graph) -> Graph:
    """Return the graph of the batch; see the module's text."""
    specs = [node.spec.in_batch() for node in graph]
    carriers = _carriers(graph, specs)
    carried = _carried(graph, specs, carriers)
    result = _Copy(carried)
    for node, spec in zip(graph, specs, strict=True):
        made, takes = spec, 0
        if spec.wants_order(_time(graph, node)):
            made, takes = _ordered(graph, node, spec, carried), 1
        elif node.id in carried and not isinstance(spec, Read):
            made, takes = _carrying(spec), len(node.inputs)
        result.add(node, made, spec, takes)
    return result.graph


def _time(graph: Graph, node: Node) -> EventTime | None:
    """Return the event time of the rows of input 0."""
    return None if not node.inputs or node.inputs[0].tag is not None else graph.nodes[node.inputs[0].source].time


def _carriers(graph: Graph, specs: Sequence[Spec]) -> set[int]:
    """Return the nodes that can pass the place in the sources on."""
    found: set[int] = set()
    for node, spec in zip(graph, specs, strict=True):
        able = isinstance(spec, Read) or (bool(node.inputs) and spec.carrying(ORDER) is not None)
        if able and all(edge.tag is None and edge.source in found for edge in node.inputs):
            found.add(node.id)
    return found


def _carried(graph: Graph, specs: Sequence[Spec], carriers: set[int]) -> set[int]:
    """Return the nodes whose rows have the place in the sources, because an operator after them needs it."""
    found: set[int] = set()
    for node, spec in reversed(list(zip(graph, specs, strict=True))):
        needed = list(node.inputs) if node.id in found else []
        if spec.wants_order(_time(graph, node)):
            needed.append(node.inputs[0])
        found.update(edge.source for edge in needed if edge.tag is None and edge.source in carriers)
    return found


def _ordered(graph: Graph, node: Node, spec: Spec, carried: set[int]) -> Spec:
    """Return the settings with which ``node`` goes by the order of its rows."""
    edge = node.inputs[0]
    order = RowOrder(_time(graph, node), ORDER if edge.tag is None and edge.source in carried else None)
    made = spec.ordered_by(order)
    if made is None:
        passes_on = node.id in carried
        return Sorted(_carrying(spec) if passes_on else spec, order, passes_on)
    return _carrying(made) if node.id in carried else made


def _carrying(spec: Spec) -> Spec:
    made = spec.carrying(ORDER)
    assert made is not None, f"{spec} cannot carry a column"
    return made


class _Copy:
    """The graph of the batch that is being made, node by node. The rows of ``carried`` nodes have a place."""

    def __init__(self, carried: set[int]) -> None:
        self.graph = Graph()
        self._carried = carried
        # by node of the pipeline, the node of the batch ...
        self._first: dict[int, int] = {}  # ... that has its side outputs,
        self._last: dict[int, int] = {}  # ... that has its main output,
        self._plain: dict[int, int] = {}  # ... that has it without the places of rows
        self._sources = 0

    def add(self, node: Node, spec: Spec, plain: Spec, takes: int) -> None:
        """Add ``node`` with the settings ``spec``, and what must come after it.

        ``plain`` are the settings in any order. The first inputs, ``takes`` of them, have the places of rows.
        """
        is_source, is_carried = isinstance(spec, Read), node.id in self._carried
        edges = tuple(self._edge(edge, is_placed=port < takes) for port, edge in enumerate(node.inputs))
        once = self._emits_once(node, plain, edges)
        schema, meaning = node.schema, node.meaning
        if once:
            schema, meaning = schema.remove(schema.get_field_index(CHANGE)), None
        if is_carried and not is_source:
            schema = _with_place(schema)
        own = self._append(replace(node, spec=spec, inputs=edges, schema=schema, meaning=meaning))
        self._first[node.id] = self._last[node.id] = own
        if once:
            self._last[node.id] = self._after(own, "changes", AddChange(tuple(_added(node.schema))), node.schema)
        if is_source:
            if is_carried:
                numbered = NumberRows(self._sources), _with_place(node.schema)
                self._plain[node.id], self._last[node.id] = own, self._after(own, "places", *numbered)
            self._sources += 1

    def _emits_once(self, node: Node, spec: Spec, edges: Sequence[Edge]) -> bool:
        """Return whether the operator emits rows where it emits signed changes in a stream."""
        if not isinstance(node.meaning, Signed) or spec is node.spec:
            return False
        meanings = [self.graph.meaning_of(edge) for edge in edges]
        return spec.changes(meanings, name=node.name, word=node.kind) is None

    def _edge(self, edge: Edge, *, is_placed: bool) -> Edge:
        """Return the edge in the batch, with the places of rows if it ``is_placed`` and there are any."""
        if edge.tag is not None:
            return replace(edge, source=self._first[edge.source])
        if is_placed or edge.source not in self._carried:
            return replace(edge, source=self._last[edge.source])
        if edge.source not in self._plain:
            last = self._last[edge.source]
            schema = self.graph.nodes[last].schema
            schema = schema.remove(schema.get_field_index(ORDER))
            self._plain[edge.source] = self._after(last, "rows", DropPlace(tuple(_columns(schema))), schema)
        return replace(edge, source=self._plain[edge.source])

    def _after(self, number: int, label: str, spec: Spec, schema: pa.Schema) -> int:
        """Add a helper after the main output of node ``number`` of the batch, in its tasks; return its own number."""
        node = self.graph.nodes[number]
        helper = Node(
            id=0,
            name=f"{node.name}/{label}",
            spec=spec,
            inputs=(Edge(number),),
            schema=schema,
            parallelism=node.parallelism,
            time=node.time,
            meaning=Signed(node.name) if label == "changes" else node.meaning,
        )
        return self._append(helper)

    def _append(self, node: Node) -> int:
        number = len(self.graph.nodes)
        self.graph.nodes.append(replace(node, id=number))
        return number


def _with_place(schema: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    return schema.append(pa.field(ORDER, pa.int64()))


def _columns(schema: pa.Schema) -> list[Expr]:
    from dataflow.expressions import col

    return [col(name) for name in schema.names]


def _added(schema: pa.Schema) -> list[Expr]:
    from dataflow.expressions import lit

    one = lit(1).cast("int8").alias(CHANGE)
    return [one if column.name == CHANGE else column for column in _columns(schema)]
