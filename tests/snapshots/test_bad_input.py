"""What goes wrong in a run by hand: nothing half done, and an error that says what to do."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dataflow.errors import ConfigurationError, GraphError, InconsistentSnapshot, ProcessFailed
from dataflow.snapshots.cuts import is_consistent
from dataflow.snapshots.predicates import terminated
from dataflow.snapshots.processes import Channel, GlobalState, Process, ProcessGraph, Sends, action, actions_of
from dataflow.snapshots.runs import ObservedSystem, ObservedThreads, System, Threads, check, detect
from dataflow.snapshots.runs.host import Host
from dataflow.snapshots.traces import Event, MessageId
from tests.snapshots.test_simulation import Silent, to


class Clerk(Process):
    """Does what it is told."""

    def __init__(self) -> None:
        self.papers: list[str] = []

    def receive(self, sender: str, message: str) -> Sends:
        self.papers.append(message)
        if message == "burn":
            raise OSError("no fire")
        return None

    @action
    def send(self, to: str, paper: str) -> Sends:
        return {to: paper}

    @action
    def answer(self) -> Any:
        return "a word"

    def snapshot(self) -> list[str]:
        if "secret" in self.papers:
            raise PermissionError("secret")
        return list(self.papers)


class Signer(Clerk):
    @action(accepts="b")
    def sign(self, paper: str) -> None:
        self.papers.append(f"signed {paper}")


def office() -> System:
    graph = ProcessGraph().add("a", Signer()).add("b", Clerk()).add("c", Clerk())
    return System(graph.connect("a", "b", "c"))


CALLS: list[tuple[Callable[[System], Any], str]] = [
    (lambda s: s.act("d", "send", "a", "x"), "there is no process 'd'"),
    (lambda s: s.deliver("a", "d"), "there is no process 'd'"),
    (lambda s: s.snapshot("d"), "there is no process 'd'"),
    (lambda s: s.snapshot(["a"]), r"there is no process \['a'\]"),  # type: ignore[arg-type]
    (lambda s: s.snapshot(3), "there is no process 3; there are"),  # type: ignore[arg-type]
    (lambda s: s.act("a", 3), "process 'a' has no action 3; it has"),  # type: ignore[arg-type]
    (lambda s: s.join(0, "a"), "there is no snapshot 0 to join"),
    (lambda s: s.join([0], "a"), r"there is no snapshot \[0\] to join"),  # type: ignore[arg-type]
    (lambda s: s.snapshot(), "begun by no process never reaches a, b, c"),
    (lambda s: s.deliver("a", "a"), "there is no channel a -> a; there are a -> b"),
    (lambda s: s.deliver("a", "b"), "channel a -> b is empty; channels with something in them: none"),
    (lambda s: s.act("a", "sand", "b", "x"), r"process 'a' has no action 'sand' \(did you mean 'send'\?\)"),
    (lambda s: s.act("a", "sign"), "'sign' of 'a' accepts a message of b -> a, but the channel is empty"),
]


@pytest.mark.parametrize(("call", "said"), CALLS)
def test_what_cannot_happen_is_refused_and_nothing_has_happened(call: Callable[[System], Any], said: str) -> None:
    system = office()
    before = system.content
    with pytest.raises(GraphError, match=said):
        call(system)
    assert system.content == before
    assert not system.trace.happenings
    assert system.snapshot("a") == 0


def test_a_snapshot_that_is_not_there_says_why() -> None:
    system = office()
    system.snapshot("a")
    system.deliver("a", "b")
    system.deliver("b", "a")
    for asked in (system, system.copy()):
        with pytest.raises(KeyError, match="snapshot 0 is under way: the parts of a, b, c are missing"):
            asked.snapshots[0]
        with pytest.raises(KeyError, match=r"there is no snapshot 4; snapshots begun: \[0\]"):
            asked.snapshots[4]
    assert system.snapshots.get(0) is None


def test_wrong_arguments_are_refused_before_anything_is_called() -> None:
    system = office()
    with pytest.raises(TypeError, match="missing a required argument: 'paper'") as caught:
        system.act("a", "send", "b")
    (note,) = caught.value.__notes__
    assert note.startswith("action 'send' of process 'a' is send(to: 'str', paper: 'str')")
    assert note.endswith("got ['b']")
    system.act("a", "send", "b", "x")
    assert system.deliver("a", "b") == "x"


@pytest.mark.parametrize(
    ("act", "error", "said"),
    [
        (("send", "d", "x"), GraphError, "process 'a' sent a message to 'd', and there is no channel a -> d"),
        (("answer",), TypeError, "a mapping from the receiver's name to a message, or None; got a str"),
    ],
)
def test_a_process_that_sends_nowhere_or_nonsense_has_failed(
    act: tuple[str, ...], error: type[Exception], said: str
) -> None:
    system = office()
    with pytest.raises(error, match=said) as caught:
        system.act("a", *act)
    assert caught.value.__notes__ == [f"in {act[0]!r} of process 'a', its event 1"]
    assert not any(system.channels.values())
    with pytest.raises(ProcessFailed, match=f"'a' takes no more part in this run: {act[0]!r} raised"):
        system.act("a", "send", "b", "x")


def test_a_message_whose_receiver_raises_stays_where_it_is_and_the_others_go_on() -> None:
    system = office()
    for paper in "burn", "second":
        system.act("a", "send", "b", paper)
    with pytest.raises(OSError, match="no fire"):
        system.deliver("a", "b")
    assert system.channels[Channel("a", "b")] == ["burn", "second"]
    assert [event.process for event in system.trace.events] == ["a", "a"]
    for again in (lambda: system.deliver("a", "b"), lambda: system.snapshot("b")):
        with pytest.raises(ProcessFailed, match="'b' takes no more part in this run: 'receive' raised OSError"):
            again()
    system.act("c", "send", "a", "x")
    assert system.deliver("c", "a") == "x"


def test_a_process_whose_state_cannot_be_recorded_has_failed() -> None:
    system = office()
    system.act("a", "send", "b", "secret")
    system.deliver("a", "b")
    with pytest.raises(PermissionError, match="secret") as caught:
        system.snapshot("b")
    assert caught.value.__notes__ == ["in snapshot() of process 'b'", "in 'snapshot' of process 'b', its event 2"]
    with pytest.raises(ProcessFailed, match="'snapshot' raised PermissionError"):
        system.act("b", "send", "a", "x")


class Moody(Clerk):
    @action(when=lambda self: self.papers[-1] != "go")
    def wait(self) -> None: ...


@pytest.mark.parametrize("rule", [System, ObservedSystem])
def test_a_process_whose_condition_cannot_be_asked_when_a_marker_comes_has_failed(
    rule: Callable[[ProcessGraph], System],
) -> None:
    system = rule(ProcessGraph().add("a", Clerk()).add("b", Moody()).connect("a", "b"))
    number = system.snapshot("a")
    with pytest.raises(IndexError) as caught:
        system.deliver("a", "b") if rule is System else system.join(number, "b")
    assert caught.value.__notes__ == [
        "in the condition of 'wait' of process 'b'",
        "in 'snapshot' of process 'b', its event 1",
    ]
    with pytest.raises(ProcessFailed, match="'b' takes no more part in this run: 'snapshot' raised IndexError"):
        system.act("b", "send", "a", "x")
    assert system.under_way[number] == (["a", "b"] if rule is System else ["b"])


class Locked(Process):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class Opened(Process):
    def __deepcopy__(self, memo: Any) -> Opened:
        made = Opened()
        made.lock = threading.Lock()  # type: ignore[attr-defined]
        return made


@pytest.mark.parametrize("run", [System, Threads])
@pytest.mark.parametrize(
    ("process", "said"),
    [(Locked(), "process 'a' could not be copied"), (Opened(), r"in snapshot\(\) of process 'a'")],
)
def test_a_process_or_a_state_that_cannot_be_copied_is_named(
    run: Callable[[ProcessGraph], Any], process: Process, said: str
) -> None:
    with pytest.raises(TypeError, match="cannot pickle") as caught:
        run(ProcessGraph().add("a", process))
    assert re.search(said, caught.value.__notes__[0])


@pytest.mark.parametrize("cut", [{"a": 0.5, "b": 0, "c": 0}, {"a": 1, "b": 0, "c": 0}, {"a": 0}, [0, 0, 0], None])
def test_what_is_no_cut_of_the_run_is_refused(cut: Any) -> None:
    with pytest.raises(GraphError, match="expected a cut that gives for each process the number of its events"):
        is_consistent(office().trace, cut)


def test_messages_that_are_out_of_order_make_no_trace() -> None:
    trace, channel = office().trace, Channel("a", "b")
    trace.happenings += [Event("a", 1, "send", sent=((MessageId(channel, 2), "x"),))]
    with pytest.raises(GraphError, match="expected message 1 of a -> b next, found message 2 of a -> b"):
        is_consistent(trace, {"a": 0, "b": 0, "c": 0})


def test_detection_needs_a_run_that_goes_on_by_itself() -> None:
    with pytest.raises(ConfigurationError, match=r"expected a Simulation or Threads, .* got a System"):
        detect(terminated, office())  # type: ignore[arg-type]


def test_a_condition_that_raises_says_whose_it_is() -> None:
    class Doubtful(Process):
        @action(when=lambda self: self.nothing)
        def go(self) -> None: ...

    with pytest.raises(AttributeError) as caught:
        System(ProcessGraph().add("a", Doubtful())).enabled()
    assert caught.value.__notes__ == ["in the condition of 'go' of process 'a'"]


@pytest.mark.parametrize(
    ("order", "expected", "got"),
    [([1], 1, 2), ([0, 0], 2, 1), ([0, 2], 2, 3), ([3], 1, 4)],
    ids=["swapped", "repeated", "lost", "marker first"],
)
def test_a_channel_that_swaps_repeats_or_loses_is_found_out(order: list[int], expected: int, got: int) -> None:
    graph = ProcessGraph().add("a", Clerk()).add("b", Clerk()).connect("a", "b")
    sender, receiver = Host(graph, "a"), Host(graph, "b")
    items = [sender.act("send", arguments=["b", str(i)]).items[0] for i in range(3)] + [*sender.begin(0).items]
    *before, last = [items[i] for i in order]
    for item in before:
        receiver.deliver(item)
    with pytest.raises(
        ConfigurationError, match=f"channel a -> b is not FIFO: expected its item {expected}, got {got}"
    ):
        receiver.deliver(last)
    assert not receiver.knows(0)


def test_a_process_that_has_recorded_begins_the_same_snapshot_no_more() -> None:
    graph = ProcessGraph().add("a", Clerk()).add("b", Clerk()).add("c", Clerk()).connect("a", "b", "c")
    a, b = Host(graph, "a"), Host(graph, "b")
    to_b = next(item for item in a.begin(0).items if item.channel.target == "b")
    assert len(b.deliver(to_b).items) == 2
    for outcome in (a.begin(0), b.begin(0)):
        assert [*outcome.items, *outcome.happenings, *outcome.parts] == []


def test_a_process_named_twice_begins_a_snapshot_once() -> None:
    graph = ProcessGraph().add("a", Clerk())
    for system in (System(graph), ObservedSystem(graph)):
        assert system.snapshots[system.snapshot("a", "a")].initiators == ("a",)
        assert len(system.trace.happenings) == 1


class Reader(Process):
    @action(accepts="a")
    def read(self, message: int) -> None:
        """Takes it, and forgets it."""


@pytest.mark.parametrize(
    ("receiver", "said"),
    [
        (Silent(), r"accepted by no action, and stays in the channel: define receive, or @action\(accepts='a'\)"),
        (Reader(), r"accepted by one of its actions: act\('b', 'read'\); there are \['read'\]"),
    ],
)
def test_a_message_that_receive_does_not_accept_cannot_be_delivered(receiver: Process, said: str) -> None:
    system = System(to(receiver))
    system.act("a", "send")
    with pytest.raises(GraphError, match=rf"process 'b' has no receive\(sender, message\), so .* {said}"):
        system.deliver("a", "b")
    assert system.channels[Channel("a", "b")] == [1]


def test_a_marker_is_received_before_what_stands_behind_it_is_accepted() -> None:
    system = office()
    system.snapshot("b")
    system.act("b", "send", "a", "x")
    with pytest.raises(GraphError, match="but a marker of snapshot 0 is before it: deliver the marker first"):
        system.act("a", "sign")
    system.deliver("b", "a")
    system.act("a", "sign")
    assert system.state.processes["a"] == ["signed x"]


def test_a_process_takes_over_the_actions_of_its_class_but_for_those_that_it_takes_away() -> None:
    class Mute(Signer):
        send = None  # type: ignore[assignment]

    assert list(actions_of(Signer())) == ["send", "answer", "sign"]
    assert list(actions_of(Mute())) == ["answer", "sign"]


def test_an_action_that_accepts_from_where_no_channel_comes_is_refused_with_the_graph() -> None:
    said = "accepts messages from 'b', and there is no channel b -> a; the incoming channels are none"
    with pytest.raises(GraphError, match=said):
        System(ProcessGraph().add("a", Signer()))


@pytest.mark.parametrize(
    "lay",
    [lambda g: g.connect("a", "b", "d"), lambda g: g.ring("b", "a", "d"), lambda g: g.ring("b", "c", "a")],
    ids=["connect", "ring", "ring of a channel that is there"],
)
def test_channels_that_cannot_all_be_laid_are_not_laid_at_all(lay: Callable[[ProcessGraph], Any]) -> None:
    graph = ProcessGraph().add("a", Clerk()).add("b", Clerk()).add("c", Clerk()).channel("a", "b").channel("c", "a")
    with pytest.raises(GraphError, match=r"there is no process 'd'|there is a channel c -> a already"):
        lay(graph)
    assert graph.channels == [Channel("a", "b"), Channel("c", "a")]


@pytest.mark.parametrize("run", [System, ObservedSystem, Threads, ObservedThreads])
def test_a_graph_that_is_built_on_leaves_its_runs_alone(run: Callable[[ProcessGraph], Any]) -> None:
    graph = ProcessGraph().add("a", Clerk()).add("b", Clerk()).connect("a", "b")
    begun = run(graph)
    graph.add("c", Clerk()).connect("a", "c")
    assert list(begun.graph.processes) == ["a", "b"]
    assert begun.graph.channels == [Channel("a", "b"), Channel("b", "a")]


def test_an_action_accepts_at_most_one_message_of_each_channel() -> None:
    with pytest.raises(GraphError, match=r"action 'both': accepts=\('a', 'a'\) has a name twice"):

        @action(accepts=("a", "a"))
        def both(self: Process, one: str, other: str) -> None: ...


def test_an_action_without_a_place_for_what_it_accepts_is_refused() -> None:
    said = r"action 'nods' accepts a message from each of \['a'\]: expected a method of self and 1 more, got nods\(self"
    with pytest.raises(GraphError, match=said):

        @action(accepts="a")
        def nods(self: Process) -> None: ...


def test_a_graph_with_nothing_in_it_or_with_a_name_twice_is_refused() -> None:
    with pytest.raises(GraphError, match="expected a graph with a process, found none"):
        System(ProcessGraph())
    with pytest.raises(GraphError, match="expected a new name for a process, got 'a'"):
        ProcessGraph().add("a", Silent()).add("a", Silent())
    with pytest.raises(GraphError, match="there is a channel a -> b already"):
        to(Silent()).channel("a", "b")


def altered(state: GlobalState, **changes: Any) -> GlobalState:
    return GlobalState(
        **{"processes": state.processes, "channels": state.channels, "cut": state.cut, "snapshot": 0} | changes
    )


def test_a_snapshot_that_does_not_fit_its_run_is_found_out() -> None:
    system = office()
    system.act("a", "send", "b", "x")
    system.snapshot("a", "b", "c")
    for channel in list(system.channels):
        while system.channels[channel]:
            system.deliver(channel.source, channel.target)
    state = system.snapshots[0]
    check(system.trace, state)
    for wrong, said in [
        (altered(state, cut={"a": 0, "b": 1, "c": 0}), "is inconsistent"),
        (altered(state, processes={**state.processes, "a": ["y"]}), "'a' recorded"),
        (altered(state, channels={**state.channels, Channel("a", "b"): ()}), "channel a -> b holds"),
    ]:
        with pytest.raises(InconsistentSnapshot, match=said):
            check(system.trace, wrong)


def test_the_ways_to_run_are_found_by_name_and_loaded_when_they_are_asked_for() -> None:
    code = (
        "import sys, dataflow, dataflow.snapshots.runs as runs\n"
        "assert not [m for m in sys.modules if m.startswith('dataflow.snapshots.runs.')]\n"
        "print(all([getattr(runs, name) for name in runs.__all__]))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"
    with pytest.raises(ImportError, match="Simulaton"):
        from dataflow.snapshots.runs import Simulaton  # type: ignore[attr-defined]  # noqa: F401
