"""The class Pipeline: where streams begin, and what is run, started or explained.

>>> import pyarrow as pa, dataflow as flow, operators as op
>>> from dataflow import col
>>> with flow.Pipeline("prices") as p:
...     high = p.source(op.from_arrow(pa.table({"price": [1, 5, 9]}))).filter(col("price") > 3)
...     high.sink(op.collect(), name="high")
>>> p.run().table("high")["price"].to_pylist()
[5, 9]
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, overload

from dataflow.api.pictures import Drawn
from dataflow.api.streams import Stream
from dataflow.clock import Duration, microseconds
from dataflow.contracts.source import Source
from dataflow.errors import ConfigurationError, GraphError, did_you_mean
from dataflow.planning.checks import check_names_differ
from dataflow.planning.graph import Graph
from dataflow.planning.specs import Read
from dataflow.registry import resolve

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.contracts.checkpointing import Checkpointing
    from dataflow.contracts.restarts import Restarts
    from dataflow.events.record import Record
    from dataflow.runners.explain_table import Explanation
    from dataflow.runners.local import LocalRunner
    from dataflow.runners.local_job import LocalJob
    from dataflow.runners.run_result import RunningJob, RunResult
    from dataflow.runners.simulated import SimulatedJob, SimulatedRunner
    from dataflow.runners.spark.job import SparkJob
    from dataflow.runners.spark.runner import SparkRunner
    from dataflow.views.picture import Picture

__all__ = ["Pipeline"]

RestoreFrom = int | str | PathLike[str]
"""``"auto"``, ``"never"``, ``"latest"``, or the id or path of a checkpoint."""
ExecutionName = Literal["streaming", "batch"]
"""How a job runs: see `Pipeline.run`."""


class Pipeline:
    """A named graph of sources, transforms and sinks.

    As a context manager it checks the graph at the end of the block. The same pipeline may be run any number of times;
    every run has operators of its own.

    Args:
        name: the name in checkpoints, logs and results.

    Raises: GraphError if ``name`` is no text; at the end of the block, if the graph cannot run.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> with flow.Pipeline("copy") as p:
    ...     p.source(op.from_arrow(pa.table({"x": [1]})), name="in").sink(op.collect(), name="out")
    >>> p
    Pipeline('copy')
      in = read() -> [x]
      out = write(in) -> [x]
    """

    def __init__(self, name: str = "pipeline") -> None:
        if not isinstance(name, str):
            raise GraphError(f"Pipeline(name=) must be text, got {name!r} ({type(name).__name__})")
        self.name = name
        self.graph = Graph()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.graph.validate()

    def __repr__(self) -> str:
        lines = [f"Pipeline({self.name!r})"]
        names = [node.name for node in self.graph]
        for node in self.graph:
            inputs = ", ".join(names[e.source] + (f" by {', '.join(e.keys)}" if e.keys else "") for e in node.inputs)
            columns = ", ".join(node.schema.names)
            lines.append(f"  {node.name} = {node.kind}({inputs}) -> [{columns}]")
        return "\n".join(lines)

    def source(self, source: Source, *, name: str | None = None, parallelism: int | None = None) -> Stream:
        """Return a stream of the rows of ``source``.

        Args:
            source: where the rows come from, such as ``op.read_parquet("in/*.parquet")``.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks read its splits; None: as many as the run says.

        Raises: GraphError if ``source`` is no `Source` or its schema is invalid, or if ``name`` or ``parallelism`` is.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> flow.Pipeline().source(op.from_arrow(pa.table({"x": [1]})), name="numbers")
        Stream('numbers', [x: int64])
        """
        if not isinstance(source, Source):
            raise GraphError(
                f"p.source(): expected a Source such as op.read_parquet(...), got {type(source).__name__}; "
                "wrap tables in op.from_arrow(...)"
            )
        node = self.graph.add(
            Read(source),
            (),
            _schema_of(source),
            label="source",
            name=name,
            parallelism=parallelism,
            sides=source.sides,
        )
        return Stream(self, node)

    @overload
    def run(
        self,
        runner: Literal["local"] | LocalRunner = "local",
        *,
        timeout: Duration | None = None,
        parallelism: int | None = 1,
        checkpoint: Checkpointing | None = None,
        restore: RestoreFrom = "auto",
        take_back: bool = False,
        channel_credit: int = 4,
        max_key_groups: int | None = 128,
        progress: bool = False,
        execution: ExecutionName = "streaming",
        record: str | PathLike[str] | Record | None = None,
        restarts: Restarts | None = None,
        renamed: Mapping[str, str] | None = None,
        allow_dropped: Sequence[str] = (),
    ) -> RunResult: ...

    @overload
    def run(
        self,
        runner: Literal["simulated"] | SimulatedRunner,
        *,
        timeout: Duration | None = None,
        parallelism: int | None = 1,
        checkpoint: Checkpointing | None = None,
        restore: RestoreFrom = "auto",
        take_back: bool = False,
        channel_credit: int = 2,
        max_key_groups: int | None = 128,
        execution: ExecutionName = "streaming",
        record: str | PathLike[str] | Record | None = None,
        restarts: Restarts | None = None,
        renamed: Mapping[str, str] | None = None,
        allow_dropped: Sequence[str] = (),
    ) -> RunResult: ...

    @overload
    def run(
        self,
        runner: Literal["spark"] | SparkRunner,
        *,
        timeout: Duration | None = None,
        parallelism: int | None = None,
        checkpoint: Checkpointing | None = None,
        restore: Literal["auto", "never", "latest"] = "auto",
        take_back: bool = False,
        max_key_groups: int | None = None,
        progress: bool = False,
        execution: ExecutionName = "streaming",
        record: str | PathLike[str] | Record | None = None,
        renamed: Mapping[str, str] | None = None,
        allow_dropped: Sequence[str] = (),
    ) -> RunResult: ...

    @overload
    def run(self, runner: Any, *, timeout: Duration | None = None, **options: Any) -> RunResult: ...

    def run(self, runner: Any = "local", *, timeout: Duration | None = None, **options: Any) -> RunResult:
        """Run to the end of the input and return the result.

        Args:
            runner: ``"local"`` (threads), ``"simulated"`` (one seeded schedule), ``"spark"``, or a runner object.
            timeout: after this time the job is cancelled and JobTimeout is raised; its last checkpoint stays. A call of
                a user's function that is running then is waited for, but for no longer than 5 s: Python cannot stop a
                thread.
            parallelism: the number of subtasks of each operator that has none of its own. None: 1; on Spark as many
                as the job began with, or as the session has cores.
            checkpoint: ``Checkpointing(...)``; None: no checkpoints, so after a failure the job starts over.
            restore: ``"auto"`` (the newest checkpoint, or a fresh start if there is none), ``"never"``, ``"latest"``;
                on the local and the simulated runner also the id or the path of a checkpoint.
            take_back: with a path of a checkpoint outside of the job's own directory: whether rows may be deleted that
                sinks committed after it, perhaps for a job that has continued. False: a start that would have to
                delete some is refused, with their number. A restore of a checkpoint of the own directory deletes such
                rows in any case, with a warning. Not on Spark.
            channel_credit: the most batches that wait in a channel; not on Spark.
            max_key_groups: the number of key groups, which bounds the parallelism of keyed operators. None: 128; on
                Spark as many as the job began with, and in a batch ``spark.sql.shuffle.partitions``.
            progress: whether to show a line about the running job on standard error; not in a simulation.
            execution: ``"streaming"``: rows are processed as they come, and watermarks say when windows are complete.
                ``"batch"``: the input, which must have an end, is read first; no row is late, and there is one
                checkpoint, after the end: see ``docs/batches.md``.
            record: a file that gets the events of the run while it runs: a path, or `Record` with its settings.
                `read_events` reads it. Runs of the same job append.
            restarts: whether, and after which delays, a job that failed restarts from its newest checkpoint, such as
                ``Restarts.fixed(3, "10s")``; None: the first error fails the run. It needs ``checkpoint``; see
                `Restarts`. Not on Spark, which repeats work after its own transient failures.
            renamed: new names of operators by their old ones, if they have changed since the checkpoint that is
                restored, and of aggregates as "operator.aggregate": ``{"old": "new", "counts.total": "counts.sum"}``.
                What was renamed in an earlier run stays as it is, so a script may keep the argument. Not on Spark.
            allow_dropped: what the checkpoint has and the pipeline has not any more, so that its state is dropped:
                operators, sources and sinks, aggregates and states of process functions, as in ``["old",
                "counts.total", "function.state"]``. What is new needs no permission, and starts empty. Not on Spark.

        Returns: counts, tables, checkpoints and metrics of the run; ``print`` it for a summary.

        Raises: the error of a user's function, with operator, subtask and a sample of the batch as notes; or an
            error of `dataflow.errors`, such as ConfigurationError for an option that the runner does not have.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline() as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]}))).sink(op.collect(), name="out")
        >>> p.run("local", parallelism=2, timeout="1min").rows_out
        {'out': 2}
        """
        if timeout is not None:
            microseconds(timeout, "run(timeout=)")  # before anything starts
        return self._start("run", runner, options).wait(timeout=timeout)

    @overload
    def explain(
        self,
        runner: Literal["local"] | LocalRunner = "local",
        *,
        parallelism: int | None = 1,
        checkpoint: Checkpointing | None = None,
        max_key_groups: int | None = 128,
        execution: ExecutionName = "streaming",
    ) -> Explanation: ...

    @overload
    def explain(
        self,
        runner: Literal["spark"] | SparkRunner,
        *,
        parallelism: int | None = None,
        max_key_groups: int | None = None,
        execution: ExecutionName = "streaming",
    ) -> Explanation: ...

    @overload
    def explain(self, runner: Any, **options: Any) -> Any: ...

    def explain(self, runner: Any = "local", **options: Any) -> Any:
        """Return a table of how ``runner`` would run each operator, to print. Nothing is read, run or started.

        Args:
            runner: ``"local"``, ``"spark"``, or a runner object that explains.
            parallelism, max_key_groups, checkpoint, execution: as for `run`; Spark takes no ``checkpoint=``.

        Raises: UnsupportedOnRunner for operators that the runner cannot run; ConfigurationError for a runner that does
            not explain.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("totals") as p:
        ...     rows = p.source(op.from_arrow(pa.table({"k": [1], "x": [2]})), name="rows")
        ...     some = rows.filter(flow.col("x") > 0, name="some").key_by("k")
        ...     some.agg(op.count().alias("n"), name="totals").sink(op.collect(), name="out", parallelism=1)
        >>> print(p.explain(parallelism=2))
        totals on threads of this process
          operator        kind       vertex  subtasks  rows come
          rows            read       rows    2         from the source
          some            filter     rows    2         chained
          totals/combine  combine    rows    2         chained, folded per key
          totals          aggregate  totals  2         hash by k from totals/combine, 2 x 2 channels
          out             write      out     1         rebalance from totals, 2 x 1 channels
        * no checkpoints; end to end at most once
        * operators of a vertex are chained: each of its subtasks is one task, in which rows pass without a queue
        """
        self.graph.validate()
        engine = _engine(runner)
        if not hasattr(engine, "explain"):
            raise ConfigurationError(f"runner {runner!r} cannot explain a pipeline; use 'local' or 'spark'")
        _check_options("explain", runner, engine.explain, options)
        return engine.explain(self, **_given(options))

    def draw(self, parallelism: int = 1, *, physical: bool = False) -> Picture:
        """Return a picture of the pipeline, to print or to save; notebooks show it. Nothing is read, run or started.

        The pipeline may be unfinished.

        Args:
            parallelism: the number of subtasks of each operator that has none of its own.
            physical: False: operators, streams and keys, as they were written. True: how they run on threads: vertices
                with their tasks and the operators chained in them, channels, and how rows are distributed over these.

        Raises: ConfigurationError for a parallelism that is no whole number above 0; if ``physical``, GraphError for a
            forward edge between operators of different parallelism.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("totals") as p:
        ...     rows = p.source(op.from_arrow(pa.table({"k": [1], "x": [2]})), name="rows").key_by("k")
        ...     rows.agg(op.count().alias("n"), name="totals").sink(op.collect(), name="out", parallelism=1)
        >>> print(p.draw(parallelism=2, physical=True))
        totals: 3 vertices, 5 tasks, 6 channels
        <BLANKLINE>
          ○ rows            2 tasks, source, read
          ┊ totals/combine  folds rows per key
          │                 ↓ hash by k, 2 x 2 channels
          ▣ totals          2 tasks, aggregate, keeps state
          │                 ↓ rebalance, 2 x 1 channels
          ● out             1 task, sink, write
        """
        drawn = Drawn(self.name, self.graph)
        return drawn.physical(parallelism) if physical else drawn.logical(parallelism)

    def _repr_html_(self) -> str:
        from dataflow.views.documents import notebook_html

        return notebook_html(self.draw().svg(), repr(self))

    @overload
    def start(
        self,
        runner: Literal["local"] | LocalRunner = "local",
        *,
        parallelism: int | None = 1,
        checkpoint: Checkpointing | None = None,
        restore: RestoreFrom = "auto",
        take_back: bool = False,
        channel_credit: int = 4,
        max_key_groups: int | None = 128,
        progress: bool = False,
        execution: ExecutionName = "streaming",
        record: str | PathLike[str] | Record | None = None,
        restarts: Restarts | None = None,
        renamed: Mapping[str, str] | None = None,
        allow_dropped: Sequence[str] = (),
    ) -> LocalJob: ...

    @overload
    def start(
        self,
        runner: Literal["simulated"] | SimulatedRunner,
        *,
        parallelism: int | None = 1,
        checkpoint: Checkpointing | None = None,
        restore: RestoreFrom = "auto",
        take_back: bool = False,
        channel_credit: int = 2,
        max_key_groups: int | None = 128,
        execution: ExecutionName = "streaming",
        record: str | PathLike[str] | Record | None = None,
        restarts: Restarts | None = None,
        renamed: Mapping[str, str] | None = None,
        allow_dropped: Sequence[str] = (),
    ) -> SimulatedJob: ...

    @overload
    def start(
        self,
        runner: Literal["spark"] | SparkRunner,
        *,
        parallelism: int | None = None,
        checkpoint: Checkpointing | None = None,
        restore: Literal["auto", "never", "latest"] = "auto",
        take_back: bool = False,
        max_key_groups: int | None = None,
        progress: bool = False,
        execution: ExecutionName = "streaming",
        record: str | PathLike[str] | Record | None = None,
        renamed: Mapping[str, str] | None = None,
        allow_dropped: Sequence[str] = (),
    ) -> SparkJob: ...

    @overload
    def start(self, runner: Any, **options: Any) -> RunningJob: ...

    def start(self, runner: Any = "local", **options: Any) -> RunningJob:
        """Start the job and return at once; a context manager that cancels the job if the block ends before the job.

        Args: as for `run`, except ``timeout``, which `RunningJob.wait` takes.

        Returns: the running job, to wait for, watch, checkpoint, stop or cancel.

        Raises: the errors of `run` that are found before the first row, such as GraphError and ConfigurationError.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline() as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]}))).sink(op.collect(), name="out")
        >>> with p.start() as job:
        ...     job.wait().rows_out
        {'out': 2}
        """
        return self._start("start", runner, options)

    def _start(self, method: str, runner: Any, options: Mapping[str, Any]) -> RunningJob:
        self.graph.validate()
        engine = _engine(runner)
        _check_options(method, runner, engine.start, options)
        return engine.start(self, **_given(options))


_NUMBERS: Final = ("parallelism", "max_key_groups")
"""The options that are None if the runner's own number is meant."""


