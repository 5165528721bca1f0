"""Operators fused in one task: what each of them sees, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.kept_rows import RowKeeper
from dataflow.contracts.operator import Operator, Out, Snapshot
from dataflow.contracts.row_errors import ERRORS
from dataflow.errors import ContractViolation
from dataflow.protocol.events import Barrier, Data, EndOfInput, Idle, Watermark
from dataflow.protocol.red_log import RedLog
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.runtime.task.chain import Chain, ChainNode
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.outputs import ForwardOutput
from tests.runtime.task.test_task import batch

ORDER = ["root", "a", "b", "c"]


class Notes(Operator):
    """Writes down what comes, passes rows on under ``tag``, and has a row of its own at the end."""

    def __init__(self, node: ChainNode, log: list[str], tag: str | None = None) -> None:
        self._name, self._log, self._tag = node.name, log, tag

    def _note(self, what: object) -> None:
        self._log.append(f"{self._name}:{what}")

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        self._note(batch["x"].to_pylist())
        out.emit(batch, self._tag)

    def advance(self, watermark: int, out: Out) -> None:
        self._note(f"W{watermark}")

    def finish(self, out: Out) -> None:
        self._note("end")
        out.emit(batch(9), self._tag)

    def timer(self, due: int, out: Out) -> None: ...

    def snapshot(self) -> Snapshot:
        self._note("snapshot")
        return Snapshot({"of": self._name})


def tree(tag: str | None = None) -> tuple[Chain, list[str]]:
    """A root with the children a and b, and c for what it emits under the tag "late"."""
    log: list[str] = []
    clock = ManualClock()
    root, a, b, c = nodes = [
        ChainNode("root", None, clock),
        ChainNode("a", "root", clock, RedLog()),
        ChainNode("b", "root", clock, RedLog()),
        ChainNode("c", "root", clock),
    ]
    root.children = {None: [a, b], "late": [c]}
    for node in nodes:
        node.operator = Notes(node, log, tag if node is root else None)
    return Chain(nodes), log


def carry(chain: Chain, *elements: Data | Watermark | Idle | EndOfInput) -> None:
    for element in elements:
        chain.push(0, element)
        while chain.advance():
            pass


def carried(*elements: Data | Watermark | EndOfInput, tag: str | None = None) -> dict[str, list[str]]:
    """What each operator saw."""
    chain, log = tree(tag)
    carry(chain, *elements)
    assert not chain.busy
    return {name: [entry[2:] for entry in log if entry.startswith(name)] for name in "abc"}


def test_rows_go_to_the_children_of_their_tag() -> None:
    assert carried(Data(batch(1))) == {"a": ["[1]"], "b": ["[1]"], "c": []}
    assert carried(Data(batch(1)), tag="late") == {"a": [], "b": [], "c": ["[1]"]}


def test_a_chain_is_busy_until_every_operator_has_carried_away_what_it_was_given() -> None:
    chain, log = tree()
    chain.push(0, Data(batch(1)))
    seen = [chain.busy]
    while chain.advance():
        seen.append(chain.busy)
    assert (seen, log) == ([True, True, True, False], ["root:[1]", "b:[1]", "a:[1]"])


def test_what_was_taken_gets_through_the_chain_though_there_is_no_room_behind_it() -> None:
    chain, log = tree()
    chain = with_output(chain, full := Channel(1, "full"))
    chain.push(0, Data(batch(1)))
    assert [chain.advance() for _ in range(4)] == [True, True, True, False]
    assert (full.has_credit, chain.busy, log) == (False, False, ["root:[1]", "b:[1]", "a:[1]"])


def test_the_next_part_of_a_long_emission_waits_for_room() -> None:
    chain, log = tree()
    chain = with_output(chain, full := Channel(1, "full"))
    chain.head.pending = iter([None, None])
    full.put(Data(batch(1)))
    assert (chain.advance(), chain.busy, log) == (False, True, [])


class Broken(Notes):
    """Fails whatever it is asked."""

    def _note(self, what: object) -> None:
        raise ValueError(what)

    def timer(self, due: int, out: Out) -> None:
        self._note(due)


FAILURES: list[Callable[[Chain], object]] = [
    lambda chain: carry(chain, Data(batch(1))),
    lambda chain: chain.due(3),
    lambda chain: chain.snapshot(1),
]


@pytest.mark.parametrize("call", FAILURES)
def test_a_chain_knows_which_operator_was_at_work_when_it_failed(call: Callable[[Chain], object]) -> None:
    chain, _ = tree()
    chain.nodes[1].operator = Broken(chain.nodes[1], [])
    chain.nodes[1].schedule(3)
    with pytest.raises(ValueError, match=r"\[1\]|3|snapshot"):
        call(chain)
    assert chain.working is chain.nodes[1]


def test_nobody_is_at_work_between_the_calls_of_a_chain() -> None:
    chain, _ = tree()
    chain.push(0, Data(batch(1)))
    seen = []
    while chain.advance():
        seen.append(chain.working)
    chain.nodes[1].schedule(3)
    assert (chain.due(2), chain.due(3), chain.due(3)) == (False, True, False)
    chain.snapshot(1)
    assert [*seen, chain.working] == [None] * 4


def with_output(chain: Chain, channel: Channel) -> Chain:
    """The same operators, with an output of the root."""
    chain.head.outputs = {None: [ForwardOutput([channel])]}
    return Chain(chain.nodes)


def test_time_goes_to_all_children() -> None:
    assert carried(Watermark(5)) == {"a": ["W5"], "b": ["W5"], "c": ["W5"]}


def test_the_rows_of_an_end_come_before_the_last_watermark_and_the_end() -> None:
    last = [f"W{MAX_WATERMARK}", "end"]
    assert carried(EndOfInput()) == {"a": ["[9]", *last], "b": ["[9]", *last], "c": last}


def test_the_last_watermark_is_passed_on_once_though_it_came_before_the_end() -> None:
    last = f"W{MAX_WATERMARK}"
    seen = carried(Watermark(MAX_WATERMARK), EndOfInput())
    assert seen == {"a": [last, "[9]", "end"], "b": [last, "[9]", "end"], "c": [last, "end"]}


def test_a_snapshot_has_every_operator_parents_first() -> None:
    chain, log = tree()
    states = chain.snapshot(Barrier(1).checkpoint)
    assert {name: state.values for name, state in states.items()} == {name: {"of": name} for name in ORDER}
    assert list(states) == ORDER
    assert log == ["root:snapshot", "a:snapshot", "b:snapshot", "c:snapshot"]


def test_what_could_only_be_red_for_lower_checkpoints_is_forgotten_by_every_operator() -> None:
    chain, _ = tree()
    logs = [node.red for node in chain.nodes if node.red is not None]
    for log in logs:
        log.record("root", Data(batch(1), epoch=1))
    chain.forget_red(2)
    assert [log.floor for log in logs] == [2, 2]
    assert [log.red("root", 1) for log in logs] == [0, 0]


class Behind(Notes):
    """Holds the watermark back by 7."""

    def held(self, watermark: int) -> int:
        self._note(f"held{watermark}")
        return watermark - 7


def test_an_operator_that_holds_the_watermark_gets_it_and_those_downstream_get_less_but_for_the_last() -> None:
    chain, log = tree()
    chain.head.operator = Behind(chain.head, log)
    for flow in (Watermark(10), Idle(), Watermark(MAX_WATERMARK)):
        chain.push(0, flow)
    downstream = Channel(10, "out")
    chain.nodes[1].outputs = {None: [ForwardOutput([downstream])]}
    while chain.advance():
        pass
    assert [entry for entry in log if entry.startswith("root:")] == [
        "root:W10",
        "root:held10",
        f"root:W{MAX_WATERMARK}",
    ]
    assert [downstream.take() for _ in range(3)] == [Watermark(3), Idle(), Watermark(MAX_WATERMARK)]


def test_the_next_timer_is_the_earliest_of_all_operators() -> None:
    chain, _ = tree()
    assert chain.next_timer(0) is None
    for node, due in zip(chain.nodes, (30, 10, 20, 40), strict=True):
        node.schedule(due)
        node.schedule(due + 100)
    assert chain.next_timer(0) == 10


def test_rows_that_a_source_sets_aside_have_the_epoch_of_their_batch() -> None:
    chain, _ = tree()
    channel = Channel(2, "errors")
    chain.head.outputs = {ERRORS: [ForwardOutput([channel])]}
    chain.set_aside(pa.record_batch({"x": [1]}), epoch=3)
    assert isinstance(element := channel.take(), Data)
    assert element.epoch == 3


class Keeps(RowKeeper):
    """Keeps all rows back."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        self.rows += batch["x"].to_pylist()

    def emit_kept(self, out: Out) -> None:
        if self.rows:
            out.emit(batch(*self.rows))
            self.rows = []


