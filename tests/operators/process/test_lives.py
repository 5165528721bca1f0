"""State with a time to live, against a model in plain Python that takes one call after the other.

How calls come together must not matter: timers fire together or one by one, and rows come in slices or not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from operators.process.keyed import KeyedProcessOperator
from tests.forcing import Force
from tests.operators.process.process_driver import EPOCH, US, Driver, moment
from tests.seeds import each_once_with_seeds

TTL = 10
KINDS = ("value", "items", "pairs")


class Life:
    """The content of one state of one key, and the time of its last write."""

    def __init__(self) -> None:
        self.content: Any = None
        self.stamp: int | None = None

    def read(self, now: int) -> Any:
        return self.content if self.stamp is not None and now < self.stamp + TTL else None

    def write(self, now: int, change: Callable[[Any], Any]) -> None:
        before = self.read(now)
        self.stamp = now if before is None or self.stamp is None else max(now, self.stamp)
        self.content = change(before)

    def clear(self) -> None:
        self.content = self.stamp = None


class Shadowed(flow.KeyedProcess):
    """Changes and reads state as the time of each call says, and compares it with a model. Some calls fail."""

    value = flow.value_state(pa.int64(), ttl=timedelta(microseconds=TTL))
    items = flow.list_state(pa.int64(), ttl=timedelta(microseconds=TTL))
    pairs = flow.map_state(pa.int64(), pa.int64(), ttl=timedelta(microseconds=TTL))
    wrong: list[str]

    def __init__(self) -> None:
        self.models: dict[Any, dict[str, Life]] = {}

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        (now,) = rows["at"].cast(pa.int64()).to_pylist()
        draw = random.Random(f"timers of {key} at {now}")
        for _ in range(draw.randrange(8)):
            ctx.timers.event(moment(now + draw.randrange(1, 25)))
        self.call(key, now, "row")

    def on_timer(self, key: Any, due: Any, ctx: flow.ProcessContext) -> None:
        self.call(key, (due - EPOCH) // timedelta(microseconds=1), "timer")

    def call(self, key: Any, now: int, kind: str) -> None:
        draw = random.Random(f"{kind} of {key} at {now}")
        model = self.models.setdefault(key, {name: Life() for name in KINDS})
        before = deepcopy(model)
        for _ in range(draw.randrange(4)):
            self.compare(key, now, model)
            self.change(now, model, draw)
        self.compare(key, now, model)
        if draw.random() < 0.1:
            self.models[key] = before
            raise ZeroDivisionError

    def compare(self, key: Any, now: int, model: dict[str, Life]) -> None:
        read = self.value.get(), self.items.get() or None, self.pairs.items() or None
        content = model["pairs"].read(now)
        expected = model["value"].read(now), model["items"].read(now), list(content.items()) if content else None
        if read != expected:
            self.wrong.append(f"key {key} at {now}: read {read}, expected {expected}")

    def change(self, now: int, model: dict[str, Life], draw: random.Random) -> None:
        number, what = draw.randrange(3), draw.randrange(9)
        value, items, pairs = (model[name] for name in KINDS)
        match what:
            case 0 | 1:
                value.write(now, lambda _: number)
                self.value.set(number)
            case 2:
                value.clear()
                self.value.set(None) if number else self.value.clear()
            case 3:
                items.write(now, lambda kept: [*(kept or []), number])
                self.items.append(number)
            case 4:
                items.clear()
                self.items.clear()
            case 5 | 6:
                pairs.write(now, lambda kept: {**(kept or {}), number: now})
                self.pairs.put(number, now)
            case 7:
                if pairs.content is not None:
                    pairs.content.pop(number, None)
                self.pairs.remove(number)
            case 8:
                pairs.clear()
                self.pairs.clear()


def wrong_reads(seed: int) -> list[str]:
    """Run the function over rows of some keys; each comes alone, and its time is not below that of the row before."""
    draw, wrong = random.Random(seed), list[str]()
    times = list(accumulate(draw.choice([0, 2, 30]) for _ in range(40)))  # after 30, many timers are due
    rows = pa.table({"k": [draw.randrange(3) for _ in times], "at": pa.array(times, US)})
    function = type("Function", (Shadowed,), {"wrong": wrong})
    with flow.Pipeline("lives") as p:
        timed = p.source(op.from_arrow(rows, batch_rows=1), name="rows").with_watermark("at")
        timed.key_by("k").process(function, on_error="skip", name="shadowed").sink(op.collect(), name="o")
    calls = p.run(SimulatedRunner(seed, Faults(slices=0.5, joins=0.5)), parallelism=2)
    assert calls.skipped > 0, "no call has failed"
    return wrong


@pytest.mark.parametrize(("seed", "most"), each_once_with_seeds(60, [1, 2, 1024]))
def test_state_lives_as_if_calls_came_one_by_one(seed: int, most: int, force: Force) -> None:
    fire, call = KeyedProcessOperator._fire, KeyedProcessOperator._call_timers
    if most < KeyedProcessOperator.most_timers:
        force(KeyedProcessOperator, "most_timers", most, calls=call, within=fire, times=2)
    assert wrong_reads(seed) == []


class Columns(flow.BatchProcess):
    """Writes 1, removes the value, and writes 2, all in one call, then reads it at 12."""

    value = flow.value_state(pa.int64(), ttl="10us")

    def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        ctx.emit({"k": rows["k"][0].as_py(), "x": self.value.get(slots)[0].as_py()})
        if rows["x"][0].as_py():
            self.value.set([*slots, *slots, *slots], [1, None, 2])


def test_a_value_that_is_removed_within_a_call_lives_from_the_next_write_on() -> None:
    driver = Driver(Columns)
    driver.rows(("a", 8, 1))
    driver.rows(("a", 3, 1))
    driver.rows(("a", 13, 0))
    assert driver.take() == [("a", None), ("a", 2), ("a", None)]
