"""Keyed state against a model: a dict with the rules of values, rows, timers and checkpoints, and random operations.

Run more of it with ``pytest tests/state/test_keyed_state.py -m soak``.
"""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataflow.state.keyed_state import KeyedState, Ttl
from dataflow.state.timers import TimeDomain
from tests.seeds import each_once_with_seeds

NAN = float("nan")
KEYS: dict[str, list[tuple[pa.DataType, list[Any]]]] = {
    "int": [(pa.int64(), [None, *range(60)])],
    "float": [(pa.float64(), [None, NAN, 0.0, 1.5, -2.5, 1e300])],
    "text": [(pa.string(), [None, "", *[f"key {i}" * (i % 7) for i in range(60)], "x" * 5000])],
    "dictionary": [(pa.dictionary(pa.int32(), pa.string()), [None, *[f"k{i}" for i in range(40)]])],
    "two": [(pa.string(), [None, "", "a", "b", "c" * 30]), (pa.int32(), [None, *range(12)])],
    "two dictionaries": [
        (pa.dictionary(pa.int8(), pa.string()), [None, "p", "q", "r"]),
        (pa.dictionary(pa.int32(), pa.large_string()), [None, *[f"w{i}" for i in range(12)]]),
    ],
}
ROWS = pa.schema({"v": pa.int32(), "s": pa.string()})
COLUMNS = pa.schema({"n": pa.int64(), "f": pa.float32(), "t": pa.string(), "b": pa.bool_()})
NONE = pa.schema({})
SHAPES: dict[str, tuple[pa.Schema, pa.Schema | None]] = {
    "columns and rows": (COLUMNS, ROWS),
    "rows": (NONE, ROWS),
    "columns": (COLUMNS, None),
    "keys": (NONE, None),
}
DOMAINS = (TimeDomain.EVENT, TimeDomain.CLOCK)
GROUPS = 8

Key = tuple[Any, ...]


def canonical(key: Sequence[Any]) -> Key:
    return tuple("nan" if value != value else value for value in key)


