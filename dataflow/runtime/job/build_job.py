"""Build a job from a plan, restored or fresh: channels, gates, operators, tasks and the coordinator.

The order matters: lock the store, find and verify the checkpoint, check sources and channels against it, lock the
outputs of sinks and check them, recover the sinks (which commits rows up to the checkpoint, and deletes later ones) or
begin at other targets, then build.
Nothing runs before that, and nothing is changed before all checks have passed. Verifying a checkpoint includes
restoring the operators of the library from it, because they recognise damage; the tasks get these operators. Kernels
are loaded first, because restoring calls them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

from dataflow.background import Submit
from dataflow.clock import Clock
from dataflow.contracts.checkpointing import Checkpointing, Mode
from dataflow.contracts.emitted_rows import Unwatched, unwatched
from dataflow.contracts.evolution import NO_CHANGES, Changes
from dataflow.contracts.execution import Spill
from dataflow.contracts.folding import Folding, FoldWherePays
from dataflow.contracts.kept_rows import Keep, KeepNone, RowKeeper
from dataflow.contracts.sink import Guarantee
from dataflow.contracts.updates import Signed
from dataflow.errors import (
    CheckpointError,
    CheckpointSkippedWarning,
    ConfigurationError,
    CopiesDifferWarning,
    PipelineChangedWarning,
    RecordingEndedWarning,
    UnsupportedOnRunner,
    did_you_mean,
)
from dataflow.events.plan_shape import task_id
from dataflow.events.recorded import RecordedJob
from dataflow.events.recorder import EventWriter, Recorder, Weight
from dataflow.planning.graph import Partitioning, has_dictionaries, schema_json
from dataflow.planning.physical_plan import Link, Plan, Vertex
from dataflow.planning.plan_shape import shape_of
from dataflow.planning.specs import Read, Write
from dataflow.protocol.alignment import Aligner, EndOfInputPolicy
from dataflow.protocol.checkpoint_policy import CheckpointPolicy
from dataflow.protocol.coordination import Coordinator
from dataflow.protocol.events import BarrierKind
from dataflow.protocol.handler import BarrierHandler
from dataflow.protocol.overtaking import Overtaker
from dataflow.protocol.red_log import RedLog
from dataflow.protocol.tracking import Tracker
from dataflow.runtime.job.committer import Committer
from dataflow.runtime.job.job import Job
from dataflow.runtime.job.run_locks import RunLocks
from dataflow.runtime.restore.changed_tables import note_reloaded
from dataflow.runtime.restore.find_checkpoint import RestoredCheckpoint, find
from dataflow.runtime.restore.in_flight import put_back
from dataflow.runtime.restore.job_ids import MakeJobId, job_of
from dataflow.runtime.restore.new_input import with_new_input
from dataflow.runtime.restore.sink_starts import (
    SinkStarts,
    SinkTargets,
    check_sinks,
    refuse_sinks_inside,
    with_targets,
)
from dataflow.runtime.restore.verification import Verification, two_phase_sinks
from dataflow.runtime.task.byte_credit import TASK_BYTES
from dataflow.runtime.task.chain import Chain, ChainNode
from dataflow.runtime.task.channel import DEFAULT_CREDIT, Channel
from dataflow.runtime.task.channel_input import ChannelInput
from dataflow.runtime.task.crash_points import Point, Probe, no_probe
from dataflow.runtime.task.input_gate import Choose, InputGate, RoundRobin
from dataflow.runtime.task.job_clock import JobClock
from dataflow.runtime.task.joined_rows import DICTIONARIES, SEEN, Apart, JoinPolicy, has_fixed_width
from dataflow.runtime.task.kernel_loading import KernelLoader, kernels_of
from dataflow.runtime.task.library import Library
from dataflow.runtime.task.log_chain import LogChain
from dataflow.runtime.task.messages import Mailbox
from dataflow.runtime.task.notices import Notices
from dataflow.runtime.task.outputs import Output, output_for
from dataflow.runtime.task.pace import Pace, Unpaced
from dataflow.runtime.task.parts import SAMPLE_ROWS, TaskState
from dataflow.runtime.task.poll_times import AtOnce, PollTimes
from dataflow.runtime.task.put_back import PutBack
from dataflow.runtime.task.services import Identity, Services
from dataflow.runtime.task.source_input import SourceInput
from dataflow.runtime.task.task import Task
from dataflow.runtime.task.wiring import SubtaskSetup, wire_chain
from dataflow.store.base import CheckpointStore
from dataflow.store.directory import DirectoryStore
from dataflow.store.memory import MemoryStore

__all__ = ["Settings", "build", "store_of"]

log = logging.getLogger("dataflow.build")

_OVERTAKABLE = (Partitioning.HASH, Partitioning.REBALANCE)
"""Edges where a barrier may overtake rows; on other edges the order of a channel decides which task owns a row."""

_FINAL_ATTEMPTS, _FINAL_PAUSE = 6, 100_000
"""The last checkpoint is retried for about three seconds, so that a disk that is full for a moment fails no job."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that a runner chooses for a job.

    ``credit`` is the number of batches a channel holds; ``choose`` makes the rule by which a gate picks a channel;
    ``pace`` makes the rule by which a task slices batches; ``library`` is the package of operators; ``store`` replaces
    the store at the location of the checkpoints, if a runner wraps it. ``delays`` has, by operator, a function that is
    called with the number of rows before the operator takes them. ``load`` loads the kernels that a restore calls.
    ``join`` makes the rule by which batches are joined while they wait, given the number of channels they are dealt out
    over; ``polls`` makes the rule by which a source task is polled; ``keep`` makes the rule by which an operator keeps
    rows back, and ``folding`` the rule by which it folds them. ``task_bytes`` are the bytes that may wait in all
    channels into a task. ``spill`` says where rows of a batch are sorted; None: as by default. ``emitted`` makes what
    takes note of the rows that a user's operators and sources emit. ``make_id`` makes the id of a new job. ``recorder``
    records what the job does; ``engine`` is the name of the runner. ``locks`` belong to the run, and outlive this
    attempt; None: the job takes its own, and releases them. ``notices`` collect the warnings of all attempts of the
    run; None: there is no earlier attempt, so an error of building the job gets them as notes.
    ``changes`` are the changes of the pipeline that a restore accepts. ``take_back``: if a checkpoint elsewhere is
    restored, rows that sinks committed after it may be deleted.
    """

    pipeline: str
    run_id: str
    checkpointing: Checkpointing | None
    restore: object
    clock: Clock
    submit: Submit
    credit: int = DEFAULT_CREDIT
    choose: Callable[[], Choose] = RoundRobin
    pace: Callable[[], Pace] = Unpaced
    join: Callable[[int], JoinPolicy] = Apart.over
    polls: Callable[[], PollTimes] = AtOnce
    keep: Callable[[], Keep] = KeepNone
    folding: Callable[[], Folding] = FoldWherePays
    task_bytes: int = TASK_BYTES
    probe: Probe = no_probe
    store: CheckpointStore | None = None
    delays: Mapping[str, Callable[[int], None]] = field(default_factory=dict)
    load: Callable[[KernelLoader], None] = KernelLoader.run
    spill: Spill | None = None
    emitted: Callable[[str], Unwatched] = unwatched
    changes: Changes = NO_CHANGES
    take_back: bool = False
    engine: str = "local"
    recorder: Recorder = field(default_factory=Recorder)
    locks: RunLocks | None = None
    notices: Notices | None = None
    make_id: MakeJobId = field(kw_only=True)
    library: Library = field(kw_only=True)


def build(plan: Plan, settings: Settings) -> Job:
    """Return a job that is ready to step; the locks of its store and sinks are taken.

    ``job.close()`` releases them, unless they belong to the run.

    Raises: errors of locking, restoring, checking the input and recovering the sinks; then nothing stays locked.
    """
    checkpointing = settings.checkpointing or Checkpointing(MemoryStore())
    _refuse_ends_elsewhere(plan)
    _refuse_unreplayable(plan, settings.checkpointing)
    _refuse_unknown(plan, settings.delays)
    store = settings.store or store_of(checkpointing)
    notices = settings.notices or Notices()
    noted = notices.as_notes if settings.notices is None else nullcontext
    clock = JobClock(settings.clock, notices.add)
    services = Services(
        store, settings.submit, clock, Mailbox(), settings.library, settings.probe, notices, settings.recorder
    )
    with noted():
        plan = plan.loaded(services.notices.add)
    with ExitStack() as held:
        locks = settings.locks or RunLocks()
        if settings.locks is None:
            held.callback(locks.release)
        locks.open(store, settings.run_id)
        builder = _Builder(plan, settings, checkpointing, services, clock, locks, held)
        with noted():
            job = builder.build()
        job.held = held.pop_all()
        return job


def store_of(checkpointing: Checkpointing) -> CheckpointStore:
    """Return the store at the location in the settings."""
    location = checkpointing.location
    return location if isinstance(location, CheckpointStore) else DirectoryStore(location)


def _refuse_ends_elsewhere(plan: Plan) -> None:
    """Raise UnsupportedOnRunner for a source or a sink that exists on another runner only."""
    for node in plan.graph:
        spec = node.spec
        end = spec.source if isinstance(spec, Read) else spec.sink if isinstance(spec, Write) else None
        if end is not None and end.only_on:
            raise UnsupportedOnRunner(
                f"{'source' if isinstance(spec, Read) else 'sink'} {node.name!r}, {end!r}",
                "local",
                f"it exists on the {end.only_on} runner only",
                f'run the pipeline with p.run("{end.only_on}"), or put another one in its place',
            )


def _refuse_unreplayable(plan: Plan, checkpointing: Checkpointing | None) -> None:
    for node in plan.graph:
        if checkpointing and isinstance(node.spec, Read) and not node.spec.source.replayable:
            if node.spec.source.accepts_loss:
                continue
            raise ConfigurationError(
                f"source {node.name!r} cannot be read again from an offset, so a restore would lose rows: run it "
                "without checkpoint=, or accept 'at most once': pass replayable=False to from_arrow or from_generator, "
                "or set accepts_loss = True in a Source of your own"
            )


def _refuse_unknown(plan: Plan, delays: Iterable[str]) -> None:
    names = [node.name for node in plan.graph]
    for name in delays:
        if name not in names:
            raise ConfigurationError(
                f"there is no operator {name!r} to slow down{did_you_mean(name, names)}; there are {names}"
            )


class _Builder:
    """Builds one job, step by step. Used once."""

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        checkpointing: Checkpointing,
        services: Services,
        clock: JobClock,
        locks: RunLocks,
        held: ExitStack,
    ) -> None:
        self.plan = plan
        self.settings = settings
        self.checkpointing = checkpointing
        self.store = services.store
        self.locks = locks
        self.held = held
        self.services = services
        self.clock = clock  # of the services
        self.notices = self.services.notices
        self.channels: dict[tuple[int, int, int], Channel] = {}
        self.chains: dict[str, Sequence[ChainNode]] = {}  # by task, of those that are built
        self.writers: dict[str, EventWriter] = {}  # by task
        self.put_back: Mapping[str, PutBack] = {}  # by task, of those that have some
        self.verification = Verification(
            plan,
            self._setup,
            settings.clock,
            self.notices,
            settings.load,
            settings.join,
            settings.polls,
            settings.emitted,
        )

    def build(self) -> Job:
        plan, settings, store = self.plan, self.settings, self.store
        started = settings.clock.now()
        restored = find(
            settings.restore,
            store,
            plan,
            self.checkpointing.max_restore_bytes,
            self.verification.verify,
            partial(self.notices.add, CopiesDifferWarning),
            settings.changes,
        )
        states = restored.states if restored else {}
        if restored:
            manifest = restored.manifest
            self.clock.raise_to(manifest.time)
            what = f"checkpoint {manifest.checkpoint} in {store.location}"
            note_reloaded(self.notices, manifest.nodes, what, plan)
            for change in restored.report.evolved:
                self.notices.add(PipelineChangedWarning, f"{what}: {change}")
        if restored:  # input that changed was refused, so there can only be new splits
            restored = with_new_input(restored, plan)
        else:
            self.verification.start_fresh()
        self._connect()
        if restored:  # refuses a channel that changed, before anything is deleted or committed
            self.put_back = put_back(restored, plan, self.channels, settings.library)
        sinks = two_phase_sinks(plan)
        if restored:
            restored = with_targets(restored, sinks)
        targets = SinkTargets.of(sinks, restored.manifest if restored else None)
        identity = self._identity(restored, targets)
        refuse_sinks_inside(settings.restore, plan.graph)
        self._open_recording(identity)  # refuses a file of another pipeline, or of a job that runs
        # Also above a checkpoint from another directory, because sinks order their output by these ids.
        next_id = max(store.highest_id(), restored.manifest.checkpoint if restored else 0) + 1
        for name, sink in sinks.items():
            self.locks.hold(name, sink, settings.run_id)
        starts = check_sinks(plan.graph, sinks, restored, store, take_back=settings.take_back)
        self._ready(restored, starts)
        tasks = {task: self._task(vertex, subtask, task, restored) for vertex, subtask, task in plan.tasks()}
        c = self.checkpointing
        policy = CheckpointPolicy(
            interval=c.every,
            min_pause=c.min_pause,
            timeout=c.timeout,
            max_concurrent=c.max_concurrent,
            tolerable_failures=c.tolerable_failures,
            keep=c.keep,
            final_attempts=_FINAL_ATTEMPTS,
            final_pause=_FINAL_PAUSE,
            savepoint_blocks_others=self._overtakes,
        )
        coordinator = Coordinator(
            plan.predecessors(),
            policy,
            next_id=next_id,
            now=settings.clock.now(),
            completed=self._completed(),
            finished=[task for task, state in states.items() if state.ended],
        )
        committer = Committer(sinks, settings.submit, self.services.mailbox.put, settings.probe)
        return Job(
            plan,
            tasks,
            coordinator,
            committer,
            self.services,
            identity,
            loading=KernelLoader(kernels_of(plan, [node.operator for t in tasks.values() for node in t.chain.nodes])),
            restore_report=replace(restored.report, duration=settings.clock.now() - started) if restored else None,
        )

    def _identity(self, restored: RestoredCheckpoint | None, targets: SinkTargets) -> Identity:
        settings, checkpointed = self.settings, self.settings.checkpointing is not None
        mode, execution = self.checkpointing.mode, self.plan.execution
        job, parent = job_of(restored, self.store, settings.make_id)
        return Identity(
            settings.pipeline,
            settings.run_id,
            mode,
            self._guarantee(),
            checkpointed,
            job,
            parent,
            execution,
            self.verification.repeated,
            targets.now,
            targets.earlier,
        )

    def _open_recording(self, identity: Identity) -> None:
        recorder = self.services.recorder
        mode = identity.mode.value if identity.checkpointed else ""
        shape = shape_of(self.plan, self.settings.engine)
        recorded = RecordedJob(identity.pipeline, identity.job, mode, identity.guarantee.value, shape)
        recorder.open(recorded, partial(self.notices.add, RecordingEndedWarning))
        self.held.callback(recorder.close)
        into = Counter(channel.target for channel in shape.channels)
        out_of = Counter(channel.source for channel in shape.channels)
        for task in shape.tasks:
            inputs, outputs = into[task], out_of[task]
            self.writers[task] = recorder.writer(task, Weight(3 * inputs + outputs + 4, inputs + 2, inputs))

    def _completed(self) -> list[int]:
        """Return the checkpoints that count for ``keep``: none that cannot be read, and no savepoint, which can only be
        here if the user moved it into the directory.
        """
        counted = []
        for checkpoint in self.store.checkpoints():
            try:
                if self.store.manifest(checkpoint).kind != BarrierKind.SAVEPOINT.value:
                    counted.append(checkpoint)
            except CheckpointError as error:
                self.notices.add(
                    CheckpointSkippedWarning,
                    f"checkpoint {checkpoint} in {self.store.location} cannot be read, so it is not counted for keep= "
                    f"and is not deleted: {error}",
                )
        return counted

    def _guarantee(self) -> Guarantee:
        if self.settings.checkpointing is None:
            return self.plan.graph.guarantee(Guarantee.AT_MOST_ONCE)
        mode = Guarantee.AT_LEAST_ONCE if self.verification.repeated else self.checkpointing.mode.guarantee
        return self.plan.graph.guarantee(mode)

    def _ready(self, restored: RestoredCheckpoint | None, starts: SinkStarts) -> None:
        """Bring the store and the sinks to the checkpoint that the job starts from.

        Checkpoints newer than the restored one are deleted before a sink takes back the rows committed with them.
        Otherwise a crash in between would restore a checkpoint whose rows no longer exist.
        """
        if restored is None:
            starts.carry_out(self.notices)
            self.store.remove_orphans()
            return
        self.settings.probe(Point.RECOVERY)
        manifest = restored.manifest
        for damaged in restored.damaged:
            self.notices.add(
                CheckpointSkippedWarning,
                f"checkpoint {damaged.checkpoint} in {self.store.location} is damaged, so checkpoint "
                f"{manifest.checkpoint} was restored: {damaged.reason}",
            )
        for newer in restored.abandoned:
            log.info("checkpoint %d is newer than the one restored and is deleted", newer)
            self.store.abandon(newer)
        self.store.remove_orphans()
        starts.carry_out(self.notices, self.settings.probe)
        self.settings.probe(Point.RECOVERY)

    def _setup(self, vertex: Vertex, subtask: int, state: TaskState | None, splits: SourceInput | None) -> SubtaskSetup:
        clock, run_id = self.clock, self.settings.run_id
        red_log = partial(RedLog[str], self._sample) if self.checkpointing.mode is Mode.UNALIGNED else None
        repeated = self.verification.repeated
        setup = SubtaskSetup(
            self.plan, vertex, subtask, clock, run_id, state, splits, red_log, repeated, emitted=self.settings.emitted
        )
        return setup if self.settings.spill is None else replace(setup, spill=self.settings.spill)

    def _task(self, vertex: Vertex, subtask: int, name: str, checkpoint: RestoredCheckpoint | None) -> Task:
        state = checkpoint.states.get(name) if checkpoint else None
        splits, restored = self.verification.inputs.get(name), self.verification.operators.get(name)
        setup = self._setup(vertex, subtask, state, splits)
        nodes = self.chains[name] = wire_chain(
            setup, lambda number, link: self._output(number, link, subtask), restored
        )
        for node in nodes:
            node.delay = self.settings.delays.get(node.name)
            if isinstance(node.operator, RowKeeper):
                node.operator.keep, node.operator.folding = self.settings.keep(), self.settings.folding()
        if self.checkpointing.mode is not Mode.UNALIGNED:  # which reports red rows, operator by operator
            chained = list(zip(vertex.nodes, nodes, strict=True))
            self.settings.library.fuse(self.plan.graph, chained, self.settings.submit)
        return Task(
            name,
            self._channel_input(name, vertex, subtask, state) if splits is None else splits,
            Chain(nodes),
            self.services,
            keep_duplicates=self.checkpointing.duplicates,
            pace=self.settings.pace(),
            ended=state is not None and state.ended,
            moved=state is not None and state.moved is not None,
            logs=(
                LogChain.restored(name, state.operators, checkpoint.manifest)
                if checkpoint and state and state.moved is None
                else None
            ),
            events=self.writers[name],
            put_back=self.put_back.get(name),
        )

    def _output(self, number: int, link: Link, subtask: int) -> Output:
        channels = [self.channels[number, s, t] for s, t in self.plan.channels(link) if s == subtask]
        return output_for(link.partitioning, channels, link.keys, self.plan.max_key_groups)

    def _channel_input(self, name: str, vertex: Vertex, subtask: int, state: TaskState | None) -> ChannelInput:
        channels: list[Channel] = []
        ports: list[int] = []
        empty: list[int] = []
        for i, link in enumerate(self.plan.links):
            if link.target == vertex.name:
                for s, t in self.plan.channels(link):
                    if t == subtask:
                        if self._has_no_rows(link, s):
                            empty.append(len(channels))
                        channels.append(self.channels[i, s, t])
                        ports.append(link.port)
        untimed = self.plan.untimed_ports(vertex.name)
        gate = InputGate(channels, self._handler(channels), self.settings.choose(), ports, untimed, self.writers[name])
        if state is not None and state.moved is None:
            gate.restore(state.inlet)
        else:  # without this, rows that are read before such a task is first stepped would never be late
            gate.leave_out(empty)
        return ChannelInput(gate, self.settings.task_bytes)

    def _has_no_rows(self, link: Link, subtask: int) -> bool:
        """Return whether the sender of ``link`` reads a source without a split, and makes no rows of its own in time.

        An operator that makes time has made none before its first row, whatever operators before it do.
        """
        task = task_id(link.source, subtask)
        source = self.verification.inputs.get(task)
        if source is None or source.splits:
            return False
        makes_time = {node.name for node in self.chains[task] if node.operator.makes_time}
        node, nodes = self.plan.graph.nodes[link.node], self.plan.graph.nodes
        while node.inputs and node.name not in makes_time:
            if node.stateful:
                return False
            node = nodes[node.inputs[0].source]
        return True

    @property
    def _sample(self) -> int | None:
        """The number of duplicated rows to keep per operator and channel; None: all."""
        return SAMPLE_ROWS if self.checkpointing.duplicates == "sample" else None

    @property
    def _overtakes(self) -> bool:
        """Whether barriers may overtake rows, which then become channel state."""
        return self.checkpointing.mode in (Mode.UNALIGNED_PERSISTED, Mode.ALIGNED_TIMEOUT)

    def _handler(self, channels: Sequence[Channel]) -> BarrierHandler:
        match self.checkpointing.mode:
            case Mode.ALIGNED:
                return Aligner(len(channels), end_of_input=EndOfInputPolicy.ALIGN)
            case Mode.UNALIGNED:
                return Tracker(len(channels), sample=self._sample)
            case Mode.UNALIGNED_PERSISTED | Mode.ALIGNED_TIMEOUT:
                aligned_edges = {i for i, channel in enumerate(channels) if not channel.overtakable}
                timeout = self.checkpointing.alignment_timeout
                return Overtaker(len(channels), aligned_edges=aligned_edges, timeout=timeout)
            case _:
                assert_never(self.checkpointing.mode)

    def _connect(self) -> None:
        """Make the channels between the tasks of every link."""
        seen = self.plan.graph.batches_seen()
        into = Counter((link.target, t) for link in self.plan.links for _, t in self.plan.channels(link))
        for i, link in enumerate(self.plan.links):
            overtakable = self._overtakes and link.partitioning in _OVERTAKABLE
            node = self.plan.graph.nodes[link.node]
            apart = None
            if node.id in seen:
                apart = Apart(SEEN)
            elif has_dictionaries(node.output(link.tag)):
                apart = Apart(DICTIONARIES)
            schema, encoded = schema_json(node.declared(link.tag)), node.encoded if link.tag is None else ()
            for (s, t), ends in self.plan.channel_ids(link).items():
                self.channels[i, s, t] = Channel(
                    self.settings.credit,
                    ends.name,
                    overtakable=overtakable,
                    schema=schema,
                    encoded=encoded,
                    join=apart or self.settings.join(1),
                    fixed_width=has_fixed_width(node.output(link.tag)),
                    is_signed=link.tag is None and isinstance(node.meaning, Signed),
                    byte_credit=max(1, self.settings.task_bytes // into[link.target, t]),
                )
