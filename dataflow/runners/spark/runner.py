"""The runner for Spark Structured Streaming.

Spark distributes, schedules, shuffles, stores state and recovers. Its workers run the operators of the local engine, in
the same chains as local tasks. A micro-batch takes the place of the barrier.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from dataflow.contracts.checkpointing import Checkpointing, Mode, input_identity
from dataflow.contracts.evolution import parse_changes
from dataflow.contracts.execution import Execution
from dataflow.contracts.source import InputIdentity
from dataflow.errors import (
    ConfigurationError,
    IgnoredSettingWarning,
    ManyPartitionsWarning,
    UnsupportedOnRunner,
    check_count,
    user_frame,
)
from dataflow.events.recorder import OpenFile
from dataflow.planning.graph import NamedGraph
from dataflow.protocol.recovery import Policy, parse
from dataflow.runners.endless_input import warn_of_endless_input
from dataflow.runners.explain_table import Explanation
from dataflow.runners.interrupts import CtrlC
from dataflow.runners.job_progress import NoLine, ProgressLine
from dataflow.runners.recordings import RecordTo, checked_record, opener
from dataflow.runners.spark.batch.dataframe import dataframe_of, part_of
from dataflow.runners.spark.batch.explain import explain_batch
from dataflow.runners.spark.batch.start import BatchStart, batch_plan
from dataflow.runners.spark.driver import Driver
from dataflow.runners.spark.driver_events import Recording
from dataflow.runners.spark.envelopes import DDL
from dataflow.runners.spark.even_slots import even_slots
from dataflow.runners.spark.explain import explain_plan
from dataflow.runners.spark.job import SparkJob
from dataflow.runners.spark.job_directory import JobDirectory
from dataflow.runners.spark.keyed_tasks import keyed_task_processor
from dataflow.runners.spark.native_readers import NativeReaders
from dataflow.runners.spark.observed_figures import observed
from dataflow.runners.spark.placement import SparkPlan, plan_for_spark
from dataflow.runners.spark.progress_and_result import SparkMeter
from dataflow.runners.spark.quiet_logs import is_spark_handler
from dataflow.runners.spark.restore import go_back, start_or_restore
from dataflow.runners.spark.session import (
    active_session,
    check_kind,
    parallelism_of,
    partitions_of,
    pyspark,
    session_for,
)
from dataflow.runners.spark.session_kinds import cores_of, is_connect
from dataflow.runners.spark.source_tasks import Assignment, data_source_class
from dataflow.runners.spark.stream_query import StreamQuery
from dataflow.runners.spark.user_errors import original_error
from dataflow.runners.spark.worker_check import check_workers
from dataflow.runtime.restore.find_checkpoint import refuse_larger, refuse_without_store
from dataflow.runtime.task.notices import Notices
from dataflow.store.base import CheckpointStore

__all__ = ["SparkRunner"]

_KEY_GROUPS = 128
"""Key groups of a keyed operator. Each costs a call in every micro-batch, and limits the parallelism."""
_IGNORED: Final = ("every", "min_pause", "timeout", "max_concurrent", "tolerable_failures", "keep", "duplicates")
_STATE_MEMORY: Final = 512 << 20
_MANY: Final = 16
"""Partitions for each core of which a user is warned."""
_Metrics = Literal["tasks", "full"]


class SparkRunner:
    """Runs a pipeline on Spark.

    Args:
        session: the SparkSession to use, as it is; None: the active one, else a new one on this machine.
        rows_per_trigger: rows that a micro-batch should read from all sources together, in whole batches.
        conf: settings for the session that is started; they override our defaults.
        sources: DataFrames of the session by the names of sources: Spark reads in their place. Other runners ignore
            them and read the pipeline's own sources. In a batch each is read once. In a stream they are streaming
            DataFrames, which limit the rows of a micro-batch (``maxFilesPerTrigger``, ``maxOffsetsPerTrigger``); there
            is one for each source, or for none. If the pipeline's own sources are bounded, a stream reads the input
            that exists when it starts, and a later run reads new input.
        metrics: ``"full"``: in a batch, count also the rows of operators that Spark computes itself, which takes it
            some more time; ``"tasks"``: only those of sources, sinks and operators in Python workers.

        state_memory: bytes for the keyed state that each Python worker of a stream keeps in memory between
            micro-batches, counted as four times what is stored of it; 0: none. A task whose state is not in its
            worker's memory loads it from Spark, which takes time in proportion to the state. It never changes a result.

    Raises: ConfigurationError if ``rows_per_trigger`` is less than 1, ``state_memory`` is negative, or ``metrics`` is
    another word.

    >>> SparkRunner(rows_per_trigger=50_000)
    SparkRunner(rows_per_trigger=50_000)
    """

    def __init__(
        self,
        session: Any = None,
        *,
        rows_per_trigger: int = 1_000_000,
        conf: Mapping[str, str] | None = None,
        sources: Mapping[str, Any] | None = None,
        metrics: _Metrics = "tasks",
        state_memory: int = _STATE_MEMORY,
    ) -> None:
        if metrics not in get_args(_Metrics):
            raise ConfigurationError(f"SparkRunner(metrics=) must be 'tasks' or 'full', got {metrics!r}")
        self._metrics = metrics
        check_count("SparkRunner(rows_per_trigger=)", rows_per_trigger)
        check_count("SparkRunner(state_memory=)", state_memory, least=0)
        self._state_memory = state_memory
        self._session = session
        self._rows = rows_per_trigger
        self._conf = dict(conf or {})
        self._readers = NativeReaders(sources or {})

    def __repr__(self) -> str:
        return f"SparkRunner(rows_per_trigger={self._rows:_})"

    def explain(
        self,
        pipeline: NamedGraph,
        *,
        parallelism: int | None = None,
        max_key_groups: int | None = None,
        execution: Execution | str = "streaming",
    ) -> Explanation:
        """Return a table of where each operator runs. Starts no session.

        Args:
            pipeline: the pipeline to explain.
            parallelism: source tasks of each source that does not set its own number; None: the parallelism of the
                active session, or else of the session that a run would start: by ``conf=``, else one for each core.
            max_key_groups: keyed tasks of each keyed operator; None: 128. In a batch, the partitions of each shuffle;
                None: ``spark.sql.shuffle.partitions``.
            execution: ``"streaming"`` or ``"batch"``.

        Raises: UnsupportedOnRunner for operators, sources or sinks that cannot run on Spark; ConfigurationError for
            what cannot be a batch.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("copy") as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> print(SparkRunner().explain(p, parallelism=2))
        copy on Spark
          operator  kind   on Spark
          in        read   a streaming source of 2 partitions
          out       write  foreachBatch: rows are sent to the driver
        * a micro-batch is the barrier, exactly once: Checkpointing(every=) and its timeouts are ignored
        ...
        """
        session = self._session or self._readers.session or active_session()
        most = parallelism_of(self._conf) if session is None else cores_of(session)
        if Execution.of(execution, "explain") is Execution.BATCH:
            partitions = max_key_groups or partitions_of(session, self._conf)
            plan = batch_plan(pipeline, parallelism or most, partitions, None, "explain", self._readers)
            return explain_batch(pipeline.name, plan, self._readers.texts())
        max_key_groups = max_key_groups or _KEY_GROUPS
        spark_plan = _checked_plan(pipeline, parallelism or min(most, max_key_groups), max_key_groups, self._readers)
        return explain_plan(pipeline.name, spark_plan, self._readers.texts())

    def _start_batch(
        self,
        pipeline: NamedGraph,
        parallelism: int | None,
        checkpoint: Checkpointing | None,
        restore: object,
        partitions: int | None,
        *,
        progress: bool,
        open_file: OpenFile | None,
    ) -> SparkJob:
        batch_plan(pipeline, parallelism or 1, partitions or 1, checkpoint, "run", self._readers)  # before a session
        session = session_for(self._session or self._readers.session, self._conf, streams=False)
        self._readers.check_session(session)
        tasks = parallelism or cores_of(session)
        width = partitions or partitions_of(session, self._conf)
        full = self._metrics == "full"
        if full and is_connect(session):
            raise ConfigurationError(
                'expected SparkRunner(metrics="tasks") with a session of Spark Connect, which does not deliver all '
                'counts, found metrics="full": leave it out, or use a classic session'
            )
        asked = BatchStart(
            pipeline, session, tasks, width, checkpoint, restore, progress, full, self._readers, open_file
        )
        return asked.start(check_picklable)

    def dataframe(
        self,
        pipeline: NamedGraph,
        operator: str,
        *,
        parallelism: int | None = None,
        max_key_groups: int | None = None,
    ) -> Any:
        """Return the rows of one operator of ``pipeline``, run as a batch, as a DataFrame for SQL, ML or tables.

        It is computed when it is used, and again each time; ``persist()`` keeps its rows. Nothing is written to the
        sinks of the pipeline. Rows that Spark needs of Python workers before others are computed at once.

        Args:
            pipeline: the pipeline, whose input must have an end.
            operator: the name of the operator.
            parallelism, max_key_groups: as for `start`.

        Returns: a ``pyspark.sql.DataFrame``, with types that hold all values of the operator's columns.

        Raises: ConfigurationError if there is no such operator, or the pipeline cannot be a batch; UnsupportedOnRunner
            for what cannot run on Spark, and for columns for whose values it has no type.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("totals") as p:
        ...     rows = p.source(op.from_arrow(pa.table({"k": ["a", "b", "a"]})), name="rows")
        ...     rows.key_by("k").agg(n=op.count(), name="totals").sink(op.collect(), name="out")
        >>> def most(session):
        ...     return SparkRunner(session).dataframe(p, "totals").orderBy("n").tail(1)  # [Row(k='a', n=2)]
        >>> SparkRunner().dataframe(p, "total")
        Traceback (most recent call last):
        dataflow.errors.ConfigurationError: dataframe: pipeline 'totals' has no operator 'total' with rows (did you ...
        """
        part = part_of(pipeline, operator)
        batch_plan(part, parallelism or 1, max_key_groups or 1, None, "dataframe", self._readers)
        session = session_for(self._session or self._readers.session, self._conf, streams=False)
        self._readers.check_session(session)
        tasks = parallelism or cores_of(session)
        width = max_key_groups or partitions_of(session, self._conf)
        return dataframe_of(part, session, tasks, width, self._readers, check_picklable)

    def _checked_session(self) -> Any:
        session = session_for(self._session or self._readers.session, self._conf)
        self._readers.check_session(session)
        return session

    def start(
        self,
        pipeline: NamedGraph,
        *,
        parallelism: int | None = None,
        checkpoint: Checkpointing | None = None,
        restore: object = "auto",
        take_back: bool = False,
        max_key_groups: int | None = None,
        progress: bool = False,
        execution: Execution | str = "streaming",
        record: RecordTo = None,
        renamed: Mapping[str, str] | None = None,
        allow_dropped: Sequence[str] = (),
    ) -> SparkJob:
        """Start ``pipeline`` and return the job, which is a context manager.

        Args:
            pipeline: the pipeline to run.
            parallelism: source tasks of each source that does not set its own number; None: as many as the job was
                started with; for a new job, the cores of the session.
            checkpoint: the job's directory, on a disk that all workers see; None: a temporary directory, so a failed
                job starts over. A micro-batch is the barrier, so other settings are ignored, except
                ``max_restore_bytes``, ``input_identity`` and ``mode``, which must be ``"aligned"``.
            restore: ``"auto"`` (resume after the last micro-batch, else start a new job), ``"never"`` or ``"latest"``.
            take_back: False, because no checkpoint of another directory can be restored.
            max_key_groups: key groups that keys are distributed to; None: as many as the job was started with, 128 for
                a new job. In a batch, the partitions of each shuffle; None: ``spark.sql.shuffle.partitions``.
            progress: show a line of progress on stderr while a caller waits for the job.
            execution: ``"streaming"``, or ``"batch"``: all input is read, then the results come; see `Pipeline.run`.
                ``checkpoint`` is then a store or a directory that only this process has to see.
            record: a file on this machine that gets the events of the run: a path, or `Record`, whose ``every`` has no
                effect, because events come with micro-batches; see `Pipeline.run`.
            renamed, allow_dropped: refused unless they are empty, because stateful operators of a stream on Spark stay
                as they are.

        Raises: UnsupportedOnRunner, before anything starts, if Spark
            cannot run the pipeline exactly; ConfigurationError for a session that cannot run it; CheckpointsExist,
            NoCheckpoint, CheckpointMismatch, CheckpointDamaged or InputChanged if the job in the directory cannot be
            restored; DirectoryInUse if another process runs it; EventsError if the run cannot be recorded there.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("copy") as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> def copied(session):
        ...     with SparkRunner(session).start(p, parallelism=1) as job:
        ...         return job.wait().rows_out  # {'out': 2}
        >>> SparkRunner().start(p, checkpoint=flow.Checkpointing("job", mode="unaligned"))
        Traceback (most recent call last):
        dataflow.errors.UnsupportedOnRunner: checkpoint mode 'unaligned': not on the spark runner: ...
        """
        if parse_changes(renamed, allow_dropped):
            raise UnsupportedOnRunner(
                "renamed= and allow_dropped=", "spark", "a stream keeps the operators with state that it began with",
                "leave them out, and restore with the pipeline that began, or start over in a new directory",
            )  # fmt: skip
        if take_back is not False:
            raise UnsupportedOnRunner(
                f"take_back={take_back!r}", "spark", "Spark restores no checkpoint of another directory",
                "leave it out, or run on the local runner",
            )  # fmt: skip
        open_file = opener(checked_record(record, pipeline.graph, checkpoint))
        if Execution.of(execution, "run") is Execution.BATCH:
            return self._start_batch(
                pipeline, parallelism, checkpoint, restore, max_key_groups, progress=progress, open_file=open_file
            )
        location = job_location(checkpoint)
        policy = parse(restore)
        if not isinstance(policy, Policy):
            raise UnsupportedOnRunner(
                f"restore={restore!r}", "spark", "Spark can only resume after its last micro-batch",
                'use restore="auto" or "latest", or start over in a new directory',
            )  # fmt: skip
        refuse_without_store(restore, checkpoint)
        before = None if location is None else JobDirectory(location.absolute())
        if before is not None and checkpoint is not None:
            refuse_larger(before.restored_bytes, checkpoint.max_restore_bytes, f"the job in {before.path}")
        given = self._session or self._readers.session
        if is_connect(given):
            check_kind(given, streams=True)  # before what a DataFrame of such a session lacks for a stream
        self._readers.check(pipeline.graph)
        groups = max_key_groups or (before and before.key_groups) or _KEY_GROUPS
        fixed = parallelism or (before and before.parallelism)
        if not self._readers:  # refuse a pipeline before a session starts; readers have a session already
            _checked_plan(pipeline, fixed or 1, groups, self._readers)
        session = self._checked_session()
        cores = cores_of(session)
        source_tasks = fixed or min(cores, groups)
        spark_plan = _checked_plan(pipeline, source_tasks, groups, self._readers, input_identity(checkpoint))
        check_picklable(spark_plan)
        check_workers(session, spark_plan)
        warn_of_endless_input(pipeline.name, pipeline.graph)
        notices = Notices()
        with notices.as_notes():
            spark_plan = spark_plan.loaded(notices.add)
        self._readers.warn_of_splits(pipeline.graph, notices)
        directory = before or _temporary_directory()
        partitions = directory.partitions or int(session.conf.get("spark.sql.shuffle.partitions"))
        if not directory.has_job and spark_plan.depth and partitions >= _MANY * cores:
            notices.add(
                ManyPartitionsWarning,
                f"spark.sql.shuffle.partitions is {partitions} and the session has {cores} cores: after each shuffle a "
                "micro-batch runs so many tasks, each with a state store of its own, also if they have no rows; set it "
                "to one to four times the cores, in a new directory, because a job keeps the number it starts with",
            )
        slots = directory.slots if directory.has_job else even_slots(len(spark_plan.keyed_tasks), partitions)
        run_id = uuid.uuid4().hex[:12]
        assignment = Assignment(
            spark_plan.numbered(slots, partitions), directory, run_id, self._rows, self._state_memory
        )
        with CtrlC(replaces=is_spark_handler) as pressed, ExitStack() as resources:
            if location is None:
                resources.callback(directory.remove)
            resources.enter_context(directory.lock(assignment.run_id))
            recording = Recording.of(pipeline.name, checkpoint, spark_plan, open_file)
            driver = start_or_restore(
                assignment, recording, source_tasks, policy, self._readers.stored, resources, notices
            )

            def start_query() -> Any:
                return _query(session, assignment, driver, self._readers, bounded=pipeline.graph.bounded)

            try:
                query = StreamQuery(start_query, driver, lambda: go_back(driver))
            except Exception as error:
                with driver.notices.as_notes():
                    raise original_error(error, directory) from None
            meter = SparkMeter(driver)
            line = ProgressLine(pipeline.name, meter, sys.stderr, driver.clock) if progress else NoLine()
            job = SparkJob(pipeline.name, query, driver, checkpoint, resources.pop_all(), line, meter)
        if pressed.count:
            job.cancel()
            raise KeyboardInterrupt
        return job


def _temporary_directory() -> JobDirectory:
    return JobDirectory(Path(tempfile.mkdtemp(prefix="barrierflow-spark-")).absolute(), temporary=True)


def _checked_plan(
    pipeline: NamedGraph,
    source_tasks: int,
    key_groups: int,
    readers: NativeReaders,
    identity: InputIdentity = "mtime",
) -> SparkPlan:
    readers.check(pipeline.graph)
    spark_plan = plan_for_spark(
        pipeline.graph,
        parallelism=source_tasks,
        key_groups=key_groups,
        readers=readers.names,
        input_identity=identity,
    )
    readers.check_plan(spark_plan)
    return readers.awaiting(spark_plan)


def _query(session: Any, assignment: Assignment, driver: Driver, readers: NativeReaders, *, bounded: bool) -> Any:
    """Start the streaming query: source tasks or native readers, then for each level a shuffle and its keyed tasks."""
    name = f"barrierflow_{assignment.run_id}"
    spark_plan: SparkPlan = assignment.spark_plan
    without_sources = replace(assignment, spark_plan=spark_plan.for_workers(with_sources=False))
    if readers:
        frame = readers.frame(without_sources)
    else:
        session.dataSource.register(
            data_source_class(replace(assignment, spark_plan=spark_plan.for_workers(with_sources=True)), name)
        )
        frame = session.readStream.format(name).load()
    for level in range(1, spark_plan.depth + 1):
        frame = frame.groupBy("slot").transformWithState(
            statefulProcessor=keyed_task_processor(without_sources, level),
            outputStructType=DDL,
            outputMode="Append",
            timeMode="None",
        )
    writer = observed(frame).writeStream.outputMode("append").foreachBatch(driver.batch).queryName(name)
    writer = writer.option("checkpointLocation", assignment.directory.spark)
    return (writer.trigger(availableNow=True) if bounded else writer.trigger(processingTime="0 seconds")).start()


def job_location(checkpoint: Checkpointing | None) -> Path | None:
    """Return the directory of a job; None: a temporary one. Warn of settings that are ignored on Spark.

    Raises: UnsupportedOnRunner for modes and locations that Spark does not support.
    """
    if checkpoint is None:
        return None
    if checkpoint.mode is not Mode.ALIGNED:
        raise UnsupportedOnRunner(
            f"checkpoint mode {checkpoint.mode.value!r}", "spark", "a micro-batch is a barrier that nothing overtakes",
            'use mode="aligned", or the local runner',
        )  # fmt: skip
    if isinstance(checkpoint.location, CheckpointStore):
        raise UnsupportedOnRunner(
            f"checkpoints in {checkpoint.location!r}", "spark", "Spark stores its own checkpoints in a directory",
            "give Checkpointing(...) the path of a directory",
        )  # fmt: skip
    plain = Checkpointing(checkpoint.location)
    given = [f"{name}=" for name in _IGNORED if getattr(checkpoint, name) != getattr(plain, name)]
    if given:
        warnings.warn(
            f"on Spark every micro-batch is an exactly-once checkpoint: Checkpointing({', '.join(given)}) is ignored; "
            "set the size of a micro-batch with SparkRunner(rows_per_trigger=)",
            IgnoredSettingWarning,
            stacklevel=user_frame(),
        )
    return Path(checkpoint.location)


def check_picklable(spark_plan: SparkPlan) -> None:
    """Raise UnsupportedOnRunner for an operator that cannot be pickled. Sources may hold tables and are not checked."""
    pickle: Any = pyspark("pyspark.cloudpickle")
    for node in spark_plan.for_workers(with_sources=False).plan.graph:
        try:
            pickle.dumps(node.spec)
        except Exception as error:
            raise UnsupportedOnRunner(
                f"operator {node.name!r}",
                "spark",
                f"it cannot be sent to other processes ({error})",
                "create locks, files and connections inside of its functions, or in open() of an operator",
            ) from error
