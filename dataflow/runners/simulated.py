"""The simulated runner: the same tasks, job and store as on threads, but every choice comes from a seed.

The scheduler steps one actor at a time: a task, the job, the oldest job of a background queue, or the clock. One
random generator draws the next actor, the channel that a gate polls, stalls, failing writes and crashes, so a seed
reproduces its run. A crash discards everything but the store and the durable output of sinks; then a new job is built
from the newest checkpoint, as a new process does. An error of the job ends the run, unless ``restarts=`` allows another
attempt in the same process, which keeps its locks. After each step its actor asserts its invariants, and every attempt
is checked for liveness: see ``liveness_check``.

Assumes: operators, sources and sinks have no randomness of their own.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial

from dataflow.clock import Duration, ManualClock, microseconds
from dataflow.contracts.checkpointing import Checkpointing, Mode, input_identity
from dataflow.contracts.emitted_rows import Watches
from dataflow.contracts.evolution import Changes
from dataflow.contracts.execution import Execution
from dataflow.contracts.restarts import GiveUp, Restarts
from dataflow.contracts.sink import TwoPhaseSink
from dataflow.errors import (
    BarrierflowWarning,
    CheckpointsFailedWarning,
    CheckpointSkippedWarning,
    CleanupFailedWarning,
    ClockStepWarning,
    CommitsDelayedWarning,
    CommitsRetriedWarning,
    ConfigurationError,
    JobRestartedWarning,
    JobTimeout,
    RowsTakenBackWarning,
    StoreError,
    check_flag,
)
from dataflow.events.event_log import EventLog
from dataflow.events.record import Record
from dataflow.planning.batch_graph import refuse_in_batch
from dataflow.planning.graph import NamedGraph
from dataflow.planning.physical_plan import Plan, make_plan
from dataflow.planning.specs import Write
from dataflow.protocol.recovery import ByPath, parse
from dataflow.runners.attempts import Attempt, Attempts, RestorePoint, checked_restarts, forget_frames, rows_read
from dataflow.runners.binding import LIBRARY
from dataflow.runners.drawn_policies import DrawnPolicies
from dataflow.runners.endless_input import warn_of_endless_input
from dataflow.runners.event_laws import check_events
from dataflow.runners.faults import Faults, FaultyStore
from dataflow.runners.job_handle import JobHandle
from dataflow.runners.liveness_check import ClockCheck, Stillness, check_age, check_finished
from dataflow.runners.predicate_requests import make_answers
from dataflow.runners.recordings import RecordTo, checked_record, make_recorder
from dataflow.runners.run_result import RunResult, combines, metrics_of, result_of, together, warn_of_unnamed_state
from dataflow.runners.run_warnings import warnings_of
from dataflow.runners.simulated_savepoints import AskedSavepoint
from dataflow.runtime.checkpoint_reader.checkpoint import Checkpoint
from dataflow.runtime.job.build_job import Settings, build, store_of
from dataflow.runtime.job.job import Job
from dataflow.runtime.job.predicates import Answers, Predicate
from dataflow.runtime.job.run_locks import RunLocks
from dataflow.runtime.job.savepoints import Savepoint
from dataflow.runtime.job.who_waits import who_waits_for_whom
from dataflow.runtime.restore.find_checkpoint import refuse_without_store
from dataflow.runtime.restore.job_ids import seeded_ids
from dataflow.runtime.restore.resolve_changes import checked_changes
from dataflow.runtime.task.channel import SIMULATED_CREDIT
from dataflow.runtime.task.crash_points import Point
from dataflow.runtime.task.notices import Notices
from dataflow.runtime.task.progress import JobState, Progress
from dataflow.runtime.task.task import Task
from dataflow.store.manifest import LOG, STATE
from dataflow.store.memory import MemoryStore
from dataflow.views.events import Events, events_since

__all__ = ["Attempt", "Faults", "SimulatedJob", "SimulatedRunner"]


_MAX_PASSES = {
    "step": 400,
    "alignment": 12,
    "recording": 5,
    Point.PREPARED: 4,
    Point.MANIFEST: 3,
    Point.DURABLE: 3,
    Point.COMMIT: 3,
    Point.BETWEEN_COMMITS: 3,
    Point.COMMITTED: 3,
    Point.EXPORT: 12,
    Point.RECOVERY: 3,
}
"""How often a crash point is passed before the crash (exclusive bound): for all but steps, about two checkpoints."""


_PATIENCE = 50
"""Turns of a still job after which the clock advances twice as fast, because only time can move the job."""


_CLOCK_TURNS = 8
"""Turns between two checks of time by the clock: often enough for every step of the wall clock to be seen."""


_LONGEST_STEP = 11.25
"""The decimal logarithm of the longest step of the wall clock: about two days of microseconds."""


_INJECTED = (
    CheckpointSkippedWarning,
    CheckpointsFailedWarning,
    CleanupFailedWarning,
    ClockStepWarning,
    CommitsDelayedWarning,
    CommitsRetriedWarning,
    JobRestartedWarning,
    RowsTakenBackWarning,
)
"""Warnings that injected faults cause. They are not given, only listed in ``RunResult.warnings``."""


_KEPT_EVENTS = 500_000
"""Events that are kept as recorded, for the laws; a longer run is not held to them."""


class _Crash(BaseException):
    """The simulated process crashed. Not an ``Exception``: nothing in the engine may catch it."""


@dataclass(frozen=True, slots=True)
class _Simulation:
    """The settings of a simulation: those of the runner. ``wall`` is in microseconds since 1970."""

    seed: int
    faults: Faults
    max_turns: int
    wall: int


@dataclass(frozen=True, slots=True)
class _Start:
    """What a user asks for: the checkpoint to restore, the changes of the pipeline, and ``take_back``.

    ``take_back``: later rows may be deleted for the checkpoint.
    """

    restore: object
    changes: Changes
    take_back: bool


class SimulatedRunner:
    """Runs a pipeline on one seeded schedule, crashing and restoring according to ``faults``, until it finishes.

    Args:
        seed: selects the schedule and the faults; equal seeds give equal runs.
        faults: the faults that may happen; None: none.
        max_turns: the maximum number of scheduler turns of one attempt, after which JobTimeout is raised.
        wall: what the wall clock shows at the start of the job; without a zone it is UTC. None: the year 1970.

    Raises: ConfigurationError if ``faults`` is not Faults, or ``wall`` is no datetime.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> with flow.Pipeline("x") as p:
    ...     p.source(op.from_arrow(pa.table({"a": [1, 2, 3]}))).sink(op.collect(), name="out")
    >>> p.run(SimulatedRunner(seed=7)).table("out")["a"].to_pylist()
    [1, 2, 3]
    """

    def __init__(
        self,
        seed: int = 0,
        faults: Faults | None = None,
        *,
        max_turns: int = 1_000_000,
        wall: datetime | None = None,
    ) -> None:
        if faults is not None and not isinstance(faults, Faults):
            raise ConfigurationError(
                f"SimulatedRunner(faults=): expected Faults or None, got {faults!r} ({type(faults).__name__}); write "
                "Faults(crashes=1), for example"
            )
        if wall is not None and not isinstance(wall, datetime):
            raise ConfigurationError(
                f"SimulatedRunner(wall=): expected a datetime or None, got {wall!r} ({type(wall).__name__}); write "
                "datetime(2026, 1, 31, 12), for example"
            )
        self._simulation = _Simulation(seed, faults or Faults(), max_turns, 0 if wall is None else _since_1970(wall))

    def start(
        self,
        pipeline: NamedGraph,
        *,
        parallelism: int = 1,
        checkpoint: Checkpointing | None = None,
        restore: object = "auto",
        take_back: bool = False,
        channel_credit: int = SIMULATED_CREDIT,
        max_key_groups: int = 128,
        execution: Execution | str = "streaming",
        record: RecordTo = None,
        restarts: Restarts | None = None,
        renamed: Mapping[str, str] | None = None,
        allow_dropped: Sequence[str] = (),
    ) -> SimulatedJob:
        """Return the job, which runs only inside ``wait``.

        Args: as for `LocalRunner.start`, except ``progress``. ``restarts`` concerns errors: after a crash of ``faults``
            there is always another attempt.

        Raises: ConfigurationError and GraphError for settings that cannot work; the errors of a restore are
            raised by ``wait``.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("x") as p:
        ...     p.source(op.from_arrow(pa.table({"a": [1, 2, 3]}))).sink(op.collect(), name="out")
        >>> job = SimulatedRunner(seed=7).start(p)
        >>> len(job.attempts), job.wait().rows_out, len(job.attempts)
        (0, {'out': 3}, 1)
        """
        refuse_without_store(restore, checkpoint)
        check_flag("take_back=", take_back)
        chosen = Execution.of(execution, "run")
        recording = checked_record(record, pipeline.graph, checkpoint)
        changes = checked_changes(renamed, allow_dropped, pipeline.graph, chosen)
        if chosen is Execution.BATCH:
            refuse_in_batch(pipeline.graph, checkpoint)

        @cache
        def plan_for(settings: Checkpointing | None, rescaled: int | None = None) -> Plan:
            return make_plan(
                pipeline.graph,
                parallelism=parallelism if rescaled is None else rescaled,
                max_key_groups=max_key_groups,
                combine=LIBRARY.mergeable if combines(settings) else None,
                encode=combines(settings),
                input_identity=input_identity(settings),
                execution=chosen,
            )

        warn_of_unnamed_state(pipeline.name, plan_for(checkpoint).logical, checkpoint)
        warn_of_endless_input(pipeline.name, pipeline.graph)
        if checkpoint is None and self._simulation.faults.crashes:
            checkpoint = Checkpointing(MemoryStore())
        policy = checked_restarts(restarts, pipeline.graph, checkpoint)
        start = _Start(restore, changes, take_back)
        return SimulatedJob(
            pipeline.name, plan_for, checkpoint, start, channel_credit, self._simulation, recording, policy
        )


class SimulatedJob(JobHandle):
    """A job in a simulated process that may crash and be started again.

    ``attempts`` lists the attempts in order. ``wait`` runs the job. Its timeout is simulated time, and it
    raises JobTimeout also after ``max_turns`` turns of one attempt. It gives no warnings of failures that ``faults``
    injected, and raises LivenessBroken if a task will never acknowledge or decline a checkpoint. Predicates are called
    for the checkpoints of every attempt, unless a crash precedes the call.
    """

    def __init__(
        self,
        pipeline: str,
        plan_for: Callable[..., Plan],
        checkpoint: Checkpointing | None,
        start: _Start,
        credit: int,
        simulation: _Simulation,
        record: Record | None,
        restarts: Restarts,
    ) -> None:
        super().__init__(pipeline, Notices())
        self.attempts: list[Attempt] = []
        self._policy = restarts
        self._plan_for = plan_for
        self._checkpoint = checkpoint
        self._credit = credit
        self._seed = seed = simulation.seed
        self._faults = faults = simulation.faults
        self._max_turns = simulation.max_turns
        self._random = random.Random(seed)
        self._drawn = DrawnPolicies(faults, self._random, seed)
        self._logs = random.Random(f"writes of logs, seed {seed}")  # other draws stay those of the seed
        self._steps = random.Random(f"steps of the wall clock, seed {seed}")
        self._widths = random.Random(f"numbers of subtasks, seed {seed}")
        self._clock = ManualClock(wall=simulation.wall)
        self._turn = 0
        self._idle = 0
        self._predicates: list[tuple[Answers, Callable[[Job], None] | None]] = []
        self._savepoints: list[AskedSavepoint] = []
        self._asks = random.Random(f"savepoints, seed {seed}")
        self._failure_warnings: Sequence[BarrierflowWarning] = ()  # of the last attempt that failed
        self._id: str | None = None  # of the newest attempt
        self._result: RunResult | None = None
        self._failure: BaseException | None = None
        self._queues: dict[str, deque[tuple[int, Callable[[], None]]]] = {}
        self._stalled: dict[str, int] = {}
        self._slowness: dict[str, float] = {}
        self._crashes_left = faults.crashes
        self._target: Point | str | None = None
        self._passes_left = 0
        self._due_after = 0
        self._durable = 0
        plan = plan_for(checkpoint)
        self._can_align = any(len(plan.channels(link)) > plan.vertices[link.target].parallelism for link in plan.links)
        self._can_align |= any(len(plan.inputs(vertex)) > 1 for vertex in plan.vertices)
        self._committing = sum(isinstance(n.spec, Write) and isinstance(n.spec.sink, TwoPhaseSink) for n in plan.graph)
        self._record = record
        self._log = EventLog(converted_at=_KEPT_EVENTS)
        self._store = None
        if checkpoint is not None:
            self._store = FaultyStore(store_of(checkpoint), self._maybe_fail, self._count_durable)
        self._job: Job | None = None  # of the current attempt
        self._earlier: Notices | None = None  # of the attempts before in this process
        self._counted = Attempts(restarts, self._clock.now())
        self._point, self._start = RestorePoint(start.restore, self._store), start
        self._locks = RunLocks()

    def _wait(self, limit: int | None) -> RunResult:
        if self._failure is not None:
            raise self._failure
        try:
            self._result = self._result or self._run_attempts(limit)
        finally:
            for savepoint in self._savepoints:
                savepoint.job_ended(self._failure)
        return self._result

    def _run_attempts(self, limit: int | None) -> RunResult:
        """Run attempts until one finishes. Raises: the error of an attempt that is not restarted."""
        until = None if limit is None else self._clock.now() + limit
        try:
            while True:
                attempt = Attempt(highest=self._store.highest_id() if self._store is not None else 0)
                self.attempts.append(self._counted.begin(self._clock.now(), attempt))
                settings = self._settings()
                attempt.mode = settings.mode if settings is not None else None
                self._draw_crash()
                self._job = None
                try:
                    return self._run_attempt(settings, until)
                except _Crash as crash:
                    attempt.crash = str(crash)
                    self._end_attempt(None)
                    self._crashes_left -= 1
                    self._locks.release()
                    self._earlier = None
                except Exception as error:
                    self._end_attempt(error)
                    self._restart_after(error)  # raises it, if the job does not restart
                finally:
                    self._discard_attempt()
        finally:
            self._locks.release()

    def _end_attempt(self, error: Exception | None) -> None:
        if self.attempts[-1].ended is None:
            self._counted.end(self._clock.now(), error, 0 if self._job is None else rows_read(self._job))

    def _restart_after(self, error: Exception) -> None:
        """Pass the time until the job restarts after ``error``. Raises: ``error``, if it does not."""
        job = self._job
        is_of_job = job is None or job.error is error  # else a law of the simulation is broken
        if not is_of_job or _is_broken_invariant(error):
            raise error
        now, at = self._clock.now(), None if job is None else job.failed_at
        decision = self._counted.decide(error, at, now, self._point.known_newest)
        if isinstance(decision, GiveUp):
            self._counted.note_given_up(error, decision.reason)
            self._failure = None if job is None else error
            raise error
        self._earlier = self._earlier or (Notices() if job is None else job.notices)
        self._counted.note_restart(self._earlier, error, at, decision.delay)
        forget_frames(error)
        if job is not None:
            job.free()
        for answers, _ in self._predicates:
            answers.error = None  # it is asked again
        self._clock.advance(decision.delay)

    def _ask(self, predicate: Predicate, where: str, then: Callable[[Job], None] | None) -> Answers:
        execution = self._plan_for(self._checkpoint).execution
        answers = make_answers(predicate, where, checkpointed=self._checkpoint is not None, execution=execution)
        self._predicates.append((answers, then))
        return answers

    def savepoint(
        self, path: str | os.PathLike[str], *, after: int = 0, timeout: Duration | None = None
    ) -> Future[Checkpoint]:
        """Have ``wait`` take a savepoint, as `LocalJob.savepoint` does, at a turn that the seed draws.

        After a crash, the next attempt asks for it again.

        Args:
            path: a new or empty directory, or one where an earlier savepoint was not completed.
            after: the number of checkpoints that an attempt completes before it is asked.
            timeout: the longest simulated time until the savepoint is complete; None: no limit.

        Returns: a future of the savepoint, which is done when ``wait`` is over.

        >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("x") as p:
        ...     p.source(op.from_arrow(pa.table({"a": [1, 2, 3]}))).sink(op.collect(), name="out")
        >>> job = flow.SimulatedRunner(seed=7).start(p, checkpoint=flow.Checkpointing(flow.MemoryStore()))
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     saved = job.savepoint(directory)
        ...     result = job.wait()
        ...     saved.result().kind
        'savepoint'
        """
        limit = None if timeout is None else microseconds(timeout, "savepoint(timeout=)")
        return self._ask_savepoint(lambda job: job.savepoint(path, limit), path, after)

    def stop(self, *, savepoint: str | os.PathLike[str], drain: bool = False, after: int = 0) -> RunResult:
        """Run the job, and stop it with a savepoint, as `LocalJob.stop` does, at a turn that the seed draws.

        Args:
            savepoint: the directory, as for `savepoint`.
            drain: end the input of the job before the savepoint.
            after: as for `savepoint`.

        Returns: the result, as of `wait`.

        Raises: the errors of `wait`; the errors of the savepoint, after the job has ended.

        >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("x") as p:
        ...     p.source(op.generate({"id": op.sequence()}), name="in").sink(op.collect(), name="out")
        >>> job = flow.SimulatedRunner(seed=7).start(p, checkpoint=flow.Checkpointing(flow.MemoryStore(), every=None))
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     job.stop(savepoint=directory).state.value
        'stopped'
        """

        def request(job: Job) -> Savepoint:
            return job.drain(savepoint) if drain else job.stop_with_savepoint(savepoint)

        saved = self._ask_savepoint(request, savepoint, after)
        result = self.wait()
        saved.result()
        return result

    def _ask_savepoint(
        self, request: Callable[[Job], Savepoint], path: str | os.PathLike[str], after: int
    ) -> Future[Checkpoint]:
        asked = AskedSavepoint(request, os.fspath(path), after, self._asks)
        self._savepoints.append(asked)
        return asked.future

    def events(self, since: Events | None = None) -> Events:
        """Return what barriers, tasks and the job did in all attempts so far; see `LocalJob.events`.

        Raises: ConfigurationError if ``since`` are events of another job, or if ``wait`` was not called.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("x") as p:
        ...     p.source(op.from_arrow(pa.table({"a": [1, 2, 3]}))).sink(op.collect(), name="out")
        >>> job = flow.SimulatedRunner(seed=7).start(p)
        >>> result = job.wait()
        >>> len(job.events()) == len(result.events)
        True
        """
        if not self._log.attempt:
            raise ConfigurationError("the job has not begun, so there are no events; call wait() first")
        return events_since(self._log, since)

    @property
    def id(self) -> str:
        """The id of the job, as `LocalJob.id`, except that the seed decides which id a new job gets.

        Raises: ConfigurationError if ``wait`` was not called.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("x") as p:
        ...     p.source(op.from_arrow(pa.table({"a": [1, 2, 3]}))).sink(op.collect(), name="out")
        >>> job = flow.SimulatedRunner(seed=7).start(p)
        >>> job.wait().job_id == job.id == p.run(flow.SimulatedRunner(seed=7)).job_id
        True
        """
        if self._id is None:
            raise ConfigurationError("the job has not begun, so it has no id; call wait() first")
        return self._id

    def cancel(self) -> None:
        """Do nothing: the job runs only inside ``wait``."""

    def _leave(self) -> None: ...

    @property
    def _is_over(self) -> bool:
        return self._result is not None or self._failure is not None

    @property
    def _failed_with(self) -> BaseException | None:
        return self._failure

    def _warnings(self, result: RunResult | None) -> Sequence[BarrierflowWarning]:
        """Return the warnings, without those that injected faults caused."""
        warnings = self._failure_warnings if result is None else result.warnings
        return [warning for warning in warnings if self._faults == Faults() or not isinstance(warning, _INJECTED)]

    # --- one attempt

    def _discard_attempt(self) -> None:
        """Discard what an attempt that ended has in memory."""
        self._queues.clear()
        self._stalled.clear()
        for savepoint in self._savepoints:
            savepoint.process_ended()
        if self._store is not None:
            sound = [n for n in self._store.checkpoints() if n not in self._store.damaged]
            if len(sound) > 1 and self._random.random() < self._faults.damage:
                self._store.damaged.add(sound[-1])

    def _run_attempt(self, checkpointing: Checkpointing | None, until: int | None) -> RunResult:
        """Run one attempt until the job ends, or crashes, or it is later than ``until``."""
        attempt, watches = self.attempts[-1], Watches()
        settings = Settings(
            pipeline=self._pipeline,
            run_id=f"seed-{self._seed}",
            make_id=seeded_ids(self._seed),
            checkpointing=checkpointing,
            store=self._store,
            restore=self._point.now,
            changes=self._start.changes,
            take_back=self._start.take_back,
            clock=self._clock,
            submit=self._submit,
            credit=self._credit,
            choose=lambda: self._random.choice,
            pace=self._drawn.pace,
            join=self._drawn.join(),
            polls=self._drawn.polls,
            keep=self._drawn.keep,
            folding=self._drawn.folding,
            task_bytes=self._drawn.task_bytes(),
            probe=self._probe,
            library=LIBRARY,
            spill=self._drawn.spill(),
            emitted=watches,
            engine="simulated",
            recorder=make_recorder(self._record, self._log),
            locks=self._locks,
            notices=self._earlier,
        )
        job = self._job = build(self._plan_for(checkpointing, self._parallelism()), settings)
        self._id = job.identity.job
        self._point.begun()
        job.loading.run()  # takes no simulated time, so a run does not depend on the kernels loaded before
        attempt.restored = report = job.restore_report
        attempt.restored_checkpoint = None if report is None else report.checkpoint
        for answers, then in self._predicates:
            job.on_checkpoint(answers, None if then is None else partial(then, job))
        for task in job.tasks:
            slow = self._random.random() < self._faults.skew
            self._slowness[task] = self._random.choice((0.5, 0.7, 0.9)) if slow else 0.0
        first = self._turn
        stillness, clock_check = Stillness(job), ClockCheck(job, self._stored_time(job))
        try:
            while not job.over:
                self._turn += 1
                self._crash_here(job)
                for savepoint in self._savepoints:
                    savepoint.turn(job)
                self._advance(job, stillness)
                if self._turn % _CLOCK_TURNS == 0:
                    clock_check.check()
                late = until is not None and self._clock.now() > until
                if late or self._turn - first > self._max_turns:
                    waiting = who_waits_for_whom(job, self._clock.now())
                    raise JobTimeout(f"seed {self._seed}: not done after {self._turn - first} turns:\n{waiting}")
        except BaseException as error:
            job.recorder.close()
            job.release()
            if isinstance(error, _Crash):
                check_events(job)
            raise
        finally:
            attempt.turns = self._turn - first
            self._end_attempt(None if job.error is None or not isinstance(job.error, Exception) else job.error)
            attempt.checkpoints = [record.checkpoint for record in job.history.checkpoints]
            attempt.duplicated = job.history.totals.duplicated
            attempt.in_flight = job.history.totals.in_flight_rows
            now = self._clock.now()
            attempt.blocked = sum(
                channel.blocked for task in job.tasks.values() for channel in task.task_input.channels(now)
            )
        if job.state is JobState.FINISHED:
            check_finished(job, self._clock.now())
        job.close()
        check_events(job)
        if job.state is JobState.FINISHED:
            watches.check()
        if job.error is not None:
            self._failure_warnings = warnings_of(job, together(metrics_of(job)))
        return result_of(job, checkpointed=job.identity.checkpointed, attempts=self._counted)

    def _stored_time(self, job: Job) -> int:
        """Return time by the clock of the checkpoint that ``job`` was restored from, or when the job was built."""
        report = job.restore_report
        if report is None or self._store is None or report.checkpoint not in self._store.checkpoints():
            return job.clock.time()
        return self._store.manifest(report.checkpoint).time

    def _parallelism(self) -> int | None:
        """Return the number of subtasks of the next attempt; None: as many as the job has."""
        if len(self.attempts) == 1 or not self._faults.rescale_to:
            return None
        return self._widths.choice(self._faults.rescale_to)

    def _settings(self) -> Checkpointing | None:
        """Return the settings of the next attempt."""
        if len(self.attempts) == 1 or not self._faults.restart_with:
            return self._checkpoint
        return self._random.choice(self._faults.restart_with)

    def _advance(self, job: Job, stillness: Stillness) -> None:
        """Run one turn of the scheduler."""
        draw = self._random
        if self._steps.random() < self._faults.wall_steps:
            self._clock.step_wall(self._steps.choice((-1, 1)) * int(10 ** self._steps.uniform(4, _LONGEST_STEP)))
        self._clock.advance(draw.randrange(1, 200) << min(self._idle // _PATIENCE, 10))
        if draw.random() < self._faults.stall:
            self._stalled[draw.choice(list(job.tasks))] = self._turn + draw.randrange(10, 300)
        running = [name for name, task in job.tasks.items() if task.state is not Progress.DONE]
        actors = ["job", *self._ready(running)]
        queues = [queue for queue, jobs in self._queues.items() if jobs[0][0] <= self._turn]
        chosen = draw.choice(range(len(actors) + len(queues)))
        actor = actors[chosen] if chosen < len(actors) else ""
        moved: object = None
        if not actor:
            self._run(queues[chosen - len(actors)])
        elif actor == "job":
            moved = job.step()
        else:
            moved = self._step(job.tasks[actor])
        now = self._clock.now()
        if actor:  # background work changes neither the job nor a task: it sends them messages
            (job if actor == "job" else job.tasks[actor]).validate()
        # DONE counts as a move: the job has not yet read the reports of the task's last step
        if moved is False or (isinstance(moved, Progress) and moved not in (Progress.WORKED, Progress.DONE)):
            if stillness.idle(actor, now, ("job", *running), writing=bool(self._queues)):
                self._idle += 1
        else:
            self._idle = 0
            stillness.moved()
        check_age(job, now)

    def _ready(self, tasks: Sequence[str]) -> Sequence[str]:
        """Return those of ``tasks`` that may be stepped in this turn: neither stalled nor, by a draw each, slow."""
        if self._stalled:
            tasks = [task for task in tasks if self._stalled.get(task, 0) <= self._turn]
        slowness, draw = self._slowness, self._random.random
        return [task for task in tasks if slowness[task] == 0.0 or draw() >= slowness[task]]

    def _step(self, task: Task) -> Progress:
        """Step a task. A worker would have slept instead if it rests, so the step must do nothing then."""
        rests = task.rests(self._clock.now())
        progress = task.step()
        assert not rests or progress is not Progress.WORKED, f"{task.name} works, but its worker would sleep"
        return progress

    def _submit(self, queue: str, job: Callable[[], None]) -> None:
        """Append a background job to its queue, to run after a random number of turns."""
        delay = self._random.randrange(10, 400) if self._random.random() < self._faults.slow else 0
        self._queues.setdefault(queue, deque()).append((self._turn + delay, job))

    def _run(self, queue: str) -> None:
        """Run the oldest job of a queue."""
        _, job = self._queues[queue].popleft()
        if not self._queues[queue]:
            del self._queues[queue]
        job()

    # --- faults

    def _draw_crash(self) -> None:
        """Draw the place where this attempt crashes, and how often it is passed before the crash."""
        self._target, self._durable = None, 0
        reachable = [target for target in self._faults.crash_at if self._reachable(target)]
        if self._crashes_left == 0 or not reachable:
            return
        self._target = self._random.choice(reachable)
        self._passes_left = self._random.randrange(_MAX_PASSES.get(self._target, 8))
        self._due_after = self._random.choice(list(self._faults.crash_after))
        if self._target is Point.RECOVERY:
            self._due_after = 0

    def _reachable(self, target: Point | str) -> bool:
        """Return whether this attempt can reach ``target``."""
        if target is Point.RECOVERY:
            has_checkpoints = self._store is not None and bool(self._store.checkpoints())
            return has_checkpoints or isinstance(parse(self._start.restore), ByPath)
        if target is Point.EXPORT:
            return bool(self._savepoints)
        if target in (Point.PREPARED, Point.COMMIT, Point.COMMITTED):
            return self._committing > 0
        if target is Point.BETWEEN_COMMITS:
            return self._committing > 1
        mode = self.attempts[-1].mode
        if target == "alignment":
            return self._can_align and mode is not Mode.UNALIGNED_PERSISTED
        if target == "recording":
            return self._can_align and mode in (Mode.UNALIGNED_PERSISTED, Mode.ALIGNED_TIMEOUT)
        return True

    def _count_durable(self) -> None:
        self._durable += 1

    def _reach(self, place: Point | str) -> None:
        """Crash if ``place`` is the drawn place and was passed as often as drawn."""
        if place != self._target or self._durable < self._due_after:
            return
        if self._passes_left == 0:
            self._target = None
            raise _Crash(place.name.lower() if isinstance(place, Point) else place)
        self._passes_left -= 1

    def _probe(self, point: Point) -> None:
        self._reach(point)

    def _crash_here(self, job: Job) -> None:
        self._reach("step")
        if self._target == "alignment" and _aligning(job):
            self._reach("alignment")
        if self._target == "recording" and any(task.recording for task in job.tasks.values()):
            self._reach("recording")

    def _maybe_fail(self, operation: str, part: int = STATE) -> None:
        """Raise StoreError with the probability of ``Faults.fail``."""
        draws = self._logs if part == LOG else self._random
        if draws.random() < self._faults.fail:
            raise StoreError(f"injected: cannot {operation} (seed {self._seed}, turn {self._turn})")


def _is_broken_invariant(error: Exception) -> bool:
    """Return whether ``error`` was raised by an ``assert`` of this library, which a restart must not hide."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    module = "" if step is None else str(step.tb_frame.f_globals.get("__name__"))
    return isinstance(error, AssertionError) and module.partition(".")[0] in ("dataflow", "operators")


def _since_1970(wall: datetime) -> int:
    """Return the microseconds since 1970."""
    moment = wall.replace(tzinfo=UTC) if wall.tzinfo is None else wall
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _aligning(job: Job) -> bool:
    """Return whether a task has received a checkpoint's first barrier and not yet taken its snapshot."""
    return any(task.task_input.aligning for task in job.tasks.values())
