"""Space-time diagrams: ``diagram(system.trace)``."""

from dataflow.snapshots.diagrams.render import Diagram, diagram

__all__ = ["Diagram", "diagram"]
