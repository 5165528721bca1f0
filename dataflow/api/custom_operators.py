"""The methods of a stream that add an operator of the user: apply for a class, then for a kind with settings."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dataflow.api.stream_base import StreamBase
from dataflow.contracts.operator import Operator, OperatorFactory
from dataflow.contracts.spec import Spec
from dataflow.errors import GraphError, SchemaMismatch
from dataflow.planning.checks import check_key_types, schema_or_default, side_schemas
from dataflow.planning.specs import Apply

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.api.streams import Stream

__all__ = ["OperatorMethods"]


class OperatorMethods(StreamBase):
    """The methods of `Stream` that take an operator."""

    def apply(
        self,
        operator: OperatorFactory,
        *others: Stream,
        schema: pa.Schema | None = None,
        sides: Mapping[str, pa.Schema | None] | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Return the main output of an operator of your own; ``operator(context)`` builds one per subtask.

        Args:
            operator: a subclass of `Operator` whose constructor takes an `OperatorContext`, or a function from context
                to operator (``functools.partial`` passes further arguments).
            others: further inputs. This stream is port 0 of ``process``, the others are 1, 2, ... If more than one
                input is keyed, their keys must have the same types in the same order, so that equal keys meet.
            schema: the columns it emits; None: those of its inputs, which must then have equal schemas. A batch with
                these columns in another order is reordered; one with other columns fails the job. The stream keeps its
                event time if it keeps the column's name and type. Then rows are late downstream if they are before a
                watermark that the operator has passed on.
            sides: the schema of each side output by its tag, for `side`; None means the schema of the main output.
                No other side output can be emitted.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Raises:
            GraphError: ``operator`` is neither a class of operators nor a function, a stream belongs to another
                pipeline, or holds updates (see `changes`).
            SchemaMismatch: the keys of the inputs have different types, or the inputs differ and ``schema`` is missing.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Total(flow.Operator):
        ...     total = 0
        ...     def process(self, port, batch, out):
        ...         self.total += sum(batch["x"].to_pylist())
        ...     def finish(self, out):
        ...         out.emit(pa.record_batch({"x": [self.total]}))
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2, 3]})))
        >>> numbers.apply(Total).collect()["x"].to_pylist()
        [6]
        """
        if isinstance(operator, Operator) or not callable(operator):
            raise GraphError(
                f"apply: expected an Operator class or a function from OperatorContext to Operator, got "
                f"{type(operator).__name__}; each subtask needs an operator of its own"
            )
        described: Any = inspect.unwrap(getattr(operator, "func", operator))
        label = getattr(described, "__qualname__", type(described).__name__)
        spec = Apply(
            operator,
            label,
            stateless=getattr(described, "stateless", False),
            blocking=getattr(described, "blocking", False),
        )
        return self._joined("apply", "apply", spec, others, schema, sides, name, parallelism)

    def then(
        self,
        spec: Spec,
        *others: Stream,
        schema: pa.Schema | None = None,
        sides: Mapping[str, pa.Schema | None] | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Return the main output of an operator of another kind: the one registered for the class of ``spec``.

        Unlike `apply`, the spec declares which columns the operator reads, whether it keeps state, and whether it can
        take
        updates: see `Spec`.

        Args:
            spec: the settings of the operator.
            others, schema, sides: as for `apply`.
            name: the operator's name; None: the kind of the spec.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Raises:
            GraphError: ``spec`` is no `Spec`, a stream belongs to another pipeline, or holds updates that the operator
                would count as rows.
            SchemaMismatch: the keys of the inputs have different types, or the inputs differ and ``schema`` is missing.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> from dataflow import col
        >>> from dataflow.planning.specs import Filter
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2, 3]})))
        >>> numbers.then(Filter(col("x") > 1)).collect()["x"].to_pylist()
        [2, 3]
        """
        if not isinstance(spec, Spec):
            raise GraphError(f"then: expected a Spec, got {type(spec).__name__}; pass an Operator class to apply(...)")
        return self._joined("then", spec.kind, spec, others, schema, sides, name, parallelism)

    def _joined(
        self,
        method: str,
        label: str,
        spec: Spec,
        others: Sequence[Stream],
        schema: pa.Schema | None,
        sides: Mapping[str, pa.Schema | None] | None,
        name: str | None,
        parallelism: int | None,
    ) -> Stream:
        """Check the inputs and declared schemas of ``method``, and add its operator."""
        from dataflow.api.keyed_streams import KeyedStream

        inputs = (self, *others)
        self._same_pipeline(others, method)
        check_key_types((s.name, s.schema, s.keys) for s in inputs if isinstance(s, KeyedStream))
        if schema is None and not all(other.schema.equals(self.schema) for other in others):
            raise SchemaMismatch(
                f"{method}: the inputs have different columns, so declare those of the output: "
                f"{method}(..., schema=pa.schema(...))"
            )
        output = schema_or_default(schema, self.schema, method)
        tagged = side_schemas(sides, output)
        edges = tuple(stream._edge for stream in inputs)
        return self._then(
            spec, output, label, name, parallelism, edges, sides=tagged, time=self._time_in(output), method=method
        )
