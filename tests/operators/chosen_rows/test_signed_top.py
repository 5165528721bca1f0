"""The first rows of random signed changes, by themselves: the net of what comes out, after each batch."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dataflow.contracts.operator import Snapshot
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.chosen_row_specs import Order, SignedTop, Ties
from operators.chosen_rows.ranked_trees import tree_columns
from operators.chosen_rows.signed_top import SignedTopOperator
from tests.operators.operating import Emitted, context_of, drained, made, stored
from tests.seeds import seeds

INPUT = pa.schema({"k": pa.int64(), "x": pa.int64(), "s": pa.string(), "change": pa.int8()})
OUTPUT = pa.schema([*list(INPUT)[:-1], pa.field("rank", pa.int64()), pa.field("change", pa.int8())])


class Model:
    """The rows that are left, in the order of their first change since there was nothing of them."""

    def __init__(self, n: int, ties: Ties, *, descending: bool) -> None:
        self.n, self.ties, self.descending = n, ties, descending
        self.left: dict[tuple[Any, ...], int] = {}

    def add(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            key = (row["k"], row["x"], row["s"])
            self.left[key] = self.left.get(key, 0) + row["change"]
        self.left = {key: count for key, count in self.left.items() if count}

    def tops(self) -> Counter[Any]:
        """Return the rows with their ranks."""
        tops: Counter[Any] = Counter()
        for k in {key[0] for key in self.left}:
            rows = [key for key, count in self.left.items() if key[0] == k for _ in range(count)]
            rows.sort(key=self.place)
            for at, row in enumerate(rows):
                before = sum(self.place(other) < self.place(row) for other in rows)
                rank = 1 + (before if self.ties == "all" else at)
                if rank <= self.n:
                    tops[(*row, rank)] += 1
        return tops

    def place(self, row: tuple[Any, ...]) -> tuple[bool, int]:
        return row[1] is None, 0 if row[1] is None else -row[1] if self.descending else row[1]


def operator_of(order: Order, restored: Snapshot | None = None, emit: Emit = Emit.CHANGES) -> SignedTopOperator:
    output = OUTPUT if emit is Emit.CHANGES else pa.schema(list(OUTPUT)[:-1])
    context = context_of(INPUT, output, restored=restored)
    return made(SignedTopOperator(context, SignedTop(("k",), order, emit)), context)


def random_changes(draw: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "k": draw.choice([None, 1, 2]),
            "x": draw.choice([None, 1, 2, 3]),
            "s": draw.choice(["a", "b", "c"]),
            "change": draw.choice([1, 1, -1]),
        }
        for _ in range(draw.randrange(1, 9))
    ]


@pytest.mark.parametrize("ties", ["arrival", "all"])
@pytest.mark.parametrize("seed", seeds(6, 400))
def test_what_came_out_nets_to_the_first_rows_of_what_is_left(seed: int, ties: Literal["arrival", "all"]) -> None:
    draw = random.Random(seed)
    descending = draw.choice([True, False])
    model = Model(draw.choice([1, 2, 5]), ties, descending=descending)
    order = Order(model.n, ("x",), (descending,), ties)
    operator, out, net = operator_of(order), Emitted(), Counter[Any]()
    for _ in range(12):
        rows = random_changes(draw)
        model.add(rows)
        drained(operator.process(0, pa.RecordBatch.from_pylist(rows, INPUT), out))
        for *row, change in out.take():
            net[tuple(row)] += int(change)  # type: ignore[call-overload]
        assert not any(count < 0 for count in net.values())
        assert Counter({row: count for row, count in net.items() if count}) == model.tops()
        if draw.randrange(4) == 0:
            operator = operator_of(order, stored(operator.snapshot()))
    assert operator._trees._state.live == len({key[0] for key in model.left})
    assert operator._state.live == len(model.left)


def test_a_row_goes_by_its_first_change_and_starts_anew_after_it_was_taken_back() -> None:
    operator, out = operator_of(Order(3, ("x",), (True,), "arrival")), Emitted()

    def change(*rows: tuple[str, int]) -> list[tuple[object, ...]]:
        batch = [{"k": 1, "x": 1, "s": s, "change": sign} for s, sign in rows]
        drained(operator.process(0, pa.RecordBatch.from_pylist(batch, INPUT), out))
        return [row[2:] for row in out.take()]

    assert change(("a", 1), ("b", 1)) == [("a", 1, 1), ("b", 2, 1)]
    assert change(("a", -1)) == [("a", 1, -1), ("b", 1, 1), ("b", 2, -1)]
    assert change(("a", 1)) == [("a", 2, 1)]
    assert change(("b", 1)) == [("a", 2, -1), ("b", 2, 1), ("a", 3, 1)]


def test_a_row_that_is_taken_back_before_it_is_added_is_not_shown() -> None:
    operator, out = operator_of(Order(3, ("x",), (True,), "arrival")), Emitted()
    row = {"k": 1, "x": 1, "s": "a"}
    for change in (-1, 1):
        drained(operator.process(0, pa.RecordBatch.from_pylist([{**row, "change": change}], INPUT), out))
    assert out.take() == []
    assert operator._state.live == operator._trees._state.live == 0


def test_final_rows_come_out_at_the_end() -> None:
    operator, out = operator_of(Order(1, ("x",), (False,), "all"), emit=Emit.FINAL), Emitted()
    batch = [{"k": k, "x": x, "s": "a", "change": 1} for k, x in [(1, 5), (1, 4), (2, 9), (1, 4)]]
    drained(operator.process(0, pa.RecordBatch.from_pylist(batch, INPUT), out))
    assert out.take() == []
    drained(operator.finish(out))
    assert out.take() == [(1, 4, "a", 1), (1, 4, "a", 1), (2, 9, "a", 1)]


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"", b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"a\xff", b"\xff", None], pa.binary()),
        pa.array(["ü", "a", "ab", "b", ""], pa.string()),
        pa.array([b"ab", b"ba", b"\xff\0"], pa.binary(2)),
        pa.array([1.5, None, -0.0, float("inf"), float("nan"), -2.0]),
        pa.array([5, -(2**63), 2**63 - 1]),
        pa.array([2**64 - 1, 0, None], pa.uint64()),
    ],
    ids=lambda column: str(getattr(column, "type", column)),
)
def test_columns_of_a_tree_ascend_in_the_order_asked_for(column: pa.Array, descending: bool) -> None:  # noqa: FBT001
    (own,) = tree_columns([column], [descending])
    found = column.take(pc.sort_indices(own)).to_pylist()
    present = [value for value in column.to_pylist() if value is not None]
    nan = [value for value in present if value != value]
    expected = sorted([value for value in present if value == value], reverse=descending)
    expected = [*nan, *expected] if descending else [*expected, *nan]
    assert repr(found) == repr([*expected, *[None] * column.null_count])
