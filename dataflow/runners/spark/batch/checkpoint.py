"""The one checkpoint of a batch on Spark: the transactions of its sinks, and what its other sinks have collected.

It has the format of every checkpoint, so all stores can hold it, and the same commands show it. It holds a task for
each source, with all its splits, and for each sink of the driver. It has no task of an operator, because nothing is
computed after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dataflow.clock import Clock
from dataflow.contracts.checkpointing import Checkpointing, Mode
from dataflow.contracts.execution import Execution
from dataflow.contracts.sink import Handle
from dataflow.contracts.source import InputIdentity, Source, Split
from dataflow.events.plan_shape import task_id
from dataflow.planning.graph import Graph
from dataflow.planning.physical_plan import Plan, Vertex, make_plan
from dataflow.planning.specs import Read, Write
from dataflow.protocol.events import BarrierKind
from dataflow.runners.spark.driver_events import Recording
from dataflow.runners.spark.placement import Placement, SparkPlan
from dataflow.runtime.restore.find_checkpoint import RestoredCheckpoint, find
from dataflow.runtime.restore.job_ids import job_of
from dataflow.runtime.restore.sink_starts import SinkTargets
from dataflow.runtime.restore.verification import two_phase_sinks
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.task_input import SplitState
from dataflow.store.base import CheckpointStore
from dataflow.store.manifest import FORMAT, JobId, Manifest, Parent

__all__ = ["BatchCheckpoint"]


@dataclass(frozen=True)
class BatchCheckpoint:
    """The checkpoint of one batch.

    Attributes:
        store: where it is, or will be.
        stored: the plan of the tasks that it holds.
        run_id: the run that writes it.
        recording: the name of the pipeline, and its guarantee from end to end.
        new_job: the id of the job, if the store has none.
    """

    store: CheckpointStore
    stored: Plan
    run_id: str
    recording: Recording
    new_job: JobId

    def job(self, restored: RestoredCheckpoint | None) -> tuple[JobId, Parent | None]:
        """Return the id of the job that restores this, or takes the checkpoint, and its parent."""
        return job_of(restored, self.store, lambda _: self.new_job)

    def find(self, restore: object, checkpoint: Checkpointing | None) -> RestoredCheckpoint | None:
        """Return the checkpoint of an earlier run, which ``restore`` selects; None: the batch starts from nothing.

        Raises: the errors of ``find_checkpoint.find``; InputChanged.
        """
        limit = None if checkpoint is None else checkpoint.max_restore_bytes
        return find(restore, self.store, self.stored, limit, self._verify)

    def _verify(self, manifest: Manifest, states: Mapping[str, TaskState]) -> None:
        for name, sink in two_phase_sinks(self.stored).items():
            sink.check_handles(manifest.transactions.get(name, []))
        for vertex in self.stored.vertices.values():
            if isinstance(vertex.head.spec, Read):
                _check(vertex.head.spec.source, states[task_id(vertex.name, 0)])

    def write(
        self,
        number: int,
        splits: Mapping[str, Sequence[Split]],
        sinks: Sequence[TaskState],
        transactions: Mapping[str, Sequence[Handle]],
        clock: Clock,
    ) -> int:
        """Make checkpoint ``number`` durable; return its size in bytes.

        Args:
            number: its number.
            splits: the splits of each source.
            sinks: the states of the sinks of the driver.
            transactions: what each sink has to commit.
            clock: the clock of the job.

        Raises: StoreError.
        """
        job, parent = self.job(None)
        states = [
            TaskState(task_id(name, 0), ended=True, inlet={"splits": [SplitState(s, done=True).to_json() for s in own]})
            for name, own in splits.items()
        ]
        states += [replace(state, inlet={**state.inlet, "splits": []}) for state in sinks]
        parts = [self.store.write(number, state.task, state.encode("sample")) for state in states]
        manifest = Manifest(
            format=FORMAT,
            checkpoint=number,
            kind=BarrierKind.FINAL.value,
            pipeline=self.recording.pipeline,
            nodes=tuple(dict(node) for node in self.stored.describe()),
            mode=Mode.ALIGNED.value,
            guarantee=self.recording.guarantee.value,
            finished=True,
            created=clock.wall(),
            run_id=self.run_id,
            job=job,
            parent=parent,
            parts=tuple(parts),
            transactions={sink: [dict(handle) for handle in handles] for sink, handles in transactions.items()},
            execution=Execution.BATCH.value,
            targets=dict(SinkTargets.of(two_phase_sinks(self.stored), None).now),
        )
        self.store.commit(manifest)
        return sum(part.size for part in parts)


def stored_plan(graph: Graph, spark_plan: SparkPlan, input_identity: InputIdentity) -> Plan:
    """Return the plan of the tasks that a checkpoint of ``graph`` holds. It does not depend on the parallelism."""
    plan = make_plan(graph, input_identity=input_identity, execution=Execution.BATCH)
    kept = [
        node
        for node in plan.graph
        if isinstance(node.spec, Read)
        or (isinstance(node.spec, Write) and spark_plan.placements.get(node.name) is Placement.DRIVER)
    ]
    return replace(plan, vertices={node.name: Vertex(node.name, 1, [node]) for node in kept}, links=[])


def _check(source: Source, state: TaskState) -> None:
    entries: list[dict[str, object]] = state.inlet["splits"]  # type: ignore[assignment]
    for entry in entries:
        source.check(Split(entry["id"], entry["info"]))  # type: ignore[arg-type]
