"""Space-time diagrams: ``diagram(system.trace)``."""

from dataflow.observe.spacetime.diagrams import Diagram, diagram

__all__ = ["Diagram", "diagram"]
