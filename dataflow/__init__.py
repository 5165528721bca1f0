"""A barrier-aligned dataflow engine: Arrow batches through operator graphs, with checkpoints you can compare.

>>> import pyarrow as pa, dataflow as flow, operators as op
>>> from dataflow import col
>>> with flow.Pipeline("totals") as p:
...     (p.source(op.from_arrow(pa.table({"k": ["a", "b", "a"], "x": [1, 2, 3]})))
...       .key_by("k")
...       .agg(col("x").sum().alias("total"), name="totals")
...       .sink(op.collect(), name="out"))
>>> p.run().table("out").sort_by("k").to_pylist()
[{'k': 'a', 'total': 4}, {'k': 'b', 'total': 2}]
"""

from __future__ import annotations

import logging as _logging
from typing import TYPE_CHECKING as _TYPE_CHECKING

from dataflow.api.keyed_streams import KeyedStream
from dataflow.api.pipeline import Pipeline
from dataflow.api.streams import Stream
from dataflow.api.windowed_streams import WindowedStream
from dataflow.contracts.checkpointing import Checkpointing, Mode
from dataflow.contracts.declared_state import Fixed, Log, Passed, Stateful, Table, Value
from dataflow.contracts.incremental import Incremental
from dataflow.contracts.operator import Operator, OperatorContext, Out, Rule, Snapshot
from dataflow.contracts.process import BatchProcess, KeyedProcess, ProcessContext, ProcessTimers
from dataflow.contracts.process_state import list_state, map_state, shared_map, value_state
from dataflow.contracts.rescale import RescaleContext, StatePart
from dataflow.contracts.sink import Guarantee, Sink, SparkBatch, TakenBack, TwoPhaseSink, TwoPhaseWriter
from dataflow.contracts.source import END, Condition, ParquetFiles, Source, Split, SplitReader
from dataflow.contracts.spec import Spec
from dataflow.contracts.windows import Assigned, Window
from dataflow.expressions import Expr, coalesce, col, concat_str, from_epoch, lit, when
from dataflow.planning.operator_table import register
from dataflow.registry import offered as _offered
from dataflow.registry import register as _register

if _TYPE_CHECKING:
    from dataflow.contracts.restarts import Restarts
    from dataflow.events.record import Record
    from dataflow.events.repeat_precision import Precision
    from dataflow.runners.attempts import Attempt
    from dataflow.runners.job_progress import JobProgress
    from dataflow.runners.local import LocalRunner
    from dataflow.runners.local_job import LocalJob
    from dataflow.runners.run_result import RunResult
    from dataflow.runners.simulated import SimulatedRunner
    from dataflow.runners.spark.job import SparkJob
    from dataflow.runners.spark.runner import SparkRunner
    from dataflow.runners.spark.spark_source import SparkSource
    from dataflow.runtime.checkpoint_reader.checkpoint import Checkpoint
    from dataflow.runtime.job.checkpoint_state import CheckpointState
    from dataflow.runtime.job.committer import WaitingCommit
    from dataflow.runtime.restore.find_checkpoint import RestoreReport
    from dataflow.state.keyed_state import KeyedState
    from dataflow.state.timers import TimeDomain
    from dataflow.state.ttl import Ttl
    from dataflow.store.directory import DirectoryStore
    from dataflow.store.manifest import Parent
    from dataflow.store.memory import MemoryStore
    from dataflow.store.status import CheckpointStatus, ObjectStatus, StoredObject
    from dataflow.views.events import Events
    from dataflow.views.picture import Picture
    from dataflow.views.read_events import read_events
    from dataflow.views.timeline.timeline import Timeline, compare_timelines

