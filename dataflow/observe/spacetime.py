"""Old path of ``dataflow.snapshots.diagrams``."""

from dataflow.snapshots.diagrams import Diagram, diagram

__all__ = ["Diagram", "diagram"]
