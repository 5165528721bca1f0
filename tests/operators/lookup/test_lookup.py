"""Rows beside a table: the operator by itself against a loop in Python, and the table that its subtasks share."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import InputChanged, SourceError
from dataflow.planning.lookup_specs import Lookup, LookupHow
from dataflow.planning.lookup_tables import LoadedTable, LookupTable
from operators.lookup.lookup import LookupOperator
from operators.stateful.chunks import CHUNK
from tests.operators.operating import Emitted, context_of, drained
from tests.seeds import seeds

KEYS: dict[str, list[Any]] = {
    "int64": [None, 0, 1, -5, 2**62, 7],
    "float64": [None, 0.0, -0.0, math.nan, 1.5, math.inf],
    "string": [None, "", "a", "aa", "é" * 20, "b"],
    "bool": [None, True, False],
    "decimal": [None, Decimal("0.10"), Decimal("-3.20"), Decimal("9.99")],
}
TYPES: dict[str, pa.DataType] = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "decimal": pa.decimal128(5, 2),
}


def opened(left: pa.Table, table: pa.Table, how: LookupHow = "inner", **on: Any) -> LookupOperator:
    """The operator of ``lookup(...)``, with its table."""
    stream = flow.Pipeline().source(op.from_arrow(left)).lookup(table, how=how, **(on or {"on": "k"}))
    operator = LookupOperator(context_of(left.schema, stream.schema), stream._node.spec.loaded("op", print))
    operator.open()
    return operator


def looked_up(operator: LookupOperator, left: pa.Table, rows: int = 1 << 20) -> list[tuple[object, ...]]:
    """The result of batches of so many ``rows``."""
    out = Emitted()
    for batch in left.to_batches(rows):
        drained(operator.process(0, batch, out))
    return out.take()


def expected(left: pa.Table, table: pa.Table, keys: list[str], how: str) -> list[tuple[object, ...]]:
    """The same by two loops."""
    result = []
    right = [row for row in table.to_pylist() if None not in [row[key] for key in keys]]
    others = [name for name in table.schema.names if name not in keys]
    for row in left.to_pylist():
        own = tuple(row[name] for name in [*keys, *[name for name in left.schema.names if name not in keys]])
        counterparts = [other for other in right if all(_same(row[key], other[key]) for key in keys)]
        result += [(*own, *[other[name] for name in others]) for other in counterparts]
        if how == "left" and not counterparts:
            result.append((*own, *[None for _ in others]))
    return result


def _same(one: Any, other: Any) -> bool:
    return one is not None and (one == other or (one != one and other != other))


def drawn(rng: np.random.Generator, rows: int, kinds: list[str], value: str) -> pa.Table:
    columns = {f"k{n}": _values(rng, rows, kind) for n, kind in enumerate(kinds)}
    return pa.table({**columns, value: pa.array(range(rows)), f"{value}s": [f"{value}{n % 7}" for n in range(rows)]})


def _values(rng: np.random.Generator, rows: int, kind: str) -> pa.Array:
    return pa.array([KEYS[kind][n] for n in rng.integers(0, len(KEYS[kind]), rows)], TYPES[kind])


@pytest.mark.parametrize("seed", seeds(8, 400))
def test_rows_are_those_of_two_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = list(rng.choice(list(KEYS), 1 + seed % 2, replace=False))
    left, table = drawn(rng, int(rng.integers(0, 40)), kinds, "x"), drawn(rng, int(rng.integers(0, 12)), kinds, "y")
    keys = [f"k{n}" for n in range(len(kinds))]
    how: LookupHow = "left" if rng.random() < 0.5 else "inner"
    found = looked_up(opened(left, table, how, on=keys), left, rows=int(rng.integers(1, 50)))
    assert repr(found) == repr(expected(left, table, keys, how))


@pytest.mark.parametrize("how", ["inner", "left"])
def test_keys_of_a_table_without_repeats_give_a_row_each(how: LookupHow) -> None:
    left = pa.table({"k": [3, 1, None, 2, 9], "x": range(5)})
    table = pa.table({"k": [None, 2, 3, 1], "v": ["n", "two", "three", "one"]})
    operator = opened(left, table, how)
    assert operator._index.unique
    assert looked_up(operator, left) == expected(left, table, ["k"], how)


def test_dictionaries_and_nested_columns_are_looked_up() -> None:
    left = pa.table({"k": pa.array(["a", "b", "a"]).dictionary_encode()})
    table = pa.table({"k": pa.array(["a", "b"]).dictionary_encode(), "n": [[{"z": 1}], None]})
    assert looked_up(opened(left, table), left) == [("a", [{"z": 1}]), ("b", None), ("a", [{"z": 1}])]


def test_a_table_may_have_no_other_columns_than_keys() -> None:
    left, table = pa.table({"k": [1, 2], "x": [5, 6]}), pa.table({"k": [2, 2]})
    assert looked_up(opened(left, table), left) == [(2, 6), (2, 6)]


def test_many_counterparts_of_one_row_come_in_several_batches() -> None:
    left, table = pa.table({"k": [1, 2, 1]}), pa.table({"k": [1] * 100_000, "v": range(100_000)})
    operator, out = opened(left, table, "left"), Emitted()
    drained(operator.process(0, left.to_batches()[0], out))
    sizes = [batch.num_rows for batch in out.batches[None]]
    assert (sum(sizes), max(sizes)) == (200_001, CHUNK)
    assert out.batches[None][0].column("v").to_pylist()[:3] == [0, 1, 2]


# --- the table


def loaded(table: Any, *columns: str) -> LoadedTable:
    source = op.from_arrow(table) if isinstance(table, pa.Table) else table
    whole = LookupTable.whole(source, table)
    return (whole.select(columns) if columns else whole).loaded("prices", print)


ROWS = pa.table({"k": [1, 2, 3], "v": ["a", None, "c"]})


def test_a_hash_depends_on_the_values_of_a_column_and_on_nothing_else(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet", row_group_size=1)
    sliced = pa.concat_tables([ROWS.slice(0, 1), pa.table({"k": [9, 2, 3], "v": ["x", None, "c"]}).slice(1)])
    encoded = ROWS.set_column(1, "v", ROWS["v"].dictionary_encode())
    for same in (sliced, encoded, op.read_parquet(tmp_path), op.from_arrow(ROWS, batch_rows=2, splits=2)):
        assert loaded(same).hashes == loaded(ROWS).hashes
    other = loaded(ROWS.set_column(0, "k", pa.array([1, 3, 2]))).hashes
    assert other["k"] != loaded(ROWS).hashes["k"]
    assert other["v"] == loaded(ROWS).hashes["v"] == loaded(ROWS, "v").hashes["v"]


def test_subtasks_share_one_index() -> None:
    left = pa.table({"k": [1]})
    stream = flow.Pipeline().source(op.from_arrow(left)).lookup(ROWS, on="k")
    spec: Any = stream._node.spec.loaded("op", print)
    operators = [LookupOperator(context_of(left.schema, stream.schema), spec) for _ in range(2)]
    for operator in operators:
        operator.open()
    assert operators[0]._index is operators[1]._index


def test_each_start_reads_the_table_again() -> None:
    spec: Any = flow.Pipeline().source(op.from_arrow(ROWS)).lookup(ROWS, on="k")._node.spec
    first = spec.loaded("op", print)
    assert first.loaded("op", print).table is not first.table


def test_a_worker_reads_the_table_once_for_each_start(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    packed = pickle.dumps(loaded(op.read_parquet(tmp_path)))
    assert pickle.loads(packed) is pickle.loads(packed)
    assert pickle.loads(packed).made(lambda rows: rows).equals(ROWS)
    assert pickle.loads(pickle.dumps(loaded(op.read_parquet(tmp_path)))) is not pickle.loads(packed)


def test_a_worker_refuses_other_rows_than_those_of_the_driver() -> None:
    table = loaded(ROWS)
    hashes = {**table.hashes, "v": "another"}
    in_worker = pickle.loads(pickle.dumps(LoadedTable(table.table, "prices", 3, hashes, "token")))
    with pytest.raises(InputChanged, match=r"operator 'prices'.* has changed while the job ran"):
        in_worker.made(lambda rows: rows)


def test_a_file_that_changed_since_the_source_was_made_is_refused(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    source = op.read_parquet(tmp_path)
    pq.write_table(ROWS.slice(1), tmp_path / "rows.parquet")
    with pytest.raises(InputChanged, match=r"operator 'prices'.*rows\.parquet.*has changed"):
        loaded(source)


def test_a_table_that_cannot_be_read_names_operator_and_path(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    source = op.read_parquet(tmp_path)
    (tmp_path / "rows.parquet").unlink()
    with pytest.raises(SourceError, match=r"operator 'prices': lookup cannot read its table.*rows\.parquet"):
        loaded(source)


def test_rejected_rows_of_a_table_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("k\n1\nnone\n")
    source = op.read_csv(tmp_path, schema={"k": "int64"}, on_error="skip")
    with pytest.raises(SourceError, match=r"operator 'prices'.*1 of its rows were rejected"):
        loaded(source)


def test_only_columns_that_are_used_are_read() -> None:
    table = ROWS.append_column("unused", pa.array([1.5] * 3))
    left = flow.Pipeline().source(op.from_arrow(ROWS.rename_columns(["k", "mine"])))
    from dataflow.planning.physical_plan import make_plan

    stream = left.lookup(table, on="k", name="prices").select("mine", "v")
    stream.sink(op.collect(), name="out")
    (spec,) = [node.spec for node in make_plan(stream._pipeline.graph).graph if isinstance(node.spec, Lookup)]
    assert spec.table.columns == ("k", "v")