def keeper() -> tuple[Chain, Channel]:
    node, channel = ChainNode("keeps", None, ManualClock()), Channel(1, "out")
    node.operator, node.outputs = Keeps(), {None: [ForwardOutput([channel])]}
    return Chain([node]), channel


@pytest.mark.parametrize("control", [Watermark(5), Idle(), EndOfInput()])
def test_rows_that_are_kept_leave_before_a_control_element(control: Watermark | Idle | EndOfInput) -> None:
    chain, channel = keeper()
    carry(chain, Data(batch(1), 0), Data(batch(2), 0))
    assert not len(channel)
    carry(chain, control)
    rows, after = channel.take(), channel.take()
    assert isinstance(rows, Data)
    assert rows.rows["x"].to_pylist() == [1, 2]
    assert after == control


def test_rows_that_are_kept_leave_before_a_barrier_without_credit() -> None:
    chain, channel = keeper()
    channel.put(Data(batch(0), 0))
    assert not channel.has_credit
    carry(chain, Data(batch(1), 0))
    chain.emit_kept()
    chain.send(Barrier(1))
    elements = [channel.take() for _ in range(len(channel))]
    assert [e.rows["x"].to_pylist() if isinstance(e, Data) else e for e in elements] == [[0], [1], Barrier(1)]


