"""Frozen rows against plain copies, under every order of writes, freezes, growth, reads and drops."""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.state import copy_on_write
from dataflow.state.copy_on_write import BLOCK, CopyOnWriteRows, FrozenRows
from tests.forcing import forced

Rows = npt.NDArray[np.int64]


class Reading:
    """A view, how far it was read, and the plain copy that it must equal."""

    def __init__(self, live: CopyOnWriteRows, known: int, size: int) -> None:
        self.copy = live.rows[:known].copy()
        self.read = 0
        self.chunks: Iterator[Rows] = live.freeze(known).chunks(size)

    def step(self) -> bool:
        """Read and check a chunk; False: there was none."""
        chunk = next(self.chunks, None)
        if chunk is None:
            assert self.read == len(self.copy)
            return False
        np.testing.assert_array_equal(chunk, self.copy[self.read : self.read + len(chunk)])
        self.read += len(chunk)
        return True


def rows_of(number: int, width: int = 3) -> CopyOnWriteRows:
    return CopyOnWriteRows(np.arange(number * width, dtype=np.int64).reshape(number, width))


def write(live: CopyOnWriteRows, slots: list[int], value: int) -> None:
    chosen = np.array(slots, np.int32)
    live.save(chosen)
    live.rows[chosen] = value


@given(st.integers(1, 4), st.integers(1, 30), st.integers(1, 8), st.integers(1, 7), st.randoms(use_true_random=False))
def test_every_view_is_the_copy_of_its_moment(
    width: int, capacity: int, blocks: int, size: int, rng: random.Random
) -> None:
    live, readings = rows_of(capacity, width), list[Reading]()
    block = copy_on_write._Block.__init__
    with forced(copy_on_write, "BLOCK", 2 * blocks, calls=block, times=-(-capacity // blocks)):
        for value in range(-1, -60, -1):
            match rng.choice("wwwwffrrrdg"):
                case "w":
                    write(live, rng.choices(range(len(live.rows)), k=rng.randrange(12)), value)
                case "f":
                    readings.append(Reading(live, rng.randint(0, len(live.rows)), size))
                case "r" if readings:
                    rng.choice(readings).step()
                case "d" if readings:
                    readings.pop(rng.randrange(len(readings)))
                case "g":
                    live.replace(np.concatenate([live.rows, np.full((3, width), value)]))
        readings.append(Reading(live, len(live.rows), size))
        write(live, list(range(len(live.rows))), -60)
        for reading in readings:
            while reading.step():
                pass


def test_one_write_may_fill_several_blocks_of_the_log() -> None:
    live = rows_of(3 * BLOCK, width=2)
    reading = Reading(live, 3 * BLOCK, size=BLOCK - 1)
    write(live, list(range(3 * BLOCK))[::-1], -1)
    assert all(reading.step() for _ in range(4))


def test_a_row_is_saved_once_and_only_while_it_is_not_copied() -> None:
    live = rows_of(4)
    frozen = live.freeze(3)
    chunks = frozen.chunks(1)
    next(chunks)
    for value in (-1, -2):
        write(live, [0, 1, 3, 1], value)
    assert saved(frozen) == [1]


def saved(frozen: FrozenRows) -> list[int]:
    return [slot for block in frozen._log for slot in block.slots[: block.used[0]].tolist()]


@pytest.mark.parametrize("chunks_read", [0, 1, 3])
def test_a_view_that_is_dropped_costs_nothing_any_more(chunks_read: int) -> None:
    live = rows_of(3)
    reading = Reading(live, 3, size=1)
    view = live._views[0]
    assert all(reading.step() for _ in range(chunks_read))
    write(live, [0, 1], -1)
    del reading
    assert view() is None
    write(live, [2], -2)
    assert not live._views


def test_a_view_that_is_copied_costs_nothing_even_while_it_is_held() -> None:
    live = rows_of(3)
    frozen = live.freeze(3)
    assert len(list(frozen.chunks(2))) == 2
    write(live, [2], -2)
    assert not live._views


def test_rows_after_those_that_were_copied_by_number_are_saved() -> None:
    live = rows_of(6)
    before, frozen = live.rows.copy(), live.freeze(6)
    for piece in ([0, 1], [2, 4], [5]):
        chosen = np.array(piece, np.int32)
        np.testing.assert_array_equal(frozen.rows_of(chosen), before[chosen])
        write(live, list(range(piece[-1], 6)), -1)
    assert saved(frozen) == [2, 3, 4, 5]


def test_rows_that_were_replaced_live_as_long_as_a_view_of_them() -> None:
    live = rows_of(3)
    old, chunks = weakref.ref(live.rows), live.freeze(3).chunks(2)
    live.replace(np.zeros((9, 3), np.int64))
    write(live, [2], -2)
    assert not live._views
    assert [len(chunk) for chunk in chunks] == [2, 1]
    del chunks
    assert old() is None


@pytest.mark.parametrize("seed", range(3))
def test_threads_read_what_was_frozen_while_the_rows_are_written(seed: int) -> None:
    rng = np.random.default_rng(seed)
    live = CopyOnWriteRows(np.zeros((200_000, 4), np.int64))
    readers, failures = list[threading.Thread](), list[BaseException]()
    for value in range(1, 200):
        if value % 40 == 1:
            reading = Reading(live, 199_999, size=3_000)
            readers.append(threading.Thread(target=read_all, args=(reading, failures)))
            readers[-1].start()
        slots = rng.integers(0, 200_000, 20_000).astype(np.int32)
        live.save(slots)
        live.rows[slots] += value
    for reader in readers:
        reader.join()
    assert not failures, failures


def read_all(reading: Reading, failures: list[BaseException]) -> None:
    try:
        while reading.step():
            pass
    except BaseException as error:
        failures.append(error)
