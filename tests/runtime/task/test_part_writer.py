"""The writer of one task's parts: what it reports, and when a part exists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from dataflow.clock import ManualClock
from dataflow.errors import StoreError
from dataflow.protocol.coordinator_actions import FailureReason
from dataflow.protocol.events import Data
from dataflow.runners.binding import LIBRARY
from dataflow.runtime.task.crash_points import Point
from dataflow.runtime.task.log_chain import LogChain
from dataflow.runtime.task.messages import Acknowledged, Crashed, Declined, Mailbox, TaskStats
from dataflow.runtime.task.part_writer import PartWriter
from dataflow.runtime.task.parts import ChannelState, Duplicates, TaskState
from dataflow.runtime.task.services import Services
from dataflow.store.memory import MemoryStore
from tests.runtime.task.test_task import batch


class Rig:
    """A writer whose background runs when it is told to; at each point the clock moves by 5."""

    def __init__(self, keep: Literal["sample", "rows"] = "sample", fault: Exception | None = None) -> None:
        self.store, self.clock, self.reports = MemoryStore(), ManualClock(), Mailbox[Any]()
        self.lanes: list[tuple[str, Callable[[], None]]] = []
        self.points: list[tuple[Point, int]] = []
        self._fault = fault
        self.writer = PartWriter(
            "t[0]",
            Services(
                self.store, lambda lane, job: self.lanes.append((lane, job)), self.clock, self.reports, LIBRARY, self.at
            ),
            LogChain(),
            keep,
        )

    def at(self, point: Point) -> None:
        self.points.append((point, self.store.highest_id()))
        self.clock.advance(5)
        if self._fault is not None:
            raise self._fault

    def write(self, n: int = 1, **fields: Any) -> Rig:
        self.writer.write(n, TaskState("t[0]", **fields), TaskStats(alignment=3, copy_cpu=2))
        return self

    def background(self) -> list[Any]:
        """Run what was submitted; answers the reports."""
        jobs, self.lanes[:] = list(self.lanes), []
        for _, job in jobs:
            job()
        return list(iter(self.reports.take, None))


def test_a_part_is_acknowledged_when_it_is_in_the_store() -> None:
    rig = Rig().write(inlet={"at": 4}, transactions={"out": ({"file": 1},)})
    assert ([lane for lane, _ in rig.lanes], len(rig.reports), rig.store.highest_id()) == (["t[0]"], 0, 0)
    (said,) = rig.background()
    assert (said.task, said.checkpoint, said.transactions) == ("t[0]", 1, {"out": ({"file": 1},)})
    assert TaskState.decode(rig.store.read(1, said.parts[0])).inlet == {"at": 4}
    assert rig.points == [(Point.WRITE, 0), (Point.WRITTEN, 1)]


def test_the_costs_of_a_part_are_how_long_it_waited_how_long_it_took_and_its_size() -> None:
    rig = Rig()
    rig.clock.advance(100)
    rig.write().clock.advance(7)
    (said,) = rig.background()
    stats = said.stats
    assert (stats.alignment, stats.queued, stats.write, stats.size) == (3, 7, 10, said.parts[0].size)
    assert (stats.copy_cpu, stats.write_cpu) == (2, 10)


def test_channel_state_is_counted() -> None:
    states = [ChannelState("op", "t[0]", name, [Data(batch(1, 2))]) for name in "ab"]
    (said,) = Rig().write(in_flight=states).background()
    assert (said.stats.in_flight_rows, said.stats.in_flight_bytes) == (4, 32)


def test_duplicates_are_added_up_for_each_operator() -> None:
    found = [("op", "a", 1), ("op", "b", 2), ("other", "a", 4)]
    duplicates = [Duplicates.of(op, "t[0]", channel, [Data(batch(*range(n)))]) for op, channel, n in found]
    (said,) = Rig().write(duplicates=duplicates).background()
    assert said.stats.duplicated == {"op": 3, "other": 4}


@pytest.mark.parametrize(("keep", "kept"), [("sample", 5), ("rows", 8)])
def test_as_many_duplicates_are_written_as_the_job_wants(keep: Literal["sample", "rows"], kept: int) -> None:
    rig = Rig(keep).write(duplicates=[Duplicates.of("op", "t[0]", "a", [Data(batch(*range(8)))])])
    (said,) = rig.background()
    assert TaskState.decode(rig.store.read(1, said.parts[0])).duplicates[0].table.num_rows == kept


def test_a_part_that_nobody_wants_any_more_is_not_written() -> None:
    rig = Rig().write(1).write(2)
    rig.writer.drop(1)
    rig.writer.drop(7)
    assert [said.checkpoint for said in rig.background()] == [2]
    assert rig.writer._waiting == {}


@pytest.mark.parametrize("error", [StoreError("full"), OSError("full")])
def test_a_store_that_refuses_is_a_part_declined(error: Exception) -> None:
    rig = Rig(fault=error).write()
    assert rig.background() == [Declined("t[0]", 1, FailureReason.IO, "full")]
    assert rig.writer._waiting == {}


def test_any_other_error_is_a_crash_that_says_where() -> None:
    error = ValueError("a defect")
    assert Rig(fault=error).write(3).background() == [Crashed("t[0]", error)]
    assert error.__notes__ == ["raised while the state of t[0] was written for checkpoint 3"]


def test_parts_are_acknowledged_in_order() -> None:
    said = Rig().write(1).write(2).background()
    assert [(type(one), one.checkpoint) for one in said] == [(Acknowledged, 1), (Acknowledged, 2)]
