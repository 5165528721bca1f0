"""What a rule gets: an operator, and the DataFrames of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dataflow.planning.graph import Node
from dataflow.runners.spark.expressions.spark_types import spark_type

__all__ = ["Inputs", "NotLowered", "Rule", "typed"]


class NotLowered(Exception):
    """Spark cannot compute an operator as the local engine does. The message is the reason."""


@dataclass(frozen=True)
class Inputs:
    """An operator and its inputs.

    Attributes:
        node: the operator.
        schemas: the columns of each input.
        frames: the DataFrame of each input.
        session: the session.
    """

    node: Node
    schemas: Sequence[pa.Schema]
    frames: Sequence[Any]
    session: Any

    @property
    def where(self) -> str:
        """The name of the operator, for messages."""
        return self.node.name


Rule = Callable[[Inputs], Any]
"""Returns the DataFrame of an operator. Raises: NotLowered, UnsupportedOnRunner if Spark cannot compute it."""


def typed(value: Any, field: pa.Field) -> Any:
    """Return a column as the column ``field`` of an output."""
    return value.cast(spark_type(field.type, field.name)).alias(field.name)
