"""Ordered multisets against a model: a dict of counts for each record, with random changes, freezes and restores."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataflow.errors import CheckpointDamaged, SchemaMismatch
from dataflow.state.ordered_values import OrderedValues, OrderedView

NAN = float("nan")
WORD, RECORDS = 1, 6
NUMBER = pa.int64()
VALUES: dict[str, list[tuple[pa.DataType, list[Any]]]] = {
    "int": [(pa.int64(), [None, -(2**63), 2**63 - 1, *range(-9, 9)])],
    "unsigned": [(pa.uint64(), [None, 0, 1, 2**63, 2**64 - 1])],
    "float": [(pa.float64(), [None, NAN, 0.0, -0.0, 1.5, -2.5, float("inf"), -float("inf"), 5e-324])],
    "small": [(pa.float32(), [None, NAN, 0.5, -0.5]), (pa.bool_(), [None, True, False])],
    "decimal": [(pa.decimal128(38, 2), [None, *[Decimal(f"{s}{n}.25") for s in ("", "-") for n in (0, 7, 10**30)]])],
    "wide decimal": [(pa.decimal256(60, 0), [None, *[Decimal(n) for n in (-(10**50), -1, 0, 3, 10**50)]])],
    "text": [(pa.string(), [None, "", "a", "aa", "b", "é", "z" * 300, *[f"some long text {i}" for i in range(8)]])],
    "binary": [(pa.binary(3), [None, b"\0\0\0", b"abc", b"abd", b"\xff\0\0"])],
    "three": [
        (pa.timestamp("us"), [None, 0, 10, -10]),
        (pa.string(), [None, "p", "q", ""]),
        (pa.large_string(), [None, "p", "x", "y"]),
    ],
}


def canonical(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("nan" if value != value else value + 0.0 if isinstance(value, float) else value for value in row)


def rank(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (2,)
    if value == "nan":
        return (1,)
    return (0, value.encode() if isinstance(value, str) else value)


def in_order(counts: Counter[tuple[Any, ...]]) -> list[tuple[tuple[Any, ...], int]]:
    return sorted(counts.items(), key=lambda row: [rank(value) for value in row[0]])


def plain(type_: pa.DataType) -> pa.DataType:
    """Times are compared as their numbers."""
    return pa.int64() if pa.types.is_timestamp(type_) else type_


class Pair:
    """Multisets and their model, which change alike."""

    def __init__(self, kind: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.types = [type_ for type_, _ in VALUES[kind]]
        self.choices = [values for _, values in VALUES[kind]]
        self.values = OrderedValues(self.types, WORD)
        self.records = np.zeros((RECORDS, WORD + 1), np.int64)
        self.model: list[Counter[tuple[Any, ...]]] = [Counter() for _ in range(RECORDS)]

    def add(self, count: int) -> None:
        rows = [tuple(self.random.choice(choices) for choices in self.choices) for _ in range(count)]
        places = [self.random.randrange(RECORDS - 1) for _ in rows]  # the last record stays empty
        weights = [self.random.choice([-3, -1, -1, 0, 1, 1, 2]) for _ in rows]
        for place, row, weight in zip(places, rows, weights, strict=True):
            counts = self.model[place]
            counts[canonical(row)] += weight
            if not counts[canonical(row)]:
                del counts[canonical(row)]
        columns = [pa.array([row[i] for row in rows], type_) for i, type_ in enumerate(self.types)]
        self.values.add(self.records, np.array(places, np.int32), columns, np.array(weights))

    def forget(self) -> None:
        slots = np.array(self.random.sample(range(RECORDS), 3))
        self.values.forget(self.records[slots])
        self.records[slots, WORD] = 0
        for slot in slots.tolist():
            self.model[slot].clear()

    def restore(self) -> None:
        """Continue with what a checkpoint of this moment holds."""
        columns = self.values.store().columns(self.records)
        stored = [field.type for field in self.values.stored([*map(str, range(len(self.types))), "multiplicities"])]
        assert [column.type for column in columns] == stored
        self.values, self.records = OrderedValues(self.types, WORD), np.zeros_like(self.records)
        self.values.restore(self.records, columns, "v")

    def frozen(self) -> tuple[OrderedView, np.ndarray, list[Counter[tuple[Any, ...]]]]:
        return self.values.freeze(), self.records.copy(), [Counter(counts) for counts in self.model]

    def check(self) -> None:
        check(self.values.view(), self.records, self.model, self.types)
        self.values.add(self.records, np.empty(0, np.int32), [pa.array([], t) for t in self.types], np.empty(0))
        if not self.values._readers.has_any:
            assert len(self.values) == sum(map(len, self.model))


def rows_of(view: OrderedView, nodes: np.ndarray, types: list[pa.DataType]) -> list[tuple[Any, ...]]:
    columns = [view.column(i, nodes) for i in range(len(types))]
    for column, type_ in zip(columns, types, strict=True):
        column.validate(full=True)
        assert column.type == type_
    lists = [column.cast(plain(column.type)).to_pylist() for column in columns]
    return [canonical(row) for row in zip(*lists, strict=True)]


def check(view: OrderedView, records: np.ndarray, model: list[Counter[tuple[Any, ...]]], types: list[Any]) -> None:
    offsets, nodes = view.listed(records)
    listed = list(zip(rows_of(view, nodes, types), view.multiplicities(nodes).tolist(), strict=True))
    for place, counts in enumerate(model):
        assert listed[offsets[place] : offsets[place + 1]] == in_order(counts)
    shown = [[row for row, count in in_order(counts) for _ in range(count)] for counts in model]
    assert view.totals(records).tolist() == [len(rows) for rows in shown]
    assert view.distinct(records).tolist() == [len(set(rows)) for rows in shown]
    none = (None,) * len(types)
    for ranks in (0, 1, 5):
        found = rows_of(view, view.ranked(records, np.full(RECORDS, ranks)), types)
        assert found == [rows[ranks] if ranks < len(rows) else none for rows in shown]
    assert rows_of(view, view.least(records), types) == [rows[0] if rows else none for rows in shown]
    assert rows_of(view, view.greatest(records), types) == [rows[-1] if rows else none for rows in shown]


def run(kind: str, seed: int, steps: int) -> None:
    pair, frozen = Pair(kind, seed), []
    for _ in range(steps):
        step = pair.random.random()
        if step < 0.5:
            pair.add(pair.random.choice([1, 3, 20, 80]))
        elif step < 0.6:
            pair.forget()
        elif step < 0.65:
            pair.restore()
        elif step < 0.8:
            frozen.append(pair.frozen())
        elif frozen:
            check(*frozen.pop(pair.random.randrange(len(frozen))), pair.types)
        if pair.random.random() < 0.2:
            pair.check()
    for view, records, model in frozen:
        check(view, records, model, pair.types)
    frozen.clear()
    pair.check()


@pytest.mark.parametrize("kind", VALUES)
def test_random_changes_freezes_and_restores_agree_with_a_model(kind: str) -> None:
    for seed in range(2):
        run(kind, seed, 30)


@pytest.mark.soak
@pytest.mark.parametrize("kind", VALUES)
def test_many_random_changes_agree_with_a_model(kind: str) -> None:
    for seed in range(100):
        run(kind, seed, 80)


def one(type_: pa.DataType = NUMBER) -> tuple[OrderedValues, np.ndarray]:
    return OrderedValues([type_], 0), np.zeros((1, 1), np.int64)


def added(values: OrderedValues, records: np.ndarray, array: pa.Array, weight: int = 1) -> None:
    values.add(records, np.zeros(len(array), np.int32), [array], np.full(len(array), weight))


def test_a_frozen_view_shows_its_moment_while_all_its_values_leave() -> None:
    values, records = one(pa.string())
    texts = pa.array([f"text {i}" for i in range(3000)])
    added(values, records, texts)
    view, roots = values.freeze(), records.copy()
    added(values, records, texts, -1)
    added(values, records, pa.array([f"other {i}" for i in range(6000)]))
    assert view.column(0, view.listed(roots)[1]).to_pylist() == sorted(texts.to_pylist())


def test_memory_follows_the_values_that_are_held() -> None:
    values, records = one(pa.string())
    for round_ in range(60):
        array = pa.array([f"round {round_}, text {i}" + 200 * "." for i in range(500)])
        added(values, records, array)
        view = values.freeze() if round_ % 3 == 0 else None
        added(values, records, array, -1)
        del view
    assert values._interner is not None
    assert len(values._table.nodes) <= 8192
    assert values._interner.nbytes < 3 << 20  # of 6.5 million
    added(values, records, pa.array(["end"]))
    assert len(values) == 1


def test_unread_views_cost_the_changed_paths_and_not_all_values() -> None:
    values, records = one()
    added(values, records, pa.array(np.arange(50_000)))
    views = []
    for i in range(50):
        views.append(values.freeze())
        added(values, records, pa.array([i * 997]))
    assert len(values) < 50_000 + 50 * 60
    views.clear()
    added(values, records, pa.array([7]))
    assert len(values) == 50_000


def test_a_sorted_input_makes_no_deep_tree() -> None:
    values, records = one()
    added(values, records, pa.array(np.arange(200_000)))
    values.freeze()
    view = values.freeze()
    added(values, records, pa.array([100_000]))
    assert len(values) - 200_000 < 80
    assert view.totals(np.array([[0]])).tolist() == [0]


def test_values_without_an_order_are_refused() -> None:
    with pytest.raises(SchemaMismatch, match="list<item: int64> have no order"):
        OrderedValues([pa.list_(pa.int64())], 0)


def lists(values: list[Any], type_: pa.DataType = NUMBER) -> pa.Array:
    return pa.array(values, pa.large_list(type_))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([lists([None]), lists([[]])], "null"),
        ([lists([[1, 2]]), lists([[1]])], "different lengths"),
        ([lists([[1, 2]]), lists([[1, None]])], "no multiplicity"),
        ([lists([[1, 2]]), lists([[1, 0]])], "no multiplicity"),
        ([lists([[1, 1]]), lists([[1, 2]])], "only 1 distinct"),
        ([lists([[1, 1]]), lists([[1, -1]])], "only 0 distinct"),
        ([lists([[1, 2]]), lists([[2**62, 2**62]])], "exceed 62 bits"),
    ],
)
def test_forged_lists_are_refused(columns: list[pa.Array], message: str) -> None:
    values, records = one()
    with pytest.raises(CheckpointDamaged, match=message):
        values.restore(records, columns, "x")
