"""Dictionary keys: an entry is looked up once, only entries that rows refer to are keys, dictionaries are shared."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from dataflow.state.entries import EntrySlots
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex
from dataflow.state.remembered import KEPT, Remembered
from tests.seeds import seeds

TEXT = pa.dictionary(pa.int32(), pa.string())


class Lookup:
    """Slots in order of first appearance, and a list of all values that were asked for."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self._slots: dict[str | None, int] = {}

    def __call__(self, values: pa.Array) -> tuple[Slots, npt.NDArray[np.int32]]:
        self.asked += values.to_pylist()
        known = len(self._slots)
        slots = np.array([self._slots.setdefault(value, len(self._slots)) for value in values.to_pylist()], np.int32)
        return slots, np.flatnonzero(slots >= known).astype(np.int32)


def rows(indices: list[int | None], dictionary: pa.Array, index_type: pa.DataType | None = None) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(indices, index_type or pa.int32()), dictionary)


def test_each_entry_of_a_dictionary_is_looked_up_once() -> None:
    lookup, dictionary = Lookup(), pa.array(["a", "b", "c"])
    found = EntrySlots()
    assert found.slots(rows([1, 1, 0], dictionary), lookup).tolist() == [0, 0, 1]
    assert found.slots(rows([0, 2, 1], dictionary), lookup).tolist() == [1, 2, 0]
    assert lookup.asked == ["b", "a", "c"]


def test_dictionaries_in_turn_are_looked_up_once_each() -> None:
    lookup, dictionaries = Lookup(), [pa.array(["a", "b"]), pa.array(["a", "c"])]
    found = EntrySlots()
    assert [found.slots(rows([0], dictionary), lookup).tolist() for dictionary in dictionaries * 3] == [[0]] * 6
    assert lookup.asked == ["a", "a"]


def test_copies_of_a_dictionary_are_looked_up_once() -> None:
    lookup = Lookup()
    found = EntrySlots()
    assert [found.slots(rows([0, 1], pa.array(["a", None])), lookup).tolist() for _ in range(KEPT + 1)] == [[0, 1]] * (
        KEPT + 1
    )
    assert lookup.asked == ["a", None]


def test_equal_numbers_of_different_bits_are_different_dictionaries() -> None:
    remembered = Remembered[str]()
    signs = [remembered.of(pa.array([zero]), lambda zero=zero: str(zero)) for zero in (0.0, -0.0)]
    assert signs == ["0.0", "-0.0"]


def test_more_dictionaries_than_are_remembered_give_the_same_slots() -> None:
    lookup, dictionaries = Lookup(), [pa.array([f"v{k % 5}", "x"]) for k in range(KEPT + 3)]
    found = EntrySlots()
    for _ in range(2):
        assert [found.slots(rows([0], d), lookup).tolist() for d in dictionaries] == [[k % 5] for k in range(KEPT + 3)]


def test_entries_that_no_row_refers_to_are_no_keys() -> None:
    index = KeyIndex(pa.schema({"k": TEXT}))
    assert index.slots([rows([2, 2], pa.array(["a", "b", "c"]))]).tolist() == [0, 0]
    assert index.keys(range(len(index)))[0].to_pylist() == ["c"]


def test_null_rows_and_rows_of_a_null_entry_are_one_key() -> None:
    index = KeyIndex(pa.schema({"k": TEXT}))
    assert index.slots([rows([0, None, 1, 0], pa.array([None, "a"]))]).tolist() == [0, 0, 1, 0]
    assert index.keys(range(2))[0].to_pylist() == [None, "a"]


def test_equal_entries_of_one_dictionary_are_one_key() -> None:
    index = KeyIndex(pa.schema({"k": TEXT}))
    assert index.slots([rows([0, 1, 2], pa.array(["a", "a", "b"]))]).tolist() == [0, 0, 1]


