"""The rows of one operator of a pipeline as a DataFrame, for Spark SQL, its libraries and its tables."""

from __future__ import annotations

import atexit
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dataflow.contracts.sink import FrameSink, SparkBatch
from dataflow.errors import ConfigurationError, did_you_mean
from dataflow.planning.graph import Edge, Graph, NamedGraph, Node
from dataflow.planning.specs import Write
from dataflow.runners.run_warnings import raise_warnings
from dataflow.runners.spark.batch.frames import BatchFrames
from dataflow.runners.spark.batch.row_counts import RowCounts
from dataflow.runners.spark.batch.start import batch_plan, splits_of_sources
from dataflow.runners.spark.job_directory import JobDirectory
from dataflow.runners.spark.native_readers import NativeReaders
from dataflow.runners.spark.placement import SparkPlan
from dataflow.runners.spark.session import check_settings
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.worker_check import check_workers
from dataflow.runtime.task.notices import Notices

__all__ = ["dataframe_of", "part_of"]

_END: Final = "barrierflow:frame"
"""The name of the sink that stands for the DataFrame."""


class _Wanted(FrameSink):
    """Stands for the DataFrame."""

    def write(self, frame: Any, batch: SparkBatch) -> None:
        raise AssertionError("the DataFrame is returned")


@dataclass(frozen=True)
class _Part:
    """A part of a pipeline."""

    name: str
    graph: Graph


def part_of(pipeline: NamedGraph, operator: str) -> NamedGraph:
    """Return the part of ``pipeline`` that computes the rows of ``operator``, with an end for them.

    Raises: ConfigurationError if there is no operator of this name that has rows.
    """
    named = {node.name: node for node in pipeline.graph if not isinstance(node.spec, Write)}
    if operator not in named:
        raise ConfigurationError(
            f"dataframe: pipeline {pipeline.name!r} has no operator {operator!r} with rows"
            f"{did_you_mean(operator, named)}; its operators: {sorted(named)}"
        )
    graph = pipeline.graph.upstream(named[operator])
    last = graph.nodes[-1]
    end = Node(len(graph.nodes), _END, Write(_Wanted()), (Edge(last.id),), last.schema, None)
    return _Part(pipeline.name, Graph([*graph.nodes, end]))


def dataframe_of(
    part: NamedGraph,
    session: Any,
    source_tasks: int,
    partitions: int,
    readers: NativeReaders,
    check: Callable[[SparkPlan], None],
) -> Any:
    """Return the DataFrame of the end of ``part``. ``check`` raises for plans that workers cannot run."""
    plan = batch_plan(part, source_tasks, partitions, None, "dataframe", readers)
    check(plan)
    check_settings(session)
    check_workers(session, plan)
    notices = Notices()
    with notices.as_notes():
        plan = plan.loaded(notices.add)
    raise_warnings(notices.warnings())
    directory = JobDirectory(Path(tempfile.mkdtemp(prefix="barrierflow-spark-")).absolute())
    atexit.register(directory.remove)  # it has notes of running tasks, as long as the DataFrame may be computed
    assignment = Assignment(plan, directory, uuid.uuid4().hex[:12], 0)
    frames = BatchFrames(session, assignment, splits_of_sources(plan), RowCounts(plan, full=False), readers)
    return frames.make().for_sinks[_END]
