"""Process functions that compute what the library computes: sums of windows, and counts with a time to live."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import dataflow as flow

LENGTH = timedelta(microseconds=10)
EPOCH = datetime(1970, 1, 1)
US = pa.timestamp("us")
ROW = pa.struct([("at", US), ("x", pa.int64())])
SUMS = pa.schema({"k": pa.int64(), "window_end": US, "total": pa.int64()})


def end_of(at: datetime) -> datetime:
    """The end of the window of a row."""
    return at + LENGTH - (at - EPOCH) % LENGTH


class WithMap(flow.KeyedProcess):
    """A sum for each window, in a mapping."""

    sums = flow.map_state(US, pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for row in rows.to_pylist():
            end = end_of(row["at"])
            self.sums.put(end, self.sums.get(end, 0) + row["x"])
            ctx.timers.event(end)

    def on_timer(self, key: Any, due: datetime, ctx: flow.ProcessContext) -> None:
        ctx.emit({"k": key, "window_end": due, "total": self.sums.get(due)})
        self.sums.remove(due)


class WithList(flow.KeyedProcess):
    """The rows, in a list."""

    rows = flow.list_state(ROW)

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        self.rows.extend(rows.select(["at", "x"]).to_pylist())
        for at in rows["at"].to_pylist():
            ctx.timers.event(end_of(at))

    def on_timer(self, key: Any, due: datetime, ctx: flow.ProcessContext) -> None:
        rows = self.rows.get()
        mine = [row for row in rows if row["at"] < due]
        ctx.emit({"k": key, "window_end": due, "total": sum(row["x"] for row in mine)})
        self.rows.clear()
        self.rows.extend([row for row in rows if row["at"] >= due])


class WithValue(flow.KeyedProcess):
    """The rows, in a nested value."""

    rows = flow.value_state(pa.list_(ROW))
    count = flow.value_state(pa.int32())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        self.rows.set(self.rows.get([]) + rows.select(["at", "x"]).to_pylist())
        self.count.set(self.count.get(0) + rows.num_rows)
        for at in rows["at"].to_pylist():
            ctx.timers.event(end_of(at))

    def on_timer(self, key: Any, due: datetime, ctx: flow.ProcessContext) -> None:
        rows = self.rows.get()
        assert len(rows) == self.count.get(), f"{len(rows)} rows, counted {self.count.get()}"
        mine = [row for row in rows if row["at"] < due]
        left = rows[len(mine) :] if rows[: len(mine)] == mine else [row for row in rows if row["at"] >= due]
        ctx.emit({"k": key, "window_end": due, "total": sum(row["x"] for row in mine)})
        self.rows.set(left or None)
        self.count.set(len(left))


class WithColumns(flow.BatchProcess):
    """A sum for each window, in a mapping that is read and written as columns."""

    sums = flow.map_state(US, pa.int64())

    def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        ends = pc.add(pc.floor_temporal(rows["at"], 10, "microsecond"), pa.scalar(LENGTH, pa.duration("us")))
        table = pa.table({"slot": slots, "end": ends, "x": rows["x"]})
        summed = table.group_by(["slot", "end"], use_threads=False).aggregate([("x", "sum")]).combine_chunks()
        some = summed["slot"].to_numpy()
        before = self.sums.get(some, summed["end"])
        self.sums.put(some, summed["end"], pc.add(summed["x_sum"].combine_chunks(), pc.fill_null(before, 0)))
        ctx.timers.event(some, summed["end"])

    def on_timer(self, slots: Any, dues: pa.Array, ctx: flow.ProcessContext) -> None:
        totals = self.sums.get(slots, dues)
        keys = ctx.keys(slots)["k"]
        ctx.emit(pa.RecordBatch.from_arrays([keys, dues, totals], schema=SUMS))
        self.sums.remove(slots, dues)


class WithListColumns(flow.BatchProcess):
    """The rows, in lists that are read and written as columns."""

    rows = flow.list_state(ROW)
    ends = flow.value_state(US)

    def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        self.rows.append(slots, rows.select(["at", "x"]).to_struct_array())
        ends = pa.array([end_of(at) for at in rows["at"].to_pylist()], US)
        self.ends.set(slots, ends)
        ctx.timers.event(slots, ends)

    def on_timer(self, slots: Any, dues: pa.Array, ctx: flow.ProcessContext) -> None:
        left: dict[int, list[Any]] = dict(zip(slots.tolist(), self.rows.get(slots).to_pylist(), strict=True))
        for slot, key, due in zip(slots.tolist(), ctx.keys(slots)["k"].to_pylist(), dues.to_pylist(), strict=True):
            mine = [row["x"] for row in left[slot] if row["at"] < due]
            ctx.emit({"k": key, "window_end": due, "total": sum(mine)})
            left[slot] = [row for row in left[slot] if row["at"] >= due]
        self.rows.clear(slots)
        again = [(slot, row) for slot, rows in left.items() for row in rows]
        self.rows.append(np.array([slot for slot, _ in again], np.int64), [row for _, row in again])
        done = np.array([slot for slot, rows in left.items() if not rows], np.int64)
        self.ends.clear(done)


WINDOWS = [WithMap, WithList, WithValue, WithColumns, WithListColumns]


class WindowSums(flow.KeyedProcess):
    """The sum of ``n`` for the keys and each window of some seconds."""

    sums = flow.map_state(US, pa.int64())

    def __init__(self, keys: tuple[str, ...], seconds: int) -> None:
        self.names, self.length = keys, timedelta(seconds=seconds)

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for at, n in zip(rows["at"].to_pylist(), rows["n"].to_pylist(), strict=True):
            end = at + self.length - (at - EPOCH) % self.length
            self.sums.put(end, self.sums.get(end, 0) + n)
            ctx.timers.event(end)

    def on_timer(self, key: Any, due: datetime, ctx: flow.ProcessContext) -> None:
        values = key if len(self.names) > 1 else (key,)
        ctx.emit({**dict(zip(self.names, values, strict=True)), "end": due, "total_n": self.sums.get(due)})
        self.sums.remove(due)


class WindowSumsInColumns(flow.BatchProcess):
    """The same, by columns."""

    sums = flow.map_state(US, pa.int64())

    def __init__(self, keys: tuple[str, ...], seconds: int) -> None:
        self.names, self.length = keys, seconds * 1_000_000

    def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        times = rows["at"].cast(US).cast(pa.int64()).to_numpy()
        ends = pa.array(times - times % self.length + self.length).cast(US)
        table = pa.table({"slot": slots, "end": ends, "n": rows["n"]})
        summed = table.group_by(["slot", "end"], use_threads=False).aggregate([("n", "sum")]).combine_chunks()
        some, ends = summed["slot"].to_numpy(), summed["end"]
        before = pc.fill_null(self.sums.get(some, ends), 0)
        self.sums.put(some, ends, pc.add(summed["n_sum"].combine_chunks(), before))
        ctx.timers.event(some, ends)

    def on_timer(self, slots: Any, dues: pa.Array, ctx: flow.ProcessContext) -> None:
        columns = {**ctx.keys(slots).to_pydict(), "end": dues.to_pylist(), "total_n": self.sums.get(slots, dues)}
        for row in pa.table(columns).to_pylist():
            ctx.emit(row)
        self.sums.remove(slots, dues)


COUNTS = pa.schema({"k": pa.int64(), "n": pa.int64()})


class CountsInValue(flow.KeyedProcess):
    """Counts rows, in a value that expires."""

    n = flow.value_state(pa.int64(), ttl="10us")
    ever = flow.value_state(pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for _ in range(rows.num_rows):
            self.n.set(self.n.get(0) + 1)
            self.ever.set(self.ever.get(0) + 1)
            ctx.emit({"k": key, "n": self.n.get()})


class CountsInList(flow.KeyedProcess):
    """Counts rows, in a list that expires."""

    n = flow.list_state(pa.bool_(), ttl="10us")

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for _ in range(rows.num_rows):
            self.n.append(True)
            ctx.emit({"k": key, "n": len(self.n.get())})


class CountsInMap(flow.KeyedProcess):
    """Counts rows, in a mapping that expires."""

    n = flow.map_state(pa.string(), pa.int64(), ttl="10us")

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for _ in range(rows.num_rows):
            n = sum(value for _, value in self.n.items()) + 1
            self.n.put("odd" if n % 2 else "even", n // 2 + n % 2)
            ctx.emit({"k": key, "n": n})


class CountsInColumns(flow.BatchProcess):
    """Counts rows of batches in which no key comes twice, in a column that expires."""

    n = flow.value_state(pa.int64(), ttl="10us")

    def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        assert len(set(slots.tolist())) == len(slots), "a key comes twice"
        n = pc.add(pc.fill_null(self.n.get(slots), 0), 1)
        self.n.set(slots, n)
        ctx.emit(pa.RecordBatch.from_arrays([rows["k"], n], schema=COUNTS))


COUNTERS = [CountsInValue, CountsInList, CountsInMap, CountsInColumns]

SEEN = pa.schema({"n": pa.int64(), "items": pa.string()})


class Rules(flow.KeyedProcess):
    """Emits its copy of a shared mapping after each row of the broadcast stream; counts the rows of keys."""

    rules = flow.shared_map(pa.string(), pa.int64())
    seen = flow.value_state(pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for _ in range(rows.num_rows):
            self.seen.set(self.seen.get(0) + 1)
            ctx.emit({"n": self.seen.get(), "items": repr(key)}, tag="counts")

    def process_broadcast(self, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for row in rows.to_pylist():
            n = self.rules.get("n", 0) + 1
            self.rules.put("n", n)
            self.rules.remove(row["name"])
            self.rules.put(row["name"], row["limit"])
            ctx.emit({"n": n, "items": repr(self.rules.items())})


class OnTheClock(flow.KeyedProcess):
    """Emits the rows of a key once the clock has moved, and how often it was called."""

    rows = flow.list_state(pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        self.rows.extend(rows["x"].to_pylist())
        ctx.timers.clock(EPOCH)

    def on_timer(self, key: Any, due: datetime, ctx: flow.ProcessContext) -> None:
        assert due == EPOCH
        ctx.emit({"n": len(self.rows.get()), "items": repr(sorted(self.rows.get()))})
        self.rows.clear()
