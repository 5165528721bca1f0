"""Space-time diagrams of runs of processes, as text and as SVG.

``diagram(run.trace)`` returns a ``Diagram``, see ``render``. ``layout`` computes the positions of all elements,
``text`` and ``svg`` draw them, and ``legend`` has the lines below the picture.
"""

from dataflow.snapshots.diagrams.render import Diagram, diagram

__all__ = ["Diagram", "diagram"]
