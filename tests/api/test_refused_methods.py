"""A method that is refused leaves the pipeline as it was, however many nodes it would have added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.api.keyed_streams import KeyedStream
from dataflow.api.splits import Branches
from dataflow.api.streams import Stream
from dataflow.api.windowed_streams import WindowedStream
from dataflow.errors import GraphError
from dataflow.planning.graph import Graph
from dataflow.planning.specs import Filter

TABLE = pa.table({"k": ["a", "b"], "x": [1, 2], "at": pa.array([1, 2], pa.timestamp("s"))})
COUNT = {"n": op.count()}


class ByKey(flow.KeyedProcess):
    """Takes rows of both inputs."""

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None: ...

    def process_broadcast(self, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None: ...


class NoBroadcast(flow.KeyedProcess):
    """Takes rows with keys only."""

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None: ...


class Streams:
    """Streams of a pipeline that the calls begin with."""

    def __init__(self) -> None:
        self.pipeline = flow.Pipeline("refused")
        plain, other = (self.pipeline.source(op.from_arrow(TABLE), name=name) for name in ("left", "right"))
        self.plain, self.rows, self.other = plain, plain.with_watermark("at"), other.with_watermark("at")
        self.keyed = self.rows.key_by("k")
        self.windows = self.keyed.window(op.tumbling("1s"))
        self.signed = self.keyed.agg(COUNT, emit="changes", name="signed")
        self.added = self.rows.select("k", n=col("x"))
        self.branches = self.rows.split({"big": col("x") > 1})

    @property
    def nodes(self) -> list[Any]:
        return list(self.pipeline.graph.nodes)


CALLS: dict[str, Callable[[Streams], Any]] = {
    "Pipeline.source": lambda s: s.pipeline.source(op.from_arrow(TABLE)),
    "Stream.filter": lambda s: s.rows.filter(col("x") > 1),
    "Stream.select": lambda s: s.rows.select("x"),
    "Stream.with_columns": lambda s: s.rows.with_columns(y=col("x")),
    "Stream.drop": lambda s: s.rows.drop("x"),
    "Stream.rename": lambda s: s.rows.rename({"x": "y"}),
    "Stream.with_watermark": lambda s: s.plain.with_watermark("at"),
    "Stream.with_processing_time": lambda s: s.plain.with_processing_time("now"),
    "Stream.split": lambda s: s.rows.split({"big": col("x") > 1}),
    "Stream.unique": lambda s: s.rows.unique("k", keep="last"),
    "Stream.map": lambda s: s.rows.map(lambda row: row),
    "Stream.flat_map": lambda s: s.rows.flat_map(lambda row: [row]),
    "Stream.map_batches": lambda s: s.rows.map_batches(lambda batch: batch),
    "Stream.apply": lambda s: s.rows.apply(flow.Operator, s.other, name="applied"),
    "Stream.then": lambda s: s.rows.then(Filter(col("x") > 1)),
    "Stream.join": lambda s: s.rows.join(s.other, on="k"),
    "Stream.join_asof": lambda s: s.rows.join_asof(s.other, by="k"),
    "Stream.lookup": lambda s: s.rows.lookup(pa.table({"k": ["a"], "y": [1]}), on="k"),
    "Stream.process": lambda s: s.keyed.process(ByKey, broadcast=s.other, name="processed"),
    "Stream.union": lambda s: s.signed.union(s.added, s.added),
    "Stream.sink": lambda s: s.rows.sink(op.collect()),
    "Stream.agg": lambda s: s.rows.agg(COUNT),
    "Stream.top": lambda s: s.rows.top(1, by="x"),
    "KeyedStream.agg": lambda s: s.keyed.agg(COUNT),
    "KeyedStream.top": lambda s: s.keyed.top(1, by="x"),
    "WindowedStream.agg": lambda s: s.windows.agg(COUNT),
    "WindowedStream.top": lambda s: s.windows.top(1, by="x"),
    "Branches.__getitem__": lambda s: s.branches["other"],
}
ADD_NOTHING = {
    *("run", "start", "explain", "collect", "head", "key_by", "rebalance", "broadcast", "side", "as_rows", "window"),
    *("get", "items", "keys", "values", "draw"),
}


def refusing(count: int) -> Callable[..., Any]:
    """Return ``Graph.add`` that refuses the node after ``count`` others."""
    added, add = 0, Graph.add

    def refuse(*arguments: Any, **options: Any) -> Any:
        nonlocal added
        if added == count:
            raise GraphError("refused")
        added += 1
        return add(*arguments, **options)

    return refuse


@pytest.mark.parametrize("method", CALLS)
def test_a_refused_method_leaves_the_graph_as_it_was(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams()
    before = streams.nodes
    CALLS[method](streams)
    added = len(streams.nodes) - len(before)
    assert added
    for count in range(added):
        streams = Streams()
        before = streams.nodes
        with monkeypatch.context() as patch:
            patch.setattr(Graph, "add", refusing(count))
            with pytest.raises(GraphError, match="refused"):
                CALLS[method](streams)
        assert streams.nodes == before


def test_each_method_that_adds_nodes_is_among_them() -> None:
    classes = (flow.Pipeline, Stream, KeyedStream, WindowedStream, Branches)
    public = {name for kind in classes for name in dir(kind) if not name.startswith("_")}
    methods = {name for name in public if any(callable(getattr(kind, name, None)) for kind in classes)}
    assert methods - ADD_NOTHING == {name.partition(".")[2] for name in CALLS} - {"__getitem__"}


REFUSED: dict[str, Callable[[Streams], Any]] = {
    "signed changes": lambda s: s.signed.key_by("k").process(ByKey, broadcast=s.other, name="f"),
    "no function for the rows": lambda s: s.keyed.process(NoBroadcast, broadcast=s.other, name="f"),
    "a name that is taken": lambda s: s.keyed.process(ByKey, broadcast=s.other, name="left"),
    "a parallelism below one": lambda s: s.keyed.process(ByKey, broadcast=s.other, name="f", parallelism=0),
    "a union with a name that is taken": lambda s: s.signed.union(s.added, name="left"),
    "a last row with a bad name": lambda s: s.rows.unique("k", keep="last", name="a/b"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_pipeline_runs_after_a_refused_method(reason: str) -> None:
    streams = Streams()
    streams.pipeline.graph.nodes.pop()  # the branches, of which nothing is read
    with pytest.raises(GraphError):
        REFUSED[reason](streams)
    for stream in (streams.signed, streams.other, streams.added):
        stream.sink(op.collect(), name=f"out of {stream.name}")
    streams.pipeline.graph.validate()
