"""Space-time diagrams of runs of processes, for a page and for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dataflow.snapshots.diagrams.layout import DiagramLayout, lay_out
from dataflow.snapshots.diagrams.svg import as_svg
from dataflow.snapshots.diagrams.text import as_text
from dataflow.snapshots.traces import Trace

__all__ = ["Diagram", "diagram"]

ROWS = 200
"""How many lines of a run ``repr`` shows."""


@dataclass(frozen=True, slots=True, repr=False)
class Diagram:
    """A picture of a run: ``print`` it, show it in a notebook, or write ``svg()`` to a file. It does not change."""

    layout: DiagramLayout

    def text(self) -> str:
        """For the terminal: all of the run, time runs down; messages on their way side by side make it wide."""
        return as_text(self.layout)

    def svg(self) -> str:
        """An SVG document: time runs to the right, and the longer the run the wider it is."""
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
    """The space-time diagram of a run, as far as it has come; snapshots are in it.

    Args:
        names: what the events of a process are called in the picture, first one first; others have the name of their
            action.
        cuts: further cuts to draw, by title: the number of events of each process before the cut, see
            ``dataflow.snapshots.cuts``.

    Raises: GraphError for names of a process that is not there, and for a cut that is none of this run; TypeError for
    what is no trace.

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
        raise TypeError(f"expected the trace of a run, got a {type(trace).__name__}: diagram(run.trace)")
    return Diagram(lay_out(trace, names, cuts))
