"""The warnings of operators whose input has no end: of state that only grows, and of results that never come."""

from __future__ import annotations

import warnings

from dataflow.errors import EndlessInputWarning, GrowingStateWarning, user_frame
from dataflow.planning.graph import Graph

__all__ = ["warn_of_endless_input"]


def warn_of_endless_input(pipeline: str, graph: Graph) -> None:
    """Warn, once per run, of operators that keep all their input, or emit at its end, and whose input has no end."""
    for node in graph:
        keeps, waits = node.spec.bounded_by, node.spec.emits_at_end
        if not (keeps or waits) or graph.upstream(node).bounded:
            continue
        if waits:
            warnings.warn(
                f"pipeline {pipeline!r}: the input of {node.name!r} has no end, so {waits} never come; "
                f"{node.spec.emits_sooner}",
                EndlessInputWarning,
                stacklevel=user_frame(),
            )
        if keeps:
            warnings.warn(
                f"pipeline {pipeline!r}: {node.name!r} keeps its rows as long as the job runs, and its input has no "
                f"end, so its state only grows; limit it with {keeps}",
                GrowingStateWarning,
                stacklevel=user_frame(),
            )
