"""Space-time diagrams of runs of processes, as SVG and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dataflow.observe.spacetime.layout import DiagramLayout, lay_out
from dataflow.observe.spacetime.svg import as_svg
from dataflow.observe.spacetime.text import as_text
from dataflow.traces import Trace

__all__ = ["Diagram", "diagram"]

ROWS = 200
"""Number of lines of a run in ``repr``."""


@dataclass(frozen=True, slots=True, repr=False)
class Diagram:
    """A picture of a run: ``print`` it, show it in a notebook, or write ``svg()`` to a file.

    It is a snapshot of the run: later events do not change it. `diagram` has an example.
    """

    layout: DiagramLayout

    def text(self) -> str:
        """Return the whole run as text: time runs down, and each message in flight takes two columns."""
        return as_text(self.layout)

    def svg(self) -> str:
        """Return an SVG document: time runs to the right, and the width grows with the run."""
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
    """Return the space-time diagram of a run up to now, with its snapshots.

    Args:
        trace: the trace of the run, such as ``system.trace``.
        names: names for the events of a process, in order; further events have the name of their action.
        cuts: more cuts to draw, by title: the number of events of each process before the cut, see ``dataflow.cuts``.

    Returns: a diagram that later events do not change.

    Raises:
        GraphError: ``names`` or ``cuts`` have a process or a number of events that the run does not have.
        TypeError: ``trace`` is not a trace.

    >>> from dataflow.processes import Process, ProcessGraph, action
    >>> from dataflow.runners.processes.system import System
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
        raise TypeError(f"expected the trace of a run, got {type(trace).__name__}; call diagram(run.trace)")
    return Diagram(lay_out(trace, names, cuts))
