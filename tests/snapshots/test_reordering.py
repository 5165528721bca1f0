"""The proof that a run could have passed through a cut: one that proves nothing is refused, with what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dataflow.errors import GraphError
from dataflow.snapshots.cuts import Reordering, Swap, equivalent
from dataflow.snapshots.processes import Process, ProcessGraph, Sends, action
from dataflow.snapshots.runs.system import System


class Player(Process):
    @action
    def throw(self, to: str) -> Sends:
        return {to: "ball"}

    def receive(self, sender: str, message: str) -> None:
        """Keeps it."""


def system() -> System:
    """Events a.1, b.1, a.2 (takes the ball of b.1), b.2 (takes that of a.1)."""
    made = System(ProcessGraph().add("a", Player()).add("b", Player()).connect("a", "b"))
    made.act("a", "throw", "b")
    made.act("b", "throw", "a")
    made.deliver("b", "a")
    made.deliver("a", "b")
    return made


def proof() -> Reordering:
    made = equivalent(system().trace, {"a": 0, "b": 1})
    made.check()
    return made


def test_a_proof_names_its_cut_and_its_swaps() -> None:
    assert proof().cut == {"a": 0, "b": 1}
    assert proof().whites == 1
    assert [str(swap) for swap in proof().swaps] == ["a.1 throw > b: 'ball' | b.1 throw > a: 'ball'"]


def test_swaps_that_are_left_out_do_not_lead_there() -> None:
    with pytest.raises(GraphError, match=r"the swaps lead to a\.1 .*, not to b\.1 "):
        replace(proof(), swaps=()).check()


def test_a_run_in_which_white_events_come_late_proves_nothing() -> None:
    with pytest.raises(GraphError, match=r"expected the 1 events before the cut first, found b\.1 throw .* after them"):
        replace(proof(), swaps=(), after=proof().before).check()


def test_a_swap_of_events_that_are_not_there_is_refused() -> None:
    (swap,) = proof().swaps
    with pytest.raises(GraphError, match=r"expected a\.1 .* and b\.1 .* at 1, found b\.1 "):
        replace(proof(), swaps=(replace(swap, position=1),)).check()


def test_two_events_of_one_process_keep_their_order() -> None:
    first, _, second, _ = system().trace.events
    with pytest.raises(GraphError, match=r"a\.1 .* and a\.2 .* are events of one process"):
        Swap(0, first, second).check()


def test_a_message_is_never_accepted_before_it_is_sent() -> None:
    _, sent, accepted, _ = system().trace.events
    with pytest.raises(GraphError, match=r"a\.2 .* accepts a message that b\.1 .* sends"):
        Swap(1, sent, accepted).check()
