"""Keys of every type become slots, and come back as they were."""

from __future__ import annotations

import datetime as dt
import random
import tracemalloc
from collections.abc import Hashable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.errors import SchemaMismatch
from dataflow.state import keyed
from dataflow.state.dictionaries import wide_type
from dataflow.state.index import SlotIndex, WideSlotIndex
from dataflow.state.keyed import KeyIndex, KnownKeys
from tests.forcing import forced

NAN = float("nan")
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [1, None, -1, 0, 127, -128],
    pa.uint64(): [0, None, 2**64 - 1, 2**63],
    pa.int64(): [0, None, -(2**63), 2**63 - 1],
    pa.float64(): [0.0, -0.0, NAN, -NAN, None, 1e300, float("-inf")],
    pa.float32(): [0.0, -0.0, NAN, None, 1.5],
    pa.bool_(): [True, None, False],
    pa.string(): ["", None, "a", "ä long one, past sixteen bytes", "a\0"],
    pa.large_string(): ["", None, "b"],
    pa.binary(): [b"", None, b"\0", b"\0\0"],
    pa.binary(3): [b"abc", None, b"\0\0\0"],
    pa.decimal128(9, 2): [Decimal("1.50"), None, Decimal("-1.50"), Decimal("0.00")],
    pa.date32(): [dt.date(1969, 1, 1), None, dt.date(2030, 1, 1)],
    pa.timestamp("ns", "UTC"): [0, None, -1, 2**62],
    pa.duration("s"): [0, None, -5],
    pa.time32("ms"): [0, None, 1],
    pa.dictionary(pa.int8(), pa.string()): ["x", None, "y"],
    pa.dictionary(pa.int32(), pa.int64()): [3, None, 4],
}


def column(type_: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_dictionary(type_):
        return pa.array(values, type_.value_type).dictionary_encode().cast(type_)
    return pa.array(values, type_)


def hashable(value: Any) -> Hashable:
    """What makes a key: NaNs are one, zeros are one."""
    value = value.value if isinstance(value, (pa.TimestampScalar, pa.DurationScalar)) else value.as_py()
    return "nan" if value != value else (0.0 if value == 0 and isinstance(value, float) else value)


def reference(columns: list[pa.Array]) -> list[int]:
    """Slots in order of first appearance, by a dict."""
    slots: dict[Hashable, int] = {}
    return [slots.setdefault(tuple(map(hashable, row)), len(slots)) for row in zip(*columns, strict=True)]


def random_column(type_: pa.DataType, rows: int, rng: random.Random) -> pa.Array:
    """A slice, so that offsets are not zero."""
    return column(type_, rng.choices(VALUES[type_], k=rows + 11)).slice(rng.randrange(11), rows)


@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_slots_are_numbered_by_first_appearance(type_: pa.DataType) -> None:
    array = random_column(type_, 50, random.Random(1))
    index = KeyIndex(pa.schema({"k": type_}))
    assert index.slots([array]).tolist() == reference([array])


@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_keys_come_back_in_their_type(type_: pa.DataType) -> None:
    array = random_column(type_, 50, random.Random(2))
    index = KeyIndex(pa.schema({"k": type_}))
    (back,) = index.keys(index.slots([array]).copy())
    back.validate(full=True)
    assert back.type == wide_type(type_)
    assert list(map(hashable, back)) == list(map(hashable, array))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_several_columns_over_several_batches(types: list[pa.DataType], rng: random.Random) -> None:
    batches = [[random_column(type_, rows, rng) for type_ in types] for rows in (7, 0, 1, 40)]
    index = KeyIndex(pa.schema([(f"k{i}", type_) for i, type_ in enumerate(types)]))
    slots = [slot for batch in batches for slot in index.slots(batch).tolist()]
    rows = [list(row) for batch in batches for row in zip(*batch, strict=True)]
    seen: dict[Hashable, int] = {}
    assert slots == [seen.setdefault(tuple(map(hashable, row)), len(seen)) for row in rows]
    restored = KeyIndex(index.schema)
    restored.restore(index.snapshot().read_all())
    assert [slot for batch in batches for slot in restored.slots(batch).tolist()] == slots
    assert len(restored) == len(index) == len(seen)


def test_a_new_dictionary_in_each_batch_keeps_the_slots() -> None:
    index = KeyIndex(pa.schema({"k": pa.dictionary(pa.int32(), pa.string())}))
    assert index.slots([pa.array(["a", "b"]).dictionary_encode()]).tolist() == [0, 1]
    assert index.slots([pa.array(["c", "b", "a"]).dictionary_encode()]).tolist() == [2, 1, 0]
    empty = pa.DictionaryArray.from_arrays(pa.array([None], pa.int32()), pa.array([], pa.string()))
    assert index.slots([empty]).tolist() == [3]


def test_nulls_in_a_dictionary_and_in_its_indices_are_one_key() -> None:
    index = KeyIndex(pa.schema({"k": pa.dictionary(pa.int64(), pa.string())}))
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array(["a", None]))
    assert index.slots([array]).tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("type_", [pa.int64(), pa.string()], ids=str)
def test_many_keys_make_the_index_grow(type_: pa.DataType) -> None:
    keys = pa.array(np.random.default_rng(3).permutation(50_000) * 7919).cast(type_)
    index = KeyIndex(pa.schema({"k": type_}))
    assert index.slots([keys]).tolist() == list(range(50_000))
    assert index.slots([keys.slice(10, 5)]).tolist() == [10, 11, 12, 13, 14]
    assert index.keys(range(len(index)))[0].equals(keys)


