"""The warning of operators whose state grows as long as a job runs."""

from __future__ import annotations

import warnings

from dataflow.errors import GrowingStateWarning, user_frame
from dataflow.planning.graph import Graph

__all__ = ["warn_of_growing_state"]


def warn_of_growing_state(pipeline: str, graph: Graph) -> None:
    """Warn, once per run, of operators that keep all their input, which has no end."""
    for node in graph:
        bound = node.spec.bounded_by
        if bound and not graph.upstream(node).bounded:
            warnings.warn(
                f"pipeline {pipeline!r}: {node.name!r} keeps its rows as long as the job runs, and its input has no "
                f"end, so its state only grows; limit it with {bound}",
                GrowingStateWarning,
                stacklevel=user_frame(),
            )