__all__ = [
    "Pipeline",
    "Stream",
    "KeyedStream",
    "WindowedStream",
    "col",
    "lit",
    "when",
    "coalesce",
    "concat_str",
    "from_epoch",
    "Expr",
    "Checkpointing",
    "Restarts",
    "Attempt",
    "Checkpoint",
    "CheckpointStatus",
    "Parent",
    "ObjectStatus",
    "StoredObject",
    "Mode",
    "Guarantee",
    "Fixed",
    "Incremental",
    "Log",
    "Passed",
    "StatePart",
    "Stateful",
    "Table",
    "Value",
    "RunResult",
    "Events",
    "Record",
    "read_events",
    "Tuning",
    "Choice",
    "JobProgress",
    "WaitingCommit",
    "CheckpointState",
    "RescaleContext",
    "RestoreReport",
    "Precision",
    "Picture",
    "Timeline",
    "compare_timelines",
    "LocalRunner",
    "LocalJob",
    "SimulatedRunner",
    "SparkRunner",
    "SparkSource",
    "SparkJob",
    "DirectoryStore",
    "MemoryStore",
    "KeyedState",
    "Ttl",
    "TimeDomain",
    "Operator",
    "OperatorContext",
    "KeyedProcess",
    "BatchProcess",
    "ProcessContext",
    "ProcessTimers",
    "value_state",
    "list_state",
    "map_state",
    "shared_map",
    "Spec",
    "register",
    "Window",
    "Assigned",
    "Out",
    "Rule",
    "Snapshot",
    "Source",
    "Split",
    "SplitReader",
    "Condition",
    "ParquetFiles",
    "END",
    "Sink",
    "SparkBatch",
    "TakenBack",
    "TwoPhaseSink",
    "TwoPhaseWriter",
    "__version__",
]

__version__ = "0.1.0"

_logging.getLogger("dataflow").addHandler(_logging.NullHandler())

_register("runner", "local", "dataflow.runners.local:LocalRunner")
_register("runner", "simulated", "dataflow.runners.simulated:SimulatedRunner")
_register("runner", "spark", "dataflow.runners.spark.runner:SparkRunner")
_register("sink", "collect", "operators.sinks.collect:collect")
_register("sink", "head", "operators.sinks.head:head")
_register("function", "hash_rows", "dataflow.state.hashing:hash_rows")
_register("source", "from_arrow", "operators.sources.arrow:from_arrow")

_LAZY = {
    "RunResult": "dataflow.runners.run_result",
    "Events": "dataflow.views.events",
    "Record": "dataflow.events.record",
    "read_events": "dataflow.views.read_events",
    "Restarts": "dataflow.contracts.restarts",
    "Attempt": "dataflow.runners.attempts",
    "Tuning": "dataflow.runners.tuning",
    "Choice": "dataflow.contracts.tuning",
    "JobProgress": "dataflow.runners.job_progress",
    "WaitingCommit": "dataflow.runtime.job.committer",
    "Checkpoint": "dataflow.runtime.checkpoint_reader.checkpoint",
    "CheckpointStatus": "dataflow.store.status",
    "Parent": "dataflow.store.manifest",
    "ObjectStatus": "dataflow.store.status",
    "StoredObject": "dataflow.store.status",
    "CheckpointState": "dataflow.runtime.job.checkpoint_state",
    "RestoreReport": "dataflow.runtime.restore.find_checkpoint",
    "Precision": "dataflow.events.repeat_precision",
    "Picture": "dataflow.views.picture",
    "SparkRunner": "dataflow.runners.spark.runner",
    "SparkSource": "dataflow.runners.spark.spark_source",
    "SparkJob": "dataflow.runners.spark.job",
    "LocalRunner": "dataflow.runners.local",
    "LocalJob": "dataflow.runners.local_job",
    "SimulatedRunner": "dataflow.runners.simulated",
    "DirectoryStore": "dataflow.store.directory",
    "MemoryStore": "dataflow.store.memory",
    "KeyedState": "dataflow.state.keyed_state",
    "Ttl": "dataflow.state.ttl",
    "TimeDomain": "dataflow.state.timers",
    "Timeline": "dataflow.views.timeline.timeline",
    "compare_timelines": "dataflow.views.timeline.timeline",
}


def __getattr__(name: str) -> object:
    return _offered(__name__, _LAZY, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
