"""Folding in passes, and text keys whose codes are slots: random aggregates and keys against plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest

from dataflow.expressions import Aggregation, col, count
from dataflow.state.keyed import KeyIndex
from operators.aggregation.records import Records
from tests.seeds import seeds

Values = Sequence[int | None]
CHOICES: dict[str, tuple[Callable[[str], Aggregation], Callable[[Values], float | None]]] = {
    "count": (lambda c: col(c).count(), len),
    "sum": (lambda c: col(c).sum(), lambda v: sum(x or 0 for x in v) if v else None),
    "min": (lambda c: col(c).min(), lambda v: min((x or 0 for x in v), default=None)),
    "max": (lambda c: col(c).max(), lambda v: max((x or 0 for x in v), default=None)),
    "mean": (lambda c: col(c).mean(), lambda v: sum(x or 0 for x in v) / len(v) if v else None),
}


@pytest.mark.parametrize("seed", seeds(3, 12))
def test_any_aggregates_of_any_columns_agree_with_plain_python(seed: int) -> None:
    chance = np.random.default_rng(seed)
    names = [str(name) for name in chance.choice(list(CHOICES), int(chance.integers(1, 14)))]
    columns = [str(column) for column in chance.choice(["x", "y"], len(names))]
    aggregations = [count().alias("rows")]
    aggregations += [CHOICES[n][0](c).alias(f"a{i}") for i, (n, c) in enumerate(zip(names, columns, strict=True))]
    schema = pa.schema({"x": pa.int64(), "y": pa.int32()})
    records, kept = Records(aggregations, schema, "test"), dict[tuple[int, str], list[int]]()
    rows = np.zeros(40, int)
    for _ in range(3):  # each batch has other columns with nulls
        slots = chance.integers(0, 40, 1_500).astype(np.int32)
        nulls = {c: (chance.random(1_500) < chance.choice([0, 0.3, 0.99])) for c in ("x", "y")}
        values = {c: chance.integers(-1_000, 1_000, 1_500) for c in ("x", "y")}
        arrays = [pa.array(values[f.name], mask=nulls[f.name]).cast(f.type) for f in schema]
        records.fold(pa.RecordBatch.from_arrays(arrays, schema=schema), slots, 40)
        rows += np.bincount(slots, minlength=40)
        for c in ("x", "y"):
            for slot, value, null in zip(slots.tolist(), values[c].tolist(), nulls[c].tolist(), strict=True):
                if not null:
                    kept.setdefault((slot, c), []).append(value)
    counted, *read = [array.to_pylist() for array in records.read(np.arange(40, dtype=np.int32))]
    assert counted == rows.tolist()
    assert read == [
        [CHOICES[n][1](kept.get((slot, c), [])) for slot in range(40)] for n, c in zip(names, columns, strict=True)
    ]
    assert sorted(records.touched.tolist()) == np.flatnonzero(rows).tolist()


@pytest.mark.parametrize("length", [0, 3, 8, 20, 70])
@pytest.mark.parametrize("keys", [50, 20_000])
def test_text_keys_get_slots_in_the_order_of_their_first_rows(length: int, keys: int) -> None:
    chance = np.random.default_rng(length)
    index, slots = KeyIndex(pa.schema({"k": pa.string()})), dict[str | None, int]()
    for _ in range(3):
        numbers = chance.integers(0, keys, 15_000).tolist()
        texts = [None if n == 7 else "" if n == 8 else f"{n}".rjust(length, "-") for n in numbers]
        batch = pa.array(["", *texts]).slice(1)
        assert index.slots([batch]).tolist() == [slots.setdefault(text, len(slots)) for text in texts]
    assert index.keys(range(len(index)))[0].to_pylist() == list(slots)
    restored = KeyIndex(pa.schema({"k": pa.string()}))
    restored.restore(index.snapshot().read_all())
    assert restored.slots([pa.array([*slots])]).tolist() == list(range(len(slots)))
