"""Operators that users' objects make: the factory of ``Stream.apply``, and the sink of ``Stream.sink``."""

from __future__ import annotations

from dataflow.contracts.operator import Operator, OperatorContext, OperatorFactory
from dataflow.contracts.sink import Sink

__all__ = ["applied", "writer"]


def applied(context: OperatorContext, factory: OperatorFactory) -> Operator:
    """Return the operator that a user's factory makes."""
    return factory(context)


def writer(context: OperatorContext, sink: Sink) -> Operator:
    """Return the operator that writes to a sink."""
    return sink.writer(context)
