"""A run of filters and projections on batches: through its loop if that is ready and able, else operator by operator.

``Fused`` replaces the first operator of the run in the chain and keeps it; the chain keeps all the others. A batch that
the loop has processed is emitted after the last of them. Any other batch (the loop is not compiled yet, an operation
would raise, a schema is not the planned one) goes to the first operator as if there were no loop. So errors are the
operators' own, and both ways differ only in time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import storage as memory
from dataflow.arrow_values import to_array
from dataflow.contracts.operator import Operator, Out
from dataflow.contracts.resources import MayHoldResources
from dataflow.contracts.tuning import Choice
from dataflow.planning.specs import Filter
from dataflow.state.arrays import validity
from dataflow.state.partition import owners_of
from operators.fusion import cache
from operators.fusion.kernel import Kernel, kernel_of
from operators.fusion.runs import InputColumn, Run
from operators.fusion.source import Generated, Nulls, source_of, storage

__all__ = ["Beyond", "Fused", "Patience", "Spread"]

Array = npt.NDArray[Any]

QUEUE = "loops"
"""The name of the background queue that compiles loops."""


@dataclass(frozen=True, slots=True)
class Patience:
    """The work that a subtask gives to pyarrow before it asks for a loop, in rows times operations: ``load`` if some
    process has compiled it before, ``compile`` if none has.

    An operation costs pyarrow some 2 ns a row more than a loop. Loading costs 30 ms, and half a second if numba is not
    imported yet; compiling costs one to two seconds of another core. So a loop is requested once the job has worked for
    about as long as the request costs.
    """

    load: int = 1 << 23
    compile: int = 1 << 26


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of rows to ``parallelism`` subtasks, by the key groups of their keys."""

    parallelism: int
    max_key_groups: int


class Beyond(Protocol):
    """The receiver of the output of a run's last operator."""

    def passed(self, rows: Sequence[int]) -> None:
        """Count the rows that each operator of the run would have emitted."""

    def emit(self, batch: pa.RecordBatch) -> None:
        """Emit ``batch``, which is not empty, as the last operator's output."""

    def emit_parts(self, parts: Sequence[pa.RecordBatch | None]) -> None:
        """Emit rows already split by target: a part for each subtask, None if it has no rows."""


class _Loop:
    """One of the two loops of a run, and the work counted before it is requested."""

    def __init__(self, run: Run, nulls: Nulls, patience: Patience) -> None:
        self.generated: Generated = source_of(run, nulls)
        self.kernel: Kernel = kernel_of(self.generated.text)
        self._patience = patience
        self._operations = run.filters + run.operations
        self._work = 0
        self._asked = False
        self._due = patience.load

    def asks(self, rows: int) -> bool:
        """Return whether to load the loop now, before pyarrow gets ``rows`` more: once when it pays, and once more
        when it has been compiled.
        """
        if self._asked:
            return self.kernel.waits
        self._work += rows * self._operations
        if self._work < self._due:
            return False
        if self._due == self._patience.load and not cache.compiled(self.generated.text):
            self._due = max(self._due + 1, self._patience.compile)
            return self._work >= self._due and self.asks(0)
        self._asked = True
        return True