def _engine(runner: Any) -> Any:
    """Return the runner object: one registered under a name, or the one given."""
    return resolve("runner", runner)() if isinstance(runner, str) else runner


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, without the numbers that are None: the runner takes its own."""
    return {name: value for name, value in options.items() if value is not None or name not in _NUMBERS}


def _check_options(method: str, runner: Any, call: Any, options: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for an option that the runner does not have."""
    _, *parameters = inspect.signature(call).parameters.values()  # the first one is the pipeline
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    valid = [parameter.name for parameter in parameters]
    for option in options:
        if option not in valid:
            name = f"runner {runner!r}" if isinstance(runner, str) else type(runner).__name__
            raise ConfigurationError(
                f"{method}: {name} has no option {option!r}{did_you_mean(option, valid)}; it takes {', '.join(valid)}"
            )


def _schema_of(source: Source) -> pa.Schema:
    """Return the schema of a source. Raises: GraphError if it is no schema, or has two columns of one name."""
    import pyarrow as pa

    from dataflow.state.extension_types import plain_schema

    schema: object = source.schema
    if not isinstance(schema, pa.Schema):
        raise GraphError(
            f"p.source({type(source).__name__}): its schema must be a pyarrow.Schema, got {schema!r} "
            f"({type(schema).__name__}); write pa.schema({{'column': pa.int64(), ...}})"
        )
    check_names_differ(schema, f"p.source({type(source).__name__})")
    return plain_schema(schema)
