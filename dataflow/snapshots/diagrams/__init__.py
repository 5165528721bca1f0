"""Space-time diagrams: ``diagram(system.trace)``."""

from dataflow.snapshots.diagrams.diagrams import Diagram, diagram

__all__ = ["Diagram", "diagram"]
