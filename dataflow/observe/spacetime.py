"""Old import path of ``dataflow.snapshots.diagrams``, kept because the guides named it; it only re-exports."""

from dataflow.snapshots.diagrams import Diagram, diagram

__all__ = ["Diagram", "diagram"]
