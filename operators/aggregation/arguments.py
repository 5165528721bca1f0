"""The arguments of aggregates: expressions over rows, each evaluated once for all aggregates that have it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.expressions import Expr, compile_expression
from dataflow.state.arrays import Numbers, is_word, plain, words

__all__ = ["NO_WORDS", "Arguments", "argument_words", "widest"]

NO_WORDS: Final = np.empty(0, np.int64)

_Argument = Callable[[pa.RecordBatch], pa.Array]


@dataclass(frozen=True, slots=True)
class _Input:
    """An argument of aggregates. With ``predicate``, the number of one, it is null where that is not true."""

    evaluate: _Argument
    predicate: int | None

    def values(self, batch: pa.RecordBatch, predicates: Sequence[pa.Array]) -> pa.Array:
        array = self.evaluate(batch)
        return array if self.predicate is None else _where(predicates[self.predicate], array)


class Arguments:
    """The arguments of the aggregates over rows of ``schema``, by number, from 1 on; 0 is no argument."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._inputs: list[_Input] = []
        self._known: dict[str, int] = {}
        self._predicates: dict[str, _Argument] = {}

    def number(self, expression: Expr, target: pa.DataType | None = None, where: Expr | None = None) -> int:
        """Return the number of an argument, cast to ``target`` unless that is None; equal ones have one number.

        It is null in the rows for which ``where`` is not true.
        """
        only = "" if where is None else f" where {where.fingerprint()}"
        identity = f"{target} {expression.fingerprint()}{only}"
        if identity not in self._known:
            evaluate = compile_expression(expression, self._schema)
            evaluate = _decoded(evaluate) if target is None else _cast(evaluate, target)
            self._inputs.append(_Input(evaluate, None if where is None else self._predicate(where)))
            self._known[identity] = len(self._inputs)
        return self._known[identity]

    def counted(self, where: Expr | None) -> list[int]:
        """Return the number of an argument that is null in the rows that ``where`` leaves out; none: all rows count."""
        return [] if where is None else [self.number(where, where=where)]

    def evaluated(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return all arguments for ``batch``, each once."""
        predicates = [predicate(batch) for predicate in self._predicates.values()]
        return [own.values(batch, predicates) for own in self._inputs]

    def _predicate(self, where: Expr) -> int:
        """Return the number of a predicate; equal ones are evaluated once."""
        identity = where.fingerprint()
        if identity not in self._predicates:
            self._predicates[identity] = _decoded(compile_expression(where, self._schema))
        return list(self._predicates).index(identity)


def widest(array: pa.Array) -> int:
    """Return a bound on the absolute values of signed integers or durations; narrow types have one by their type."""
    if pa.types.is_null(array.type):
        return 0
    if array.type.bit_width < 64:
        return 1 << (array.type.bit_width - 1)
    found = pc.min_max(array.view(pa.int64()))
    return max(abs(found["min"].as_py() or 0), abs(found["max"].as_py() or 0))


def argument_words(array: pa.Array) -> Numbers:
    """Return one word a row; types without words are only counted, so only their validity is read."""
    return words(array) if is_word(array.type) else NO_WORDS


def _where(predicate: pa.Array, array: pa.Array) -> pa.Array:
    """Return ``array``, with null where ``predicate`` is not true."""
    return pc.if_else(predicate, array, pa.scalar(None, array.type))


def _cast(evaluate: _Argument, target: pa.DataType) -> _Argument:
    decoded = _decoded(evaluate)

    def cast(batch: pa.RecordBatch) -> pa.Array:
        array = decoded(batch)
        return array if array.type == target else array.cast(target, safe=False)

    return cast


def _decoded(evaluate: _Argument) -> _Argument:
    def decoded(batch: pa.RecordBatch) -> pa.Array:
        array = plain(evaluate(batch))
        return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array

    return decoded
