"""Pictures of a graph that is being built: how ``draw`` of pipelines and of streams makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataflow.errors import check_count
from dataflow.planning.graph import Edge, Graph

if TYPE_CHECKING:
    from dataflow.views.picture import Picture

__all__ = ["Drawn"]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A graph with the name of its pipeline, and the stream that ends there, if a stream is drawn.

    The graph may be unfinished: it is not validated.
    """

    name: str
    graph: Graph
    end: Edge | None = None

    def logical(self, parallelism: int) -> Picture:
        """Return the picture of its operators."""
        from dataflow.planning.plan_shape import input_shape, shape_of_graph
        from dataflow.views.picture import Picture
        from dataflow.views.pipeline.sketch import logical_sketch

        check_count("draw(parallelism=)", parallelism)
        end = None if self.end is None else input_shape(self.graph, self.end)
        return Picture(logical_sketch(self.name, shape_of_graph(self.graph), parallelism=parallelism, end=end))

    def physical(self, parallelism: int) -> Picture:
        """Return the picture of its plan on threads. Nothing is read or started."""
        from dataflow.runners.local import LocalRunner
        from dataflow.views.picture import Picture
        from dataflow.views.pipeline.sketch import physical_sketch

        check_count("draw(parallelism=)", parallelism)
        return Picture(physical_sketch(self.name, LocalRunner().shape(self, parallelism=parallelism)))
