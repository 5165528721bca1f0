"""The logs of a task: what a delta builds on, when a base is written, and what a restore of the objects checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pyarrow as pa
import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.operator import Snapshot
from dataflow.errors import CheckpointDamaged, ContractViolation, StoreError
from dataflow.runners.binding import LIBRARY
from dataflow.runtime.task import log_chain
from dataflow.runtime.task.log_chain import LogChain
from dataflow.runtime.task.messages import Acknowledged, Declined, Mailbox, TaskStats
from dataflow.runtime.task.part_writer import PartWriter
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.services import Services
from dataflow.state import changes
from dataflow.state.changes import Changes
from dataflow.state.keyed_state import KeyedState
from dataflow.store.files import Content
from dataflow.store.manifest import LOG, STATE, PartHandle
from dataflow.store.memory import MemoryStore
from tests.forcing import Force

X = pa.schema({"x": pa.int64()})


class Rows:
    """Incremental state: numbers. It asserts that the engine keeps the order of calls."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.calls: list[object] = []
        self._frozen: dict[int, int] = {}
        self._durable = 0

    def freeze(self, checkpoint: int, since: int | None) -> dict[str, pa.RecordBatchReader]:
        assert checkpoint > max(self._frozen, default=0)
        assert since is None or since == self._durable
        self.calls.append((checkpoint, since))
        rows = self.rows[self._frozen[since] if since else 0 :]
        self._frozen[checkpoint] = len(self.rows)
        batches = [pa.record_batch({"x": rows})] if rows else []
        return {"rows": pa.RecordBatchReader.from_batches(X, batches)}

    def durable(self, checkpoint: int) -> None:
        assert checkpoint > self._durable
        self._durable = checkpoint
        self.calls.append(checkpoint)