def test_keys_that_collide_in_a_tiny_table_stay_apart() -> None:
    keys = np.array([*[k for k in range(4000) if home(k, entries=4) == 3][:2], -1], np.int64)
    index, wide = SlotIndex(capacity=2), WideSlotIndex(width=2, capacity=1)
    assert index.lookup(keys[[0, 1, 0, 1]]).tolist() == [0, 1, 0, 1]
    assert index.lookup(keys[[2, 1, 0]]).tolist() == [2, 1, 0]
    assert wide.lookup(np.stack([keys[[0, 1, 2, 0]], keys[[0, 0, 0, 0]]])).tolist() == [0, 1, 2, 0]


def home(key: int, entries: int) -> int:
    """Where the one-word index puts a key first."""
    return ((key ^ key >> 32) * 0x9E3779B97F4A7C15 % 2**64) * entries >> 64


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_random_lookups_and_removals_of_wide_keys_agree_with_a_dictionary(width: int, seed: int) -> None:
    """Few words make many keys return; blocks of hashes end within batches; the table begins with one key."""
    draw, index, slots = np.random.default_rng(seed), WideSlotIndex(width, capacity=1), dict[tuple[int, ...], int]()
    for rows in draw.choice([0, 1, 255, 256, 257, 2_000], 20).tolist():
        words = np.ascontiguousarray(draw.integers(0, round(3_000 ** (1 / width)), (width, rows)) - 7)
        keys = list(map(tuple, words.T.tolist()))
        assert index.find(words).tolist() == [slots.get(key, -1) for key in keys]
        found, new = index.lookup(words).tolist(), [key for key in dict.fromkeys(keys) if key not in slots]
        assert [keys[row] for row in index.fresh.tolist()] == new
        slots |= zip(keys, found, strict=True)
        assert found == [slots[key] for key in keys]
        assert len(set(slots.values())) == len(slots), "two keys have one slot"
        goes = draw.random(len(slots)) < draw.choice([0.1, 0.9])
        gone = [key for key, is_gone in zip(slots, goes.tolist(), strict=True) if is_gone]
        removed = np.array([slots.pop(key) for key in gone], np.int32)
        index.remove(removed)
        index.release(removed)
    assert len(index) < 4_000, "released slots are not used again"


@pytest.mark.parametrize("column", [0, 1])
def test_keys_beside_others_are_those_that_a_search_finds(column: int) -> None:
    draw = random.Random(column)
    rows = list({(draw.choice([-1, 0, 1, None, 2**63 - 2]), draw.randrange(-300, 300)) for _ in range(1_000)})
    rows = [row if column else row[::-1] for row in rows]
    index = KeyIndex(pa.schema({"a": pa.int64(), "b": pa.int64()}))
    slots = index.slots([pa.array(values, pa.int64()) for values in zip(*rows, strict=True)]).copy()
    of = dict(zip(rows, slots.tolist(), strict=True))
    found = index.beside(slots, column)
    for step, beside in zip((-1, 1), found, strict=True):
        moved = [tuple(v + step if i == column else v for i, v in enumerate(row)) for row in rows]  # type: ignore[operator]
        assert beside.tolist() == [of.get(key, -1) for key in moved]
    assert all((beside >= 0).sum() > 100 for beside in found)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_a_snapshot_that_is_read_late_does_not_see_later_keys(
    types: list[pa.DataType], chunk: int, rng: random.Random
) -> None:
    index = KeyIndex(pa.schema([(f"k{i}", type_) for i, type_ in enumerate(types)]))
    index.slots([random_column(type_, 5, rng) for type_ in types])
    keys = index.keys(range(len(index)))
    with forced(
        keyed, "CHUNK", chunk, calls=KnownKeys.columns, within=KnownKeys.batches, times=-(-len(index) // chunk)
    ):
        snapshot = index.snapshot()
        index.slots([random_column(type_, 40, rng) for type_ in types])
        found = snapshot.read_all()
    found.validate(full=True)
    assert rows_of(found.columns) == rows_of(keys)


def rows_of(columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[Hashable]:
    return [tuple(map(hashable, row)) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("type_", [pa.int64(), pa.string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_a_snapshot_goes_on_reading_the_memory_that_growth_left(type_: pa.DataType) -> None:
    index = KeyIndex(pa.schema({"k": type_}))
    index.slots([column(type_, VALUES[type_])])
    snapshot, keys = index.snapshot(), index.keys(range(len(index)))[0].to_pylist()
    value_type = type_.value_type if pa.types.is_dictionary(type_) else type_
    many = pa.array(range(5_000)).cast(value_type)
    index.slots([many.dictionary_encode() if pa.types.is_dictionary(type_) else many])
    assert snapshot.read_all()["k"].to_pylist() == keys


@pytest.mark.parametrize("type_", [pa.list_(pa.int64()), pa.struct({"a": pa.int64()})], ids=str)
def test_nested_types_are_no_keys(type_: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match="'k'"):
        KeyIndex(pa.schema({"k": type_}))


def test_a_long_text_that_many_keys_share_is_in_memory_once() -> None:
    schema = pa.schema({"text": pa.dictionary(pa.int32(), pa.string()), "n": pa.int64()})
    index = KeyIndex(schema)
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 2000 + [None], pa.int32()), ["x" * 50_000])
    index.slots([texts, pa.array(range(2001))])
    tracemalloc.start()
    column, _ = index.keys(range(2001))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 << 20
    assert column.equals(texts)
