"""Space-time diagrams of runs of processes: ``diagram(system.trace)``."""

from dataflow.observe.spacetime.diagrams import Diagram, diagram

__all__ = ["Diagram", "diagram"]