class Store(MemoryStore):
    """A store that refuses some writes."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: Callable[[int], bool] = lambda part: False

    def write(self, checkpoint: int, task: str, data: Content, part: int = STATE) -> PartHandle:
        if self.refuses(part):
            raise StoreError("disk full")
        return super().write(checkpoint, task, data, part)


class Rig:
    """The logs of task ``t[0]`` and its writer, whose background work runs at once."""

    def __init__(self, log: Rows | None = None) -> None:
        self.log, self.chain, self.store = log or Rows(), LogChain(), Store()
        self.log.rows += range(1000)
        self.reports = Mailbox[object]()
        services = Services(self.store, lambda queue, job: job(), ManualClock(), self.reports, LIBRARY)  # type: ignore[arg-type]
        self.writer = PartWriter("t[0]", services, self.chain)

    def take(self, checkpoint: int, since: int = 0, *more: int, **logs: Rows) -> tuple[PartHandle, ...]:
        """Add rows, take a checkpoint, and return its objects."""
        self.log.rows += more
        live = {"op": Snapshot({"v": 1}, logs={"rows": self.log, **logs})}
        states, before = self.chain.freeze(live, checkpoint, since)
        state = TaskState("t[0]", operators=states, log_before=before)
        self.writer.write(checkpoint, state, TaskStats())
        report = self.reports.take()
        if isinstance(report, Declined):
            raise StoreError(report.detail)
        assert isinstance(report, Acknowledged), report
        return report.parts

    def read(self, checkpoint: int, parts: Sequence[PartHandle]) -> list[int]:
        """Return the rows of the log in a checkpoint with these objects."""
        state, *logs = parts
        objects = [(log.checkpoint or checkpoint, self.store.read(checkpoint, log)) for log in logs]
        snapshot = TaskState.decode(self.store.read(checkpoint, state), objects).operators["op"]
        return [x for part in snapshot.logs["rows"] for x in part["rows"]["x"].to_pylist()]  # type: ignore[union-attr]


def places(parts: Sequence[PartHandle]) -> list[tuple[int, int]]:
    return [(part.part, part.checkpoint) for part in parts]


def test_a_delta_builds_on_the_checkpoint_that_the_barrier_names() -> None:
    rig = Rig()
    assert places(rig.take(1)) == [(STATE, 0), (LOG, 0)]
    assert places(rig.take(2, 0, 1)) == [(STATE, 0), (LOG, 0)]
    assert places(rig.take(3, 1, 2)) == [(STATE, 0), (LOG, 1), (LOG, 0)]
    assert places(parts := rig.take(4, 3, 3)) == [(STATE, 0), (LOG, 1), (LOG, 3), (LOG, 0)]
    assert rig.log.calls == [(1, None), (2, None), 1, (3, 1), 3, (4, 3)]
    assert rig.read(4, parts) == rig.log.rows


def test_a_checkpoint_without_new_rows_writes_no_rows() -> None:
    rig = Rig()
    rig.take(1)
    assert places(rig.take(2, 1)) == [(STATE, 0), (LOG, 1)]
    assert places(parts := rig.take(3, 2, 5)) == [(STATE, 0), (LOG, 1), (LOG, 0)]
    assert rig.read(3, parts) == rig.log.rows


def test_a_base_is_written_even_if_it_has_no_rows() -> None:
    rig = Rig()
    rig.log.rows.clear()
    assert places(parts := rig.take(1)) == [(STATE, 0), (LOG, 0)]
    assert rig.read(1, parts) == []


def test_an_aborted_checkpoint_is_never_built_on() -> None:
    rig = Rig()
    rig.take(1)
    rig.take(2, 1, 5)
    rig.chain.drop(2)
    assert places(parts := rig.take(3, 1, 6)) == [(STATE, 0), (LOG, 1), (LOG, 0)]
    assert rig.read(3, parts) == rig.log.rows
    assert places(rig.take(4, 2)) == [(STATE, 0), (LOG, 0)]  # no coordinator would name it


def test_a_checkpoint_that_this_task_does_not_know_is_not_built_on() -> None:
    rig = Rig()
    assert places(rig.take(9, 7)) == [(STATE, 0), (LOG, 0)]
    assert rig.log.calls == [(9, None)]


def test_a_base_replaces_deltas_that_have_passed_half_of_it() -> None:
    rig = Rig()
    base = rig.take(1)[-1].size
    written, n = 0, 1
    while 2 * written <= base:
        delta = rig.take(n + 1, n, *range(100))[-1]
        assert (delta.checkpoint, rig.log.calls[-1]) == (0, (n + 1, n))
        written, n = written + delta.size, n + 1
    assert n > 3
    assert places(rig.take(n + 1, n, 1)) == [(STATE, 0), (LOG, 0)]
    assert rig.log.calls[-2:] == [n, (n + 1, None)]


def test_a_base_that_keyed_state_writes_by_itself_is_not_followed_by_another(force: Force) -> None:
    force(changes, "_FEW", 2, calls=Changes.give_up)
    state, chain = KeyedState(X, pa.schema({})), LogChain()
    live = {"op": Snapshot({}, logs={"state": state})}
    slots, _ = state.insert([pa.array(range(100))])

    def take(checkpoint: int, since: int) -> tuple[int, ...]:
        states, before = chain.freeze(live, checkpoint, since)
        chain.add(checkpoint, states, [*before, PartHandle("t[0]", "log", 1 if before else 1000, "", part=LOG)])
        return tuple(part.checkpoint for part in before)

    assert take(1, 0) == ()
    state.delete(slots[:99])
    assert take(2, 1) == ()
    state.insert([pa.array([1000])])
    assert take(3, 2) == (2,)
    assert take(4, 3) == (2, 3)


def test_a_list_of_deltas_is_bounded(force: Force) -> None:
    force(log_chain, "_MOST_DELTAS", 3, calls=log_chain._Log.needs_base, giving=bool)
    rig = Rig()
    rig.log.rows += range(100_000)
    lengths = [len(rig.take(n, n - 1, n)) for n in range(1, 10)]
    assert lengths == [2, 3, 4, 5, 2, 3, 4, 5, 2]


def test_another_set_of_logs_begins_with_a_base() -> None:
    rig = Rig()
    rig.take(1)
    assert places(rig.take(2, 1, other=Rows())) == [(STATE, 0), (LOG, 0)]


def test_every_log_is_told_what_is_durable_also_if_another_one_could_not_be_frozen() -> None:
    class Refuses(Rows):
        def freeze(self, checkpoint: int, since: int | None) -> dict[str, pa.RecordBatchReader]:
            if checkpoint == 2:
                raise StoreError("no memory")
            return super().freeze(checkpoint, since)

    rig, other = Rig(Refuses()), Rows()
    rig.take(1, other=other)
    with pytest.raises(StoreError, match="no memory"):
        rig.take(2, 1, other=other)
    rig.take(3, 1, other=other)
    assert other.calls == [(1, None), 1, (3, 1)]


def test_only_checkpoints_that_may_be_built_on_are_remembered() -> None:
    rig = Rig()
    for older, newer in pairwise([0, *range(1, 50)]):
        rig.take(newer, older, newer)
        assert len(rig.chain._logs) <= 2


def test_a_state_that_cannot_be_written_leaves_no_rows_behind() -> None:
    rig = Rig()
    rig.take(1)
    rig.store.refuses = lambda part: part == STATE
    with pytest.raises(StoreError, match="disk full"):
        rig.take(2, 1, 5)
    assert list(rig.store._parts) == [1]
    rig.store.refuses = lambda part: False
    assert rig.read(3, rig.take(3, 1)) == rig.log.rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda base, one, two: [base, two],
            "is a delta to the object of checkpoint 2, but the manifest lists that of",
        ),
        (lambda base, one, two: [one, two], "is a delta to the object of checkpoint 1, but the manifest lists nothing"),
        (lambda base, one, two: [base, base, one], "is a base, but the manifest lists that of checkpoint 1"),
        (lambda base, one, two: [], "but its objects hold those of"),
    ],
)
def test_a_list_that_lacks_an_object_is_damage(change: Callable[..., list[PartHandle]], message: str) -> None:
    rig = Rig()
    rig.take(1)
    rig.take(2, 1, 5)
    state, *logs = rig.take(3, 2, 6)
    with pytest.raises(CheckpointDamaged, match=message):
        rig.read(3, [state, *change(*logs)])


def test_an_object_of_another_checkpoint_or_task_is_damage() -> None:
    rig = Rig()
    state, log = rig.take(1)
    data = rig.store.read(1, log)
    with pytest.raises(CheckpointDamaged, match="is that of task 't\\[0\\]' of checkpoint 1: put the right file back"):
        TaskState.decode(rig.store.read(1, state), [(2, data)])


def test_what_freeze_returns_is_checked() -> None:
    class Wrong(Rows):
        def freeze(self, checkpoint: int, since: int | None) -> dict[str, pa.RecordBatchReader]:
            return {"rows": pa.table({"x": [1]})}  # type: ignore[dict-item]

    with pytest.raises(ContractViolation, match="table 'rows' is a Table") as caught:
        Rig(Wrong()).take(1)
    assert caught.value.__notes__ == ["raised while log 'rows' of operator 'op' was frozen"]


def test_the_rows_of_a_large_log_are_streamed() -> None:
    """While a base of 128 MiB is written, little of it is in memory at a time."""
    batch = pa.record_batch({"x": pa.array(range(1 << 17), pa.int64())})
    before, most = pa.total_allocated_bytes(), 0

    class Large(Rows):
        def freeze(self, checkpoint: int, since: int | None) -> dict[str, pa.RecordBatchReader]:
            copies = (pa.record_batch({"x": pa.compute.add(batch["x"], i)}) for i in range(128))
            return {"rows": pa.RecordBatchReader.from_batches(X, copies)}

    class Forgetful(Store):
        def write(self, checkpoint: int, task: str, data: Content, part: int = STATE) -> PartHandle:
            nonlocal most
            size = 0
            for piece in data:
                most = max(most, pa.total_allocated_bytes() - before)
                size += len(memoryview(piece))  # type: ignore[arg-type]
            return PartHandle(task, "file", size, "", part)

    rig = Rig(Large())
    rig.writer._services = Services(Forgetful(), lambda q, job: job(), ManualClock(), rig.reports, LIBRARY)  # type: ignore[arg-type]
    assert rig.take(1)[-1].size > 128 << 20
    assert most < 8 << 20, most
