"""From a spec to the operator that does its work. Runners call this; nothing below them does."""

from __future__ import annotations

from typing import Any

from dataflow.operator import Operator, OperatorContext, OperatorFactory, Sink
from dataflow.operator_table import operator_class
from dataflow.spec import Spec

__all__ = ["applied", "operator_for", "writer"]


def operator_for(spec: Spec, context: OperatorContext) -> Operator:
    """Return the operator of one subtask, made with ``context``."""
    operator: Any = operator_class(spec)
    return operator(context, *spec.arguments())


def applied(context: OperatorContext, factory: OperatorFactory) -> Operator:
    """Return the operator that a user's factory makes."""
    return factory(context)


def writer(context: OperatorContext, sink: Sink) -> Operator:
    """Return the operator that writes to a sink."""
    return sink.writer(context)
