"""The batches of a checkpoint of keyed state are limited by their bytes, of keys and of state columns."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest

from dataflow.state import parts
from dataflow.state.copy_on_write import CHUNK
from dataflow.state.keyed_state import KeyedState
from dataflow.state.timers import TimeDomain
from tests.forcing import Force

PIECE = 8_192
KEYS = pa.schema({"k": pa.string(), "n": pa.int64()})
COLUMNS = pa.schema({"t": pa.string(), "b": pa.large_binary(), "x": pa.float64()})
Part = Mapping[str, list[pa.RecordBatch]]


@pytest.fixture
def small_pieces(force: Force) -> None:
    force(parts, "PIECE_BYTES", PIECE, calls=parts._most_rows, giving=lambda most: most < CHUNK)


def text(rng: random.Random, kind: str) -> str | None:
    """A text that is null, short, medium or larger than a piece."""
    if rng.random() < 0.1:
        return None
    return "x" * {"short": 20, "medium": rng.randrange(2_000), "large": 10_000 + rng.randrange(99)}[kind]


def written(state: KeyedState, rng: random.Random, count: int, *kinds: str) -> KeyedState:
    """Write ``count`` rows of new or known keys, with texts of ``kinds``, some of them null."""
    kind = [rng.choice(kinds) for _ in range(count)]
    numbers = [rng.randrange(400) for _ in range(count)]
    keys = [pa.array([text(random.Random(n), kinds[n % len(kinds)]) for n in numbers]), pa.array(numbers)]
    slots, _ = state.insert(keys)
    row = {
        "t": pa.array([text(rng, one) for one in kind]),
        "b": pa.array([text(rng, one) for one in kind]).cast(pa.large_binary()),
        "x": pa.array(np.arange(count, dtype=np.float64)),
    }
    state.write(slots, pa.record_batch(row))
    state.set_timers(slots, np.arange(count, dtype=np.int64), TimeDomain.EVENT)
    return state


def frozen(state: KeyedState, checkpoint: int, since: int | None = None) -> Part:
    return {name: list(reader) for name, reader in state.freeze(checkpoint, since).items()}


def tables(part: Part, state: KeyedState, checkpoint: int) -> dict[str, pa.Table]:
    schemas = {name: reader.schema for name, reader in state.freeze(checkpoint).items()}
    return {
        name: pa.Table.from_batches(batches) if batches else schemas[name].empty_table()
        for name, batches in part.items()
    }


def rows(state: KeyedState) -> dict[tuple[object, ...], object]:
    slots = state.slots
    keys = zip(*[column.to_pylist() for column in state.keys(slots)], strict=True)
    return dict(zip(keys, state.read(slots).to_pylist(), strict=True))


def check_sizes(part: Part) -> None:
    """Assert that no batch of several rows is larger than a piece of text and one of all other columns."""
    for batches in part.values():
        several = [batch for batch in batches if batch.num_rows > 1]
        assert max([batch.nbytes for batch in several], default=0) <= 2 * PIECE
        assert all(batch.num_rows for batch in batches)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("kinds", [("short",), ("medium",), ("large",), ("short", "medium", "large")])
def test_no_batch_has_more_bytes_than_a_piece_and_all_are_restored(kinds: tuple[str, ...]) -> None:
    rng = random.Random(str(kinds))
    state = written(KeyedState(KEYS, COLUMNS), rng, 300, *kinds)
    base = frozen(state, 1)
    state.durable(1)
    written(state, rng, 200, *kinds)
    state.delete(state.slots[::3])
    state.due(50)
    delta = frozen(state, 2, since=1)
    for part in (base, delta):
        check_sizes(part)
    restored = KeyedState(KEYS, COLUMNS)
    restored.restore([tables(base, state, 3), tables(delta, state, 4)])
    assert rows(restored) == rows(state)
    assert len(rows(state)) > 50
    mine, theirs = (one.due(10**6, limit=10**6)[0].tolist() for one in (state, restored))
    assert mine == theirs


@pytest.mark.usefixtures("small_pieces")
def test_a_row_larger_than_a_piece_is_a_batch_of_its_own() -> None:
    state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({"t": pa.string()}))
    slots, _ = state.insert([pa.array(range(100))])
    state.write(slots, pa.record_batch({"t": [f"{k:02}" * PIECE for k in range(100)]}))
    assert [batch.num_rows for batch in frozen(state, 1)["keys"]] == [1] * 100


def test_every_text_stays_with_its_key_when_the_table_is_full_and_dead_texts_are_dropped() -> None:
    numbers, state = pa.array(range(511)), KeyedState(pa.schema({"n": pa.int64()}), pa.schema({"t": pa.string()}))
    for length in (3, 5, 9, 4, 7):  # more than 1,024 dead texts
        slots, _ = state.insert([numbers])
        state.write(slots, pa.record_batch({"t": pa.array([f"{n:0{length}}" for n in range(511)])}))
        assert state.read(slots)["t"].to_pylist() == [f"{n:0{length}}" for n in range(511)]


def test_a_part_may_be_a_slice_of_a_larger_table() -> None:
    schemas = pa.schema({"n": pa.int64()}), pa.schema({"t": pa.string()})
    state, restored = KeyedState(*schemas), KeyedState(*schemas)
    slots, _ = state.insert([pa.array([1, 2, 3])])
    state.write(slots, pa.record_batch({"t": ["one", "two", "three"]}))
    restored.restore([{name: reader.read_all().slice(1) for name, reader in state.freeze(1).items()}])
    assert restored.read(restored.find([pa.array([2, 3])]))["t"].to_pylist() == ["two", "three"]


@pytest.mark.usefixtures("small_pieces")
def test_null_keys_and_values_have_no_bytes() -> None:
    """The words of null values are 0, and so is the number of the first value, which may be large."""
    state = KeyedState(pa.schema({"k": pa.string(), "n": pa.int64()}), pa.schema({"t": pa.string()}))
    slots, _ = state.insert([pa.array(["k" * PIECE, *[None] * 99]), pa.array(range(100))])
    state.write(slots, pa.record_batch({"t": pa.array(["t" * PIECE, *[None] * 99], pa.string())}))
    assert len(frozen(state, 1)["keys"]) < 10, "halves, down to the one large row"


@pytest.mark.usefixtures("small_pieces")
def test_records_of_many_words_have_fewer_rows_in_a_batch() -> None:
    columns = pa.schema([(f"c{i}", pa.int64()) for i in range(40)])
    state = KeyedState(pa.schema({"k": pa.int64()}), columns)
    slots, _ = state.insert([pa.array(range(1_000))])
    state.write(slots, pa.record_batch([pa.array(range(1_000))] * 40, schema=columns))
    base = frozen(state, 1)
    check_sizes(base)
    assert sum(batch.num_rows for batch in base["keys"]) == 1_000
    state.durable(1)
    state.change(slots)
    check_sizes(frozen(state, 2, since=1))