class Fused(Operator):
    """Does the work of a run of operators; ``first`` is the operator of its first step.

    ``submit`` runs a function in the given background queue. ``spread`` is the distribution of rows, required if
    the run has keys. Raises: Unfusable.
    """

    stateless = True

    def __init__(
        self,
        run: Run,
        first: Operator,
        beyond: Beyond,
        submit: Callable[[str, Callable[[], None]], None],
        *,
        output: pa.Schema,
        spread: Spread | None = None,
        patience: Patience | None = None,
    ) -> None:
        assert bool(run.keys) == (spread is not None), f"keys {run.keys}, spread {spread}"
        self.run = run
        self.first = first
        self.loops = {nulls: _Loop(run, nulls, patience or Patience()) for nulls in Nulls}
        self._beyond = beyond
        self._submit = submit
        self._output = output
        self._columns = run.columns
        self._only_filters = run.filters == len(run.steps)
        self._moves = bool(run.filters or run.keys)
        self._spread = spread
        self._owners = owners_of(spread.parallelism, spread.max_key_groups) if spread else None
        self._scratch: dict[str, npt.NDArray[np.int32]] = {}
        self._interpreted = self._compiled = 0  # rows

    @property
    def kernels(self) -> Sequence[str]:
        return self.first.kernels  # loops are compiled in another process

    @property
    def holds_resources(self) -> bool:
        return isinstance(self.first, MayHoldResources) and self.first.holds_resources

    def open(self) -> None:
        self.first.open()

    def close(self) -> None:
        self.first.close()

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if batch.num_rows == 0 or not batch.schema.equals(self.run.schema):
            return self.first.process(port, batch, out)
        if not self._looped(batch):
            self._interpreted += batch.num_rows
            return self.first.process(port, batch, out)
        self._compiled += batch.num_rows
        return None

    @property
    def choice(self) -> Choice | None:
        """Whether a loop does the work now, and after how many rows it was loaded; None: no rows had its schema."""
        if not self._interpreted and not self._compiled:
            return None
        counts = {"interpreted": self._interpreted, "compiled": self._compiled}
        settings = {"operators": len(self.run.steps)}
        if self._compiled:
            reason = "operators: {operators}; rows before the loop was loaded: {interpreted:,}; in it: {compiled:,}"
            return Choice("loop", "compiled", reason, counts, settings)
        reason = "operators: {operators}; rows so far: {interpreted:,}, too few to pay for loading or compiling a loop"
        return Choice("loop", "not used", reason, counts, settings)

    def _looped(self, batch: pa.RecordBatch) -> bool:
        """Process the batch by the loop if possible; return whether it did."""
        reads = self.loops[Nulls.NONE].generated.reads
        nulls = Nulls.ANY if any([batch.column(i).null_count for i in reads]) else Nulls.NONE
        loop = self.loops[nulls]
        module = loop.kernel.module
        if module is None:
            if loop.asks(batch.num_rows):
                self._submit(QUEUE, loop.kernel.load)
            return False
        return self._do(module, loop.generated, batch, nulls)

    def _do(self, module: ModuleType, generated: Generated, batch: pa.RecordBatch, nulls: Nulls) -> bool:
        rows, columns = batch.num_rows, _arguments(batch, generated.reads, nulls)
        chosen, targets, order = (self._room(name, rows + 1) for name in ("chosen", "targets", "order"))
        passed = np.zeros(self.run.filters, np.int64)
        counts = np.zeros(self._spread.parallelism if self._spread else 0, np.int64)
        by_target = (targets, counts, self._owners) if self._spread else ()
        k = module.choose(rows, *columns, chosen, passed, *by_target) if self._moves else rows
        if k < 0:
            return False
        if k == rows and self._only_filters and not self._spread:
            self._beyond.passed([rows] * len(self.run.steps))
            self._beyond.emit(batch)
            return True
        made = _Columns(self._output, generated, k)
        places = np.concatenate(([0], np.cumsum(counts)))
        extra = ((chosen,) if self.run.filters else ()) + ((targets, places[:-1].copy(), order) if self._spread else ())
        if k and module.make(k, *columns, *made.arguments, *extra) < 0:
            return False
        self._beyond.passed(self._tally(rows, passed))
        if k:
            self._leave(self._batch(batch, made, order if self._spread else chosen, k), places)
        return True

    def _leave(self, batch: pa.RecordBatch, places: npt.NDArray[np.int64]) -> None:
        if self._spread is None:
            self._beyond.emit(batch)
            return
        bounds = places.tolist()
        self._beyond.emit_parts(
            [batch.slice(low, high - low) if high > low else None for low, high in itertools.pairwise(bounds)]
        )

    def _batch(self, batch: pa.RecordBatch, made: _Columns, order: npt.NDArray[np.int32], k: int) -> pa.RecordBatch:
        arrays = []
        for place, slot in enumerate(self._columns):
            if place in made.buffers:
                dictionary = batch.column(slot.index).dictionary if _encoded(self._output, place) else None  # type: ignore[union-attr]
                arrays.append(made.array(place, dictionary))
                continue
            assert isinstance(slot, InputColumn), f"column {place} is computed, but no loop writes it"
            column = batch.column(slot.index)
            arrays.append(column.take(to_array(order[:k])) if self._moves else column)
        return pa.RecordBatch.from_arrays(arrays, schema=self._output)

    def _tally(self, rows: int, passed: npt.NDArray[np.int64]) -> list[int]:
        tally, counts = [], iter(passed.tolist())
        for step in self.run.steps:
            rows = next(counts) if isinstance(step, Filter) else rows
            tally.append(rows)
        return tally

    def _room(self, name: str, rows: int) -> npt.NDArray[np.int32]:
        """Return scratch memory, reused from batch to batch, for at least ``rows`` numbers."""
        scratch = self._scratch.get(name)
        if scratch is None or len(scratch) < rows:
            scratch = self._scratch[name] = np.empty(rows, np.int32)
        return scratch


def _encoded(schema: pa.Schema, place: int) -> bool:
    return bool(pa.types.is_dictionary(schema.types[place]))


class _Columns:
    """The memory of the columns that a loop writes, one row for each chosen row."""

    def __init__(self, schema: pa.Schema, generated: Generated, rows: int) -> None:
        self.buffers: dict[int, tuple[Any, Array | None]] = {}
        self.arguments: list[Array] = []
        self._types = schema.types
        self._rows = rows
        for place in generated.writes:
            kind = storage(self._types[place])
            if kind == "bool":
                bits = np.zeros((rows + 7) // 8, np.uint8)
                data: Any = pa.py_buffer(bits)
                self.arguments.append(bits)
            else:
                dtype = np.dtype(kind)
                data = pa.allocate_buffer(rows * dtype.itemsize)
                self.arguments.append(np.frombuffer(data, dtype))
            valid = np.zeros((rows + 7) // 8, np.uint8) if place in generated.nullable else None
            if valid is not None:
                self.arguments.append(valid)
            self.buffers[place] = (data, valid)

    def array(self, place: int, dictionary: pa.Array | None) -> pa.Array:
        """Return the finished column ``place``, with ``dictionary`` if its type is a dictionary."""
        dtype = self._types[place]
        data, valid = self.buffers[place]
        buffers = [None if valid is None else pa.py_buffer(valid), data]
        if dictionary is None:
            return pa.Array.from_buffers(dtype, self._rows, buffers)
        indices = pa.Array.from_buffers(dtype.index_type, self._rows, buffers)
        return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=dtype.ordered, safe=False)


def _arguments(batch: pa.RecordBatch, reads: Sequence[int], nulls: Nulls) -> list[Any]:
    """Return the columns ``reads`` as a loop takes them: values, and if it looks for nulls, validity and first bit."""
    arguments: list[Any] = []
    for i in reads:
        column = batch.column(i)
        column = column.indices if pa.types.is_dictionary(column.type) else column
        if (kind := storage(column.type)) == "bool":
            arguments += [np.frombuffer(column.buffers()[1], np.uint8), column.offset]
        else:
            arguments.append(memory(column).view(kind))
        if nulls is Nulls.ANY:
            arguments += validity(column)
    return arguments
