"""Verify a checkpoint by restoring from it, and keep the restored inputs and operators for the tasks of the job.

Sources, sinks and the library's operators know best what counts as damage in their state. So their state is restored
while a restore can still fall back to an older checkpoint, and nothing is restored twice.

Guarantees: nothing outside of the job is changed; kernels are loaded before the first operator is restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dataflow.clock import Clock
from dataflow.contracts.emitted_rows import Unwatched
from dataflow.contracts.sink import TwoPhaseSink
from dataflow.contracts.source import Source, SourceContext, Split
from dataflow.planning.graph import has_dictionaries
from dataflow.planning.physical_plan import Plan, Vertex
from dataflow.planning.specs import Read, Write
from dataflow.runtime.restore.listed_splits import listed_splits
from dataflow.runtime.task.chain import ChainNode
from dataflow.runtime.task.contract_checks import check_splits
from dataflow.runtime.task.joined_rows import DICTIONARIES, SEEN, Apart, JoinPolicy
from dataflow.runtime.task.kernel_loading import KernelLoader, kernels_of
from dataflow.runtime.task.notices import Notices
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.poll_times import PollTimes
from dataflow.runtime.task.source_input import SourceInput
from dataflow.runtime.task.source_peers import Peers
from dataflow.runtime.task.task_input import SplitState
from dataflow.runtime.task.wiring import SubtaskSetup, restore_nodes
from dataflow.untrusted import excerpt

if TYPE_CHECKING:
    from dataflow.store.manifest import Manifest

__all__ = ["Verification", "two_phase_sinks"]


def two_phase_sinks(plan: Plan) -> dict[str, TwoPhaseSink]:
    """Return the sinks that commit with the checkpoints, by name."""
    return {
        node.name: node.spec.sink
        for node in plan.graph
        if isinstance(node.spec, Write) and isinstance(node.spec.sink, TwoPhaseSink)
    }


class Verification:
    """The inputs and operators that tasks of ``plan`` start with: new ones or, after ``verify``, restored ones.

    ``setup`` makes the setup of a subtask from its vertex, number, state and source input; ``load`` returns when
    kernels are loaded.
    """

    def __init__(
        self,
        plan: Plan,
        setup: Callable[[Vertex, int, TaskState | None, SourceInput | None], SubtaskSetup],
        clock: Clock,
        notices: Notices,
        load: Callable[[KernelLoader], None],
        join: Callable[[int], JoinPolicy],
        polls: Callable[[], PollTimes],
        emitted: Callable[[str], Unwatched],
    ) -> None:
        self.inputs: dict[str, SourceInput] = {}
        """The inputs of source tasks, by task; their splits were checked."""
        self.operators: dict[str, Mapping[int, ChainNode]] = {}
        """The restored operators of the library, by task: see ``restore_nodes``."""
        self.repeated = False
        """Whether rows may have come twice to the restored operators, or will come twice to them."""
        self._plan = plan
        self._setup = setup
        self._clock = clock
        self._notices = notices
        self._load = load
        self._join = join
        self._polls = polls
        self._emitted = emitted
        self._loaded = False

    def start_fresh(self) -> None:
        """Distribute the splits of a fresh start round-robin. Raises: the errors of ``check_splits``."""
        self.inputs = self._source_inputs(self._splits({}))

    def verify(self, manifest: Manifest, states: Mapping[str, TaskState]) -> None:
        """Restore the inputs and operators, replacing those that an earlier call restored from another checkpoint.

        Raises: CheckpointDamaged; InputChanged; errors of restoring an operator.
        """
        self.operators.clear()
        self.repeated = manifest.repeated or any([d.rows > 0 for state in states.values() for d in state.duplicates])
        for name, sink in two_phase_sinks(self._plan).items():
            sink.check_handles(manifest.transactions.get(name, []))
        splits = self._splits(states)
        self._load_kernels(splits)
        self.inputs = self._source_inputs(splits)
        for task, task_input in self.inputs.items():
            if "quiet" in states[task].inlet:
                task_input.restore_quiet(states[task].inlet)
        for vertex, subtask, task in self._plan.tasks():
            setup = self._setup(vertex, subtask, states[task], self.inputs.get(task))
            self.operators[task] = restore_nodes(setup)

    def _load_kernels(self, splits: Mapping[str, list[SplitState]]) -> None:
        """Load the kernels that restoring calls, once; operators that are built without state name them."""
        if self._loaded:
            return
        inputs = self._source_inputs(
            splits
        )  # separate ones, because these operators report times to the peers of their input
        operators = [
            node.operator
            for vertex in self._plan.vertices.values()
            for node in restore_nodes(self._setup(vertex, 0, None, inputs.get(vertex.tasks[0]))).values()
        ]
        self._load(KernelLoader(kernels_of(self._plan, operators)))
        self._loaded = True

    def _splits(self, states: Mapping[str, TaskState]) -> dict[str, list[SplitState]]:
        """Return the splits of every source subtask: restored and checked, then new ones, by turns.

        The input of a bounded source is fixed when the job starts. An unbounded one may have got new splits since.
        """
        splits: dict[str, list[SplitState]] = {}
        for vertex, source in self._sources():
            name = vertex.head.name
            saved: list[Any] = [states[task].inlet.get("splits") if states else None for task in vertex.tasks]
            for task, entries in zip(vertex.tasks, saved, strict=True):
                splits[task] = [_split_state(entry, source, name) for entry in entries or ()]
            reading = [task for task in vertex.tasks if not states or not states[task].ended]
            if None in saved:
                fresh = check_splits(source, name)
            elif source.bounded or not reading:
                continue
            else:
                known = {state.split.id for task in vertex.tasks for state in splits[task]}
                fresh = [split for split in listed_splits(source, name) if split.id not in known]
            waiting = sum([not state.done for task in vertex.tasks for state in splits[task]])
            for i, split in enumerate(fresh, waiting):
                splits[reading[i % len(reading)]].append(SplitState(split))
        return splits

    def _source_inputs(self, splits: Mapping[str, list[SplitState]]) -> dict[str, SourceInput]:
        """Return a source input for the splits of every source subtask."""
        inputs: dict[str, SourceInput] = {}
        for vertex, source in self._sources():
            peers = Peers(vertex.parallelism)
            for i, task in enumerate(vertex.tasks):
                name = vertex.head.name
                context = SourceContext(
                    name,
                    i,
                    vertex.parallelism,
                    self._clock,
                    notify=self._notices.add,
                    emitted=self._emitted(f"source {name!r} ({type(source).__name__}), subtask {task}"),
                )
                join = self._join_of(vertex, source)
                inputs[task] = SourceInput(source, splits[task], context, peers, join, self._polls())
        return inputs

    def _join_of(self, vertex: Vertex, source: Source) -> JoinPolicy:
        """Return the rule for joining batches of a source: none where an operator sees them, or a poll may wait."""
        if vertex.head.id in self._plan.graph.batches_seen():
            return Apart(SEEN)
        if any([node.spec.assigns_time for node in vertex.nodes]):
            return Apart("event time moves by them")
        if source.blocking:
            return Apart("a poll may wait")
        if has_dictionaries(source.schema):
            return Apart(DICTIONARIES)
        hashed = [link.target for link in self._plan.links if link.source == vertex.name and link.keys]
        return self._join(max([self._plan.vertices[target].parallelism for target in hashed], default=1))

    def _sources(self) -> Iterator[tuple[Vertex, Source]]:
        for vertex in self._plan.vertices.values():
            if isinstance(vertex.head.spec, Read):
                yield vertex, vertex.head.spec.source


def _split_state(entry: Any, source: Source, name: str) -> SplitState:
    split = Split(entry["id"], entry["info"])
    try:
        source.check(split)
    except Exception as error:
        error.add_note(f"raised by check() of source {name!r} ({type(source).__name__}), split {excerpt(split.id)}")
        raise
    return SplitState(split, entry["offset"], entry["done"], entry["rows"])