@pytest.mark.parametrize("index_type", [pa.int8(), pa.uint16(), pa.int64()], ids=str)
def test_indices_may_have_any_width(index_type: pa.DataType) -> None:
    index = KeyIndex(pa.schema({"k": TEXT}))
    assert index.slots([rows([1, None, 0], pa.array(["a", "b"]), index_type).slice(1)]).tolist() == [0, 1]


def test_an_empty_dictionary_has_null_rows_only() -> None:
    index = KeyIndex(pa.schema({"k": TEXT}))
    assert index.slots([rows([None, None], pa.array([], pa.string()))]).tolist() == [0, 0]


def test_a_dictionary_that_was_looked_up_before_does_not_bring_back_the_slot_of_a_removed_key() -> None:
    index, batch = KeyIndex(pa.schema({"k": TEXT})), [rows([0, 1], pa.array(["a", "b"]))]
    removed = index.slots(batch)[:1].copy()
    index.remove(removed)
    slots = index.slots(batch).copy()
    assert (slots[0] != removed[0], slots[1], index.live) == (True, 1, 2)
    assert index.find(batch).tolist() == slots.tolist()


@pytest.mark.parametrize("seed", seeds(5, 20))
def test_slots_of_random_dictionaries_are_those_of_their_plain_values(seed: int) -> None:
    rng = random.Random(seed)
    encoded, plain = KeyIndex(pa.schema({"k": TEXT})), KeyIndex(pa.schema({"k": pa.string()}))
    for _ in range(12):
        values = pa.array(rng.choices([None, *map(str, range(30))], k=rng.randrange(1, 40)))
        batch = rows(rng.choices([None, *range(len(values))], k=50), values).slice(rng.randrange(9))
        assert encoded.slots([batch]).tolist() == plain.slots([batch.dictionary_decode()]).tolist(), f"seed {seed}"
    assert encoded.keys(range(len(encoded)))[0].to_pylist() == plain.keys(range(len(plain)))[0].to_pylist()


# --- the dictionaries of keys that go out


def address(column: pa.DictionaryArray) -> int:
    return column.dictionary.buffers()[2].address


def test_columns_with_most_of_the_keys_share_a_dictionary() -> None:
    index = KeyIndex(pa.schema({"k": TEXT}))
    slots = index.slots([pa.array(["a", "b", "c"]).dictionary_encode()]).copy()
    first, second = index.keys(slots)[0], index.keys(slots[::-1])[0]
    assert address(first) == address(second)
    assert second.to_pylist() == ["c", "b", "a"]


def test_a_new_key_makes_a_new_dictionary_and_leaves_the_old_one_alone() -> None:
    index = KeyIndex(pa.schema({"k": TEXT}))
    before = index.keys(index.slots([pa.array(["a", "b"]).dictionary_encode()]))[0]
    after = index.keys(index.slots([pa.array(["c", "a"]).dictionary_encode()]))[0]
    assert (before.to_pylist(), after.to_pylist()) == (["a", "b"], ["c", "a"])
    assert address(before) != address(after)


def test_a_few_of_many_keys_come_with_a_dictionary_of_their_own() -> None:
    index = KeyIndex(pa.schema({"k": TEXT}))
    index.slots([pa.array([str(k) for k in range(1_000)]).dictionary_encode()])
    assert index.keys([7, 700])[0].dictionary.to_pylist() == ["7", "700"]


def test_keys_that_went_out_do_not_change_with_the_slots_they_were_asked_by() -> None:
    index = KeyIndex(pa.schema({"k": TEXT}))
    found = index.keys(index.slots([pa.array(["a", "b"]).dictionary_encode()]))[0]
    index.slots([pa.array(["b", "b"]).dictionary_encode()])
    assert found.to_pylist() == ["a", "b"]


@pytest.mark.parametrize("values", [[1, 2], [1.5, -0.0], [True, False]], ids=str)
def test_dictionaries_of_numbers_go_out_as_they_came(values: list[object]) -> None:
    column = pa.array(values).dictionary_encode()
    index = KeyIndex(pa.schema({"k": column.type}))
    assert index.keys(index.slots([column]))[0].to_pylist() == values
