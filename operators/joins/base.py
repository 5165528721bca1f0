"""The base classes of joins: they take rows, emit pairs and rows alone, and name the state of both sides."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.contracts.declared_state import Log, Passed, Piece, Restorable, Stateful
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.planning.join_specs import ExpiringJoin, Join, TimedJoin
from dataflow.state.arrays import Numbers
from operators.joins.late import SIDES, input_times, units_of
from operators.joins.result import JoinRows, ResultRows
from operators.stateful.chunks import emitted
from operators.stateful.columns import has_null
from operators.stateful.time_units import TimeUnit

__all__ = ["JoinOperator", "TimedJoinOperator"]

_Spec = TypeVar("_Spec", bound=Join)
_Timed = TypeVar("_Timed", bound=TimedJoin | ExpiringJoin)


class JoinOperator(Stateful, Generic[_Spec]):
    """A join of two inputs."""

    def __init__(self, context: OperatorContext, spec: _Spec) -> None:
        self._context = context
        self._spec = spec
        self._result = ResultRows(spec, context.input_schemas, context.output_schema)

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        return self._take(port, batch, out) if batch.num_rows else None

    @abstractmethod
    def _take(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        """Take rows, at least one."""

    def _rows(self, port: int, batch: pa.RecordBatch, numbers: Numbers) -> JoinRows:
        """Return rows, with a number for each, that may come out: not those with a null key of a side that is inner.

        Null equals nothing.
        """
        rows = self._result.of(port, batch, numbers)
        null = None if self._spec.outer[port] else has_null(rows.keys)
        return rows if null is None else rows.where(~null)

    def _without_null(self, port: int, rows: JoinRows, out: Out) -> Generator[None, None, JoinRows]:
        """Emit the rows with a null key, which have no counterpart, and return the others."""
        null = has_null(rows.keys)
        if null is None:
            return rows
        yield from self._emit_alone(port, rows, np.flatnonzero(null), out)
        return rows.where(~null)

    def _emit_pairs(
        self,
        port: int,
        rows: JoinRows,
        pairs: Iterable[tuple[npt.NDArray[Any], Any]],
        read: Callable[[Any], pa.RecordBatch],
        out: Out,
        *,
        edges: Sequence[pa.Array] = (),
        weigh: Callable[[npt.NDArray[Any], Any], Numbers] | None = None,
    ) -> Iterator[None]:
        """Emit pairs of a row of input ``port``, and the number of a row of the other; see ``ResultRows.all_pairs``.

        ``weigh`` returns how often pairs are added; None: once.
        """
        for at, others in pairs:
            weights = None if weigh is None else weigh(at, others)
            yield from emitted(self._result.all_pairs(port, rows, at, others, read, edges=edges, weights=weights), out)

    def _emit_alone(
        self,
        port: int,
        rows: JoinRows,
        at: Numbers,
        out: Out,
        *,
        edges: Sequence[pa.Array] = (),
        weights: Numbers | None = None,
    ) -> Iterator[None]:
        """Emit the rows ``at`` of input ``port`` without a counterpart; see ``ResultRows.all_pairs``."""
        batches = self._result.all_pairs(port, rows, at, None, rows.rows.take, edges=edges, weights=weights)
        return emitted(batches, out)

    def _logs(
        self, sides: Iterable[Restorable], suffix: str = "", lows: Sequence[tuple[str, int] | None] = (None, None)
    ) -> dict[str, Piece]:
        """Return the pieces of state that both sides have, with the bounds ``lows`` (``Log.low``)."""
        keys = len(self._result.keys)
        return {name + suffix: Log(side, keys, low=low) for name, side, low in zip(SIDES, sides, lows, strict=True)}


class TimedJoinOperator(JoinOperator[_Timed]):
    """A join by event time, or by the clock if the spec has no event times.

    Args:
        context: the operator's context.
        spec: the spec of the join.
        lateness: how long rows are taken that come after the watermark, in microseconds.
    """

    def __init__(self, context: OperatorContext, spec: _Timed, lateness: int = 0) -> None:
        super().__init__(context, spec)
        self._time = Passed()
        self._times = input_times(spec, context, self._time, lateness)
        self._units = tuple(times.unit for times in self._times) or (TimeUnit.MICROSECOND, TimeUnit.MICROSECOND)

    def _on_time(self, port: int, batch: pa.RecordBatch, out: Out) -> JoinRows:
        """Return what ``_rows`` does of the rows that are not late, with their event times.

        Raises: ValueError for a null event time; OverflowError for one that is out of range.
        """
        return self._rows(port, *self._times[port].on_time(batch, out))

    def _time_state(self) -> dict[str, Piece]:
        """Return the pieces of state of the event time."""
        return {"time units": units_of(self._times), "time": self._time}
