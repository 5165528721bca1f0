"""``diagram``, which renders the trace of a run as a space-time diagram, for a page and for the terminal.

Source: the space-time diagram of Lamport, *Time, Clocks, and the Ordering of Events in a Distributed System* (1978).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dataflow.snapshots.diagrams.layout import DiagramLayout, lay_out
from dataflow.snapshots.diagrams.svg import as_svg
from dataflow.snapshots.diagrams.text import as_text
from dataflow.snapshots.traces import Trace

__all__ = ["Diagram", "diagram"]

ROWS = 200
"""The maximum number of lines of a run that ``repr`` shows."""


@dataclass(frozen=True, slots=True, repr=False)
class Diagram:
    """An immutable picture of a run: ``print`` it, show it in a notebook, or write ``svg()`` to a file.

    Attributes:
        layout: the positions of everything drawn.

    >>> from dataflow.snapshots.traces import Event
    >>> print(diagram(Trace(["p", "q"], [], {}, [Event("p", 1, "work"), Event("q", 1, "rest")])))
    p   q
    ●   ┃  work
    ┃   ●  rest
    """

    layout: DiagramLayout

    def text(self) -> str:
        """Return the picture of the whole run for the terminal, where time runs down.

        It is wider the more messages are in transit at the same time.
        """
        return as_text(self.layout)

    def svg(self) -> str:
        """Return the picture as an SVG document, where time runs to the right. It is wider the longer the run is."""
        return as_svg(self.layout)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return as_text(self.layout, ROWS)

    def _repr_svg_(self) -> str:
        return self.svg()


def diagram(
    trace: Trace,
    *,
    names: Mapping[str, Sequence[str]] | None = None,
    cuts: Mapping[str, Mapping[str, int]] | None = None,
) -> Diagram:
    """Return the space-time diagram of a run so far, with its snapshots.

    Args:
        trace: the trace of the run.
        names: for each process, names of its events in the picture, first event first. Events without one have the name
            of their action.
        cuts: further cuts to draw, by title: the number of events of each process before the cut, see
            ``dataflow.snapshots.cuts``.

    Returns: a ``Diagram``.

    Raises: GraphError for names of a process that does not exist, and for a cut that is not one of this run; TypeError
        if ``trace`` is not a ``Trace``.

    >>> from dataflow.snapshots.processes import Process, ProcessGraph, action
    >>> from dataflow.snapshots.runs.system import System
    >>> class Player(Process):
    ...     @action
    ...     def throw(self):
    ...         return {"b": "ball"}
    ...     def receive(self, sender, message):
    ...         return {sender: "thanks"}
    >>> system = System(ProcessGraph().add("a", Player()).add("b", Player()).connect("a", "b"))
    >>> system.act("a", "throw")
    >>> ball = system.deliver("a", "b")
    >>> print(diagram(system.trace, names={"b": ["catch"]}))
    a     b
    ●─╮   ┃  throw sends ball to b
    ┃ ╰──▶●  catch takes ball of a, sends thanks to a
    ┃ ╭───┨
      ▽      still in the channel
    """
    if not isinstance(trace, Trace):
        raise TypeError(f"expected the trace of a run, got a {type(trace).__name__}: call diagram(run.trace)")
    return Diagram(lay_out(trace, names, cuts))
