"""Random expressions over random rows: Spark's answers are the local engine's, and so are its errors."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from dataflow.expressions import Expr
from tests.runners.spark.engine import failure, on_spark, plain
from tests.runners.spark.trees import Trees, rows
from tests.seeds import some_by_default

ROWS = 100


def outcome(expr: Expr, batch: pa.RecordBatch) -> list[str] | type[Exception]:
    try:
        return plain(expr.evaluate(batch))
    except (OverflowError, ValueError) as error:
        return type(error)


@pytest.mark.parametrize(("seed", "size"), some_by_default([(1, 40)], [1, 2], [40, 75]))
def test_spark_computes_what_the_local_engine_does(spark: Any, seed: int, size: int) -> None:
    random = Random(seed)
    table, trees = rows(random, ROWS), Trees(random)
    exprs = [trees.any(depth=3) for _ in range(size)]
    (batch,) = table.to_batches()
    expected = [outcome(expr, batch) for expr in exprs]
    computed = [(expr, answer) for expr, answer in zip(exprs, expected, strict=True) if isinstance(answer, list)]
    raised = [(expr, answer) for expr, answer in zip(exprs, expected, strict=True) if not isinstance(answer, list)]
    made = on_spark(spark, table, [expr for expr, _ in computed])
    for (expr, answer), array in zip(computed, made, strict=True):
        assert plain(array) == answer, f"seed {seed}: {expr}"
    for expr, kind in raised[: size // 15]:
        assert type(failure(spark, table, expr)) is kind, f"seed {seed}: {expr}"
    assert len(computed) > size / 2, Counter(map(str, expected))