def test_rows_of_two_colours_are_not_kept_together() -> None:
    chain, channel = keeper()
    carry(chain, Data(batch(1), 0), Data(batch(2), 1), Data(batch(3), 1), EndOfInput())
    found = [channel.take() for _ in range(len(channel))]
    assert [(e.rows["x"].to_pylist(), e.epoch) for e in found if isinstance(e, Data)] == [([1], 0), ([2, 3], 1)]


def run(chain: Chain) -> None:
    while chain.advance():
        pass


@pytest.mark.parametrize(("returned", "message"), [(True, "as an int, got True"), (11, "11, which is beyond")])
def test_a_wrong_watermark_that_an_operator_holds_is_an_error(returned: Any, message: str) -> None:
    chain, _ = tree()
    chain.head.operator.held = lambda watermark: returned  # type: ignore[method-assign]
    chain.push(0, Watermark(10))
    with pytest.raises(ContractViolation, match=rf"held\(10\) return.*{message}"):
        run(chain)


def test_a_watermark_that_is_held_below_64_bits_is_the_lowest() -> None:
    chain, _ = tree()
    chain.head.operator.held = lambda watermark: watermark - 2**70  # type: ignore[method-assign]
    chain.push(0, Watermark(10))
    run(chain)
    assert chain.head.passed == -MAX_WATERMARK


class OwnTime(Operator):
    """Takes 7 as the time of each batch."""

    makes_time = True

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        out.watermark(7)


def own_time(*, timed: bool) -> tuple[Chain, Channel]:
    """Return a chain that makes time, restored after it had made some or not, and its output."""
    node, channel = ChainNode("own", None, ManualClock()), Channel(9, "out")
    node.operator, node.outputs = OwnTime(), {None: [ForwardOutput([channel])]}
    node.restore_time(None, timed=timed)
    return Chain([node]), channel


def test_idleness_passes_an_operator_that_makes_time_only_before_its_first_row() -> None:
    chain, channel = own_time(timed=False)
    carry(chain, Idle(), Data(batch(1)), Idle())
    assert [channel.take() for _ in range(len(channel))] == [Idle(), Watermark(7)]
    again, channel = own_time(timed="own" in chain.timed)
    carry(again, Idle())
    assert not len(channel)