def array(type_: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if pa.types.is_dictionary(type_):
        return pa.array(values, type_.value_type).dictionary_encode().cast(type_)
    return pa.array(values, type_)


@dataclass
class Model:
    """What keyed state holds, by the rules alone."""

    ttl: int | None
    columns: Sequence[str]
    values: dict[Key, dict[str, Any]] = field(default_factory=dict)
    stamps: dict[Key, int] = field(default_factory=dict)
    rows: dict[Key, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    timers: dict[tuple[Key, int, TimeDomain], int] = field(default_factory=dict)
    registered: int = 0

    def is_visible(self, key: Key, now: int) -> bool:
        return key in self.values and (self.ttl is None or now < self.stamps[key] + self.ttl)

    def write(self, key: Key, row: Mapping[str, Any], now: int, stamp: int) -> bool:
        fresh = not self.is_visible(key, now)
        if fresh:
            self.values[key], self.stamps[key] = dict.fromkeys(self.columns), stamp
            self.rows[key] = []
        self.values[key].update(row)
        self.stamps[key] = max(self.stamps[key], stamp)
        return fresh

    def delete(self, key: Key) -> None:
        self.values.pop(key, None)
        self.rows.pop(key, None)
        self.timers = {timer: n for timer, n in self.timers.items() if timer[0] != key}

    def append(self, key: Key, time: int, row: dict[str, Any]) -> None:
        self.rows[key].append((time, row))
        self.rows[key].sort(key=lambda entry: entry[0])  # stable: equal times stay in the order of arrival

    def between(self, key: Key, low: int, high: int) -> list[dict[str, Any]]:
        return [row for time, row in self.rows[key] if low <= time < high]

    def drop_before(self, time: int, keys: Sequence[Key]) -> int:
        held = sum(len(self.rows[key]) for key in keys)
        for key in keys:
            before = len(self.rows[key])
            self.rows[key] = [entry for entry in self.rows[key] if entry[0] >= time]
            if not self.columns and before and not self.rows[key]:
                del self.values[key]  # its timers stay
        return held - sum(len(self.rows[key]) for key in keys)

    def keep_rows(self, key: Key, stays: Sequence[bool]) -> None:
        before = len(self.rows[key])
        self.rows[key] = [entry for entry, stay in zip(self.rows[key], stays, strict=True) if stay]
        if not self.columns and before and not self.rows[key]:
            del self.values[key]  # its timers stay

    def set_timer(self, key: Key, due: int, domain: TimeDomain) -> None:
        if (key, due, domain) not in self.timers:
            self.timers[key, due, domain] = self.registered
            self.registered += 1

    def fire(self, upto: int, domain: TimeDomain, limit: int) -> list[tuple[int, Key]]:
        due = [(timer[1], n, timer) for timer, n in self.timers.items() if timer[2] is domain and timer[1] <= upto]
        chosen = sorted(due, key=lambda entry: entry[:2])[:limit]
        for _, _, timer in chosen:
            del self.timers[timer]
        return [(due, timer[0]) for due, _, timer in chosen]

    def visible(self, now: int) -> dict[Key, tuple[int, dict[str, Any]]]:
        return {key: (self.stamps[key], self.values[key]) for key in self.values if self.is_visible(key, now)}

    def contents(self, now: int) -> dict[Key, tuple[int, dict[str, Any]]]:
        """What is visible, with the rows of each key."""
        rows = {key: [row for _, row in self.rows[key]] for key in self.values}
        return {key: (stamp, value | {"rows": rows[key]}) for key, (stamp, value) in self.visible(now).items()}


@dataclass
class Stored:
    """A checkpoint of a run: what was written of it, the one it stands on, and what the model held."""

    number: int
    since: int | None
    readers: dict[str, pa.RecordBatchReader]
    model: Model
    now: int
    tables: dict[str, pa.Table] | None = None
    begun: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)

    def read(self) -> dict[str, pa.Table]:
        if self.tables is None:
            self.tables = {}
            for name, reader in self.readers.items():
                self.tables[name] = pa.Table.from_batches([*self.begun.get(name, ()), *reader], reader.schema)
            self.readers = {}
        return self.tables

    def begin(self, name: str) -> None:
        """Read the first batch of a table, and leave the others for later."""
        if self.tables is None and name in self.readers and name not in self.begun:
            self.begun[name] = list(islice(self.readers[name], 1))


class Run:
    """One state, its model, its checkpoints, and random operations on all of them."""

    largest = 200
    """The most rows of a batch."""
    reach = 60
    """The most microseconds from the watermark to a timer."""

    def __init__(self, kind: str, ttl: int | None, seed: int, shape: str = "columns and rows") -> None:
        self.rng = random.Random(seed)
        self.types = [type_ for type_, _ in KEYS[kind]]
        self.pools = [pool for _, pool in KEYS[kind]]
        self.schema = pa.schema([(f"k{i}", type_) for i, type_ in enumerate(self.types)])
        self.columns, self.rows = SHAPES[shape]
        self.ttl = ttl
        self.state = self.new()
        self.model = Model(ttl, self.columns.names)
        self.watermark = 0
        self.number = 0
        self.stored: dict[int, Stored] = {}
        self.durable: list[int] = []

    def new(self) -> KeyedState:
        return KeyedState(self.schema, self.columns, rows=self.rows, ttl=None if self.ttl is None else Ttl(self.ttl))

    def keys(self, rows: int) -> tuple[list[pa.Array], list[Key]]:
        rows = min(rows, self.largest)
        picked = [[self.rng.choice(pool) for pool in self.pools] for _ in range(rows)]
        columns = [array(type_, [row[i] for row in picked]) for i, type_ in enumerate(self.types)]
        return columns, [canonical(row) for row in picked]

    def key_list(self, columns: Sequence[pa.Array]) -> list[Key]:
        return [canonical(row) for row in zip(*[column.to_pylist() for column in columns], strict=True)]

    def row(self) -> dict[str, Any]:
        text = self.rng.choice([None, "", "short", "l" * self.rng.randrange(400)])
        return {"n": self.rng.choice([None, 1, -(2**63)]), "f": self.rng.choice([None, 0.5]), "t": text, "b": True}

    # --- operations

    def write(self) -> None:
        rows = self.rng.choice([0, 1, 1, 3, 20, 200])
        columns, keys = self.keys(rows)
        times = np.array([self.watermark + self.rng.randrange(-15, 15) for _ in keys], np.int64)
        now = np.maximum(times, self.watermark)
        slots, fresh = self.state.insert(columns, now, times)
        slots = slots.copy()
        values = [self.row() for _ in keys]
        names = self.rng.sample(self.columns.names, self.rng.randrange(len(self.columns) + 1))
        expected = []
        for key, at, stamp in zip(keys, now.tolist(), times.tolist(), strict=True):
            expected.append(self.model.write(key, {}, at, stamp))
        assert fresh.tolist() == expected
        for key, row in zip(keys, values, strict=True):
            self.model.values[key].update({name: row[name] for name in names})
        arrays = [pa.array([row[name] for row in values], COLUMNS.field(name).type) for name in names]
        if names:
            self.state.write(slots, pa.RecordBatch.from_arrays(arrays, names=names))
        if self.rng.random() < 0.5:
            self.append(slots, keys)

    def append(self, slots: np.ndarray, keys: Sequence[Key]) -> None:
        if self.rows is None:
            return
        times = np.array([self.watermark + self.rng.randrange(-30, 30) for _ in keys], np.int64)
        texts = [None, "", "row", "r" * 300]
        rows = [{"v": self.rng.choice([None, i]), "s": self.rng.choice(texts)} for i, _ in enumerate(keys)]
        batch = pa.RecordBatch.from_pylist(rows, ROWS)
        self.state.append(slots, times, batch.select(["s", "v"]) if self.rng.random() < 0.2 else batch)
        for key, time, row in zip(keys, times.tolist(), rows, strict=True):
            self.model.append(key, time, row)

    def append_more(self) -> None:
        columns, keys = self.keys(self.rng.choice([1, 40]))
        slots = self.state.find(columns, self.watermark)
        found = (slots >= 0).tolist()
        self.append(slots[found], [key for key, known in zip(keys, found, strict=True) if known])

    def between(self) -> None:
        if self.rows is None:
            return
        columns, keys = self.keys(10)
        slots = self.state.find(columns, self.watermark)
        low = np.array([self.watermark + self.rng.randrange(-60, 60) for _ in keys], np.int64)
        high = low + self.rng.choice([0, 1, 30, 200])
        offsets, batch = self.state.between(slots, low, high)
        rows = batch.to_pylist()
        for i, (key, slot) in enumerate(zip(keys, slots.tolist(), strict=True)):
            expected = self.model.between(key, int(low[i]), int(high[i])) if slot >= 0 else []
            assert rows[offsets[i] : offsets[i + 1]] == expected
        assert self.state.between(slots, 0, 10**9, "s")[1].schema.names == ["s"]

    def drop_rows(self) -> None:
        """Drop rows of all keys, or of some; values that have expired and are not removed yet may have rows as well."""
        if self.rows is None:
            return
        time = self.watermark + self.rng.randrange(-40, 10)
        if self.rng.random() < 0.5:
            dropped, expected = self.state.drop_before(time), self.model.drop_before(time, list(self.model.values))
        else:
            columns, keys = self.keys(self.rng.choice([1, 20]))
            slots = self.state.find(columns, self.watermark)
            found = {key for key, slot in zip(keys, slots.tolist(), strict=True) if slot >= 0}
            dropped, expected = (
                self.state.drop_before(time, slots),
                self.model.drop_before(time, sorted(found, key=str)),
            )
        assert dropped == expected if self.ttl is None else dropped <= expected

    def drop_single_rows(self) -> None:
        if self.rows is None:
            return
        columns, keys = self.keys(10)
        slots = self.state.find(columns, self.watermark)
        known = {key: slot for key, slot in zip(keys, slots.tolist(), strict=True) if slot >= 0}
        offsets, numbers = self.state.rows_between(np.array(list(known.values()), np.int32), -(2**63), 2**63 - 1)
        stays = [self.rng.random() < 0.6 for _ in numbers]
        for i, key in enumerate(known):
            kept = stays[offsets[i] : offsets[i + 1]]
            self.model.keep_rows(key, kept)
        self.state.drop_rows(numbers[~np.array(stays, np.bool_)])

    def find(self) -> None:
        columns, keys = self.keys(20)
        slots = self.state.find(columns, self.watermark)
        visible = self.model.visible(self.watermark)
        assert [slot >= 0 for slot in slots.tolist()] == [key in visible for key in keys]
        nothing = dict.fromkeys(self.columns.names)
        expected = [visible[key][1] if key in visible else nothing for key in keys]
        assert self.state.read(slots).to_pylist() == expected
        names = self.columns.names[2::-2]
        assert not names or self.state.read(slots, *names).schema.names == names

    def touch(self) -> None:
        columns, keys = self.keys(5)
        slots = self.state.find(columns, self.watermark)
        found = slots >= 0
        assert not self.state.touch(slots[found], self.watermark, self.watermark).any()
        for key, known in zip(keys, found.tolist(), strict=True):
            if known:
                self.model.write(key, {}, self.watermark, self.watermark)

    def delete(self) -> None:
        columns, keys = self.keys(self.rng.choice([0, 1, 30]))
        slots = self.state.find(columns, self.watermark)
        self.state.delete(slots)
        for key, slot in zip(keys, slots.tolist(), strict=True):
            if slot >= 0:
                self.model.delete(key)

    def timers(self) -> None:
        columns, keys = self.keys(self.rng.choice([1, 10]))
        slots = self.state.find(columns, self.watermark)
        dues = np.array([self.watermark + self.rng.randrange(-3, self.reach) for _ in keys], np.int64)
        domain, mine = self.rng.choice(DOMAINS), slots >= 0
        cancel = self.rng.random() < 0.3
        if cancel:
            self.state.cancel_timers(slots, dues, domain)
        else:
            self.state.set_timers(slots[mine], dues[mine], domain)
        for key, due, known in zip(keys, dues.tolist(), mine.tolist(), strict=True):
            if known and cancel:
                self.model.timers.pop((key, due, domain), None)
            elif known:
                self.model.set_timer(key, due, domain)

    def due(self) -> None:
        domain, limit = self.rng.choice(DOMAINS), self.rng.choice([1, 3, 1000])
        earliest = min([due for _, due, kind in self.model.timers if kind is domain], default=None)
        assert self.state.next_due(domain) == earliest
        dues, slots = self.state.due(self.watermark, domain, limit)
        fired = list(zip(dues.tolist(), self.key_list(self.state.keys(slots)), strict=True))
        assert fired == self.model.fire(self.watermark, domain, limit)
        visible = self.model.visible(self.watermark)
        assert self.state.visible(slots, self.watermark).tolist() == [key in visible for _, key in fired]
        if self.rng.random() < 0.5:
            self.use_fired(slots, [key for _, key in fired], domain)

    def use_fired(self, slots: np.ndarray, keys: Sequence[Key], domain: TimeDomain) -> None:
        """Cancel other timers of keys whose timers fired, write the keys, and perhaps set timers again."""
        others = [
            min([due for k, due, kind in self.model.timers if (k, kind) == (key, domain)], default=0) for key in keys
        ]
        self.state.cancel_timers(slots, np.array(others, np.int64), domain)
        for key, due in zip(keys, others, strict=True):
            self.model.timers.pop((key, due, domain), None)
        some = np.array([self.rng.random() < 0.5 for _ in keys], bool)
        chosen = [key for key, is_chosen in zip(keys, some.tolist(), strict=True) if is_chosen]
        fresh = self.state.touch(slots[some], self.watermark, self.watermark)
        assert fresh.tolist() == [self.model.write(key, {}, self.watermark, self.watermark) for key in chosen]
        self.append(slots[some], chosen)
        if self.rng.random() < 0.5:
            self.state.set_timers(slots, np.full(len(slots), self.watermark + 5), domain)
            for key in keys:
                self.model.set_timer(key, self.watermark + 5, domain)

    def expire(self) -> None:
        self.state.expire(self.watermark, self.rng.choice([1, 50, 10_000]))

    def advance(self) -> None:
        self.watermark += self.rng.choice([0, 1, 5, 40])

    def checkpoint(self) -> None:
        self.number += self.rng.randrange(1, 3)
        since = self.durable[-1] if self.durable and self.rng.random() < 0.8 else None
        readers = dict(self.state.freeze(self.number, since))
        stored = Stored(self.number, since, readers, deepcopy(self.model), self.watermark)
        if self.rng.random() < 0.8:
            self.stored[self.number] = stored  # else: aborted at once, its readers dropped
        if self.rng.random() < 0.4:
            stored.read()
        elif self.rng.random() < 0.5:
            stored.begin(self.rng.choice(["keys", "rows", "timers"]))

    def settle(self) -> None:
        """One of the checkpoints under way is written and becomes durable, or fails."""
        waiting = [n for n in self.stored if n not in self.durable]
        if waiting:
            number = self.rng.choice(waiting)
            if self.rng.random() < 0.3 or number < max(self.durable, default=0):
                del self.stored[number]
                return
            self.stored[number].read()
            self.durable.append(number)
            self.state.durable(number)
            self.check_restored(self.chain(self.stored[number]), self.stored[number])

    def restart(self) -> None:
        """Continue from the newest durable checkpoint; the state passes through one to three subtasks."""
        self.stored = {n: stored for n, stored in self.stored.items() if n in self.durable}
        if not self.durable:
            self.state, self.model = self.new(), Model(self.ttl, self.columns.names)
            return
        newest = self.stored[self.durable[-1]]
        parts = self.chain(newest)
        self.model, self.watermark = deepcopy(newest.model), newest.now
        groups = sorted(self.rng.sample(range(1, GROUPS), self.rng.choice([0, 1, 2])))
        pieces = [range(low, high) for low, high in zip([0, *groups], [*groups, GROUPS], strict=True)]
        found: dict[Key, tuple[int, dict[str, Any]]] = {}
        count = 0
        for piece in pieces:
            self.state = self.new()
            self.state.restore(parts, piece, GROUPS)
            self.state.validate()
            mine = self.contents()
            assert not found.keys() & mine.keys()
            found.update(mine)
            count += len(mine)
        assert found == self.model.contents(self.watermark)
        self.state = self.new()
        self.state.restore(parts)

    def chain(self, newest: Stored) -> list[dict[str, pa.Table]]:
        """Return the parts that a restore of a checkpoint reads."""
        chain = [newest]
        while chain[0].since is not None:
            chain.insert(0, self.stored[chain[0].since])
        return [stored.read() for stored in chain]

    def check_restored(self, parts: Sequence[Mapping[str, pa.Table]], stored: Stored) -> None:
        """Restore a checkpoint beside the running state, and compare it with the model of its time."""
        other = copy(self)
        other.state, other.model, other.watermark = self.new(), stored.model, stored.now
        other.state.restore(parts)
        other.check()
        timers = sorted((due, str(key), domain.value) for key, due, domain in stored.model.timers)
        found = []
        for domain in DOMAINS:
            dues, slots = other.state.due(2**62, domain, 10**6)
            keys = self.key_list(other.state.keys(slots))
            found += [(due, str(key), domain.value) for due, key in zip(dues.tolist(), keys, strict=True)]
        assert sorted(found) == timers

    def contents(self) -> dict[Key, tuple[int, dict[str, Any]]]:
        """What a reader of the state sees at the watermark."""
        slots = self.state.slots
        slots = slots[self.state.visible(slots, self.watermark)]
        keys = self.key_list(self.state.keys(slots))
        rows = self.state.read(slots).to_pylist()
        stamps = [0] * len(slots) if self.ttl is None else self.state.records[slots, -1].tolist()
        if self.ttl is None:
            stamps = [self.model.stamps[key] for key in keys]
        offsets, rest = np.zeros(len(slots) + 1, np.int64), []
        if self.rows is not None:
            offsets, appended = self.state.between(slots, -(10**9), 10**9)
            rest = appended.to_pylist()
        for i, (key, row) in enumerate(zip(keys, rows, strict=True)):
            row["rows"] = rest[offsets[i] : offsets[i + 1]]
            assert len(row["rows"]) <= len(self.model.rows[key])
        return {key: (stamp, row) for key, stamp, row in zip(keys, stamps, rows, strict=True)}

    def check(self) -> None:
        self.state.validate()
        assert self.contents() == self.model.contents(self.watermark)


OPERATIONS = {
    Run.write: 8,
    Run.find: 2,
    Run.touch: 2,
    Run.delete: 2,
    Run.append_more: 3,
    Run.between: 2,
    Run.drop_rows: 2,
    Run.drop_single_rows: 2,
    Run.timers: 3,
    Run.due: 2,
    Run.expire: 3,
    Run.advance: 3,
    Run.checkpoint: 4,
    Run.settle: 5,
    Run.restart: 1,
}


class CalmRun(Run):
    """Few writes, and timers far ahead, so that values often go while timers stay."""

    largest = 2
    reach = 300


def run(
    kind: str, ttl: int | None, seed: int, steps: int, shape: str = "columns and rows", runs: type[Run] = Run
) -> Run:
    made = runs(kind, ttl, seed, shape)
    for _ in range(steps):
        operation = made.rng.choices(list(OPERATIONS), list(OPERATIONS.values()))[0]
        getattr(made, operation.__name__)()
        made.check()
    return made


@pytest.mark.parametrize(("seed", "kind", "ttl"), each_once_with_seeds(2, list(KEYS), [None, 30]))
def test_random_operations_agree_with_the_model(seed: int, kind: str, ttl: int | None) -> None:
    run(kind, ttl, seed, 120)


@pytest.mark.parametrize(("seed", "shape", "ttl"), each_once_with_seeds(4, list(SHAPES), [None, 30]))
def test_values_that_go_before_their_timers_agree_with_the_model(seed: int, shape: str, ttl: int | None) -> None:
    run("float", ttl, seed, 150, shape, CalmRun)


@pytest.mark.soak
@pytest.mark.parametrize("ttl", [None, 5, 30])
@pytest.mark.parametrize("kind", KEYS)
def test_many_random_operations_agree_with_the_model(kind: str, ttl: int | None) -> None:
    for shape in SHAPES:
        for seed in range(100, 150):
            run(kind, ttl, seed, 300, shape)
            run(kind, ttl, seed, 300, shape, CalmRun)


@pytest.mark.parametrize("kind", KEYS)
def test_state_is_freed_at_once_without_a_collection(kind: str) -> None:
    """Windows drop a state with each pane: their memory must not wait for the garbage collector."""
    made = run(kind, 30, 1, 60)
    gc.disable()
    try:
        made.stored.clear()
        freed = weakref.ref(made.state._index), weakref.ref(made.state)
        made.state = made.new()
        assert [reference() for reference in freed] == [None, None]
    finally:
        gc.enable()
