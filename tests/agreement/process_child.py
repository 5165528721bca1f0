"""A process to be killed: it runs process functions over files of orders, with checkpoints, and writes Parquet files.

    python process_child.py input/ work/ aligned --parallelism 2

Orders are grouped into windows by functions of both kinds. A broadcast stream of rules comes more slowly than them, so
that most checkpoints fall between two of its rows.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import dataflow as flow
import operators as op
from dataflow import col
from tests.reality.child import Slow, arguments, run

US = pa.timestamp("us")
LENGTH = 2_000
"""Microseconds of a window; the time of an order is its number, in microseconds."""
SUMS = pa.schema({"key": pa.int64(), "end": US, "n": pa.int64(), "total": pa.int64(), "so_far": pa.int64()})
SEEN = pa.schema({"n": pa.int64(), "limits": pa.string()})
RULES = 300
EPOCH = datetime(1970, 1, 1)


class ByKey(flow.KeyedProcess):
    """Emits count and sum of each key and window, with the number of the key's orders so far; copies of the rules."""

    sums = flow.map_state(US, pa.int64())
    amounts = flow.list_state(pa.struct([("end", US), ("amount", pa.int64())]))
    so_far = flow.value_state(pa.int64())
    rules = flow.shared_map(pa.string(), pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        self.so_far.set(self.so_far.get(0) + rows.num_rows)
        for number, amount in zip(rows["id"].to_pylist(), rows["amount"].to_pylist(), strict=True):
            end = EPOCH + timedelta(microseconds=number - number % LENGTH + LENGTH)
            self.sums.put(end, self.sums.get(end, 0) + amount)
            self.amounts.append({"end": end, "amount": amount})
            ctx.timers.event(end)

    def on_timer(self, key: Any, due: datetime, ctx: flow.ProcessContext) -> None:
        kept = self.amounts.get()
        mine = [row["amount"] for row in kept if row["end"] == due]
        assert sum(mine) == self.sums.get(due), f"{mine} is not {self.sums.get(due)}"
        self.amounts.clear()
        self.amounts.extend([row for row in kept if row["end"] != due])
        self.sums.remove(due)
        ctx.emit({"key": key, "end": due, "n": len(mine), "total": sum(mine), "so_far": self.so_far.get()})

    def process_broadcast(self, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for row in rows.to_pylist():
            self.rules.put(row["name"], row["limit"])
            self.rules.put("n", self.rules.get("n", 0) + 1)
            ctx.emit({"n": self.rules.get("n"), "limits": repr(self.rules.items())}, tag="rules")


class ByColumn(flow.BatchProcess):
    """Emits the same as `ByKey`, by columns."""

    sums = flow.map_state(US, pa.struct([("n", pa.int64()), ("total", pa.int64())]))
    so_far = flow.value_state(pa.int64())

    def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        number = rows["id"].to_numpy()
        ends = pa.array(number - number % LENGTH + LENGTH, pa.int64()).cast(US)
        table = pa.table({"slot": slots, "end": ends, "amount": rows["amount"]})
        found = table.group_by(["slot", "end"]).aggregate([([], "count_all"), ("amount", "sum")]).combine_chunks()
        some = found["slot"].to_numpy()
        ends = found["end"].combine_chunks()
        before = self.sums.get(some, ends)
        sums = [
            pc.add(pc.fill_null(pc.struct_field(before, name), 0), found[column].combine_chunks())
            for name, column in (("n", "count_all"), ("total", "amount_sum"))
        ]
        self.sums.put(some, ends, pa.StructArray.from_arrays(sums, ["n", "total"]))
        ctx.timers.event(some, ends)
        rows_of = table.group_by("slot").aggregate([([], "count_all")]).combine_chunks()
        some = rows_of["slot"].to_numpy()
        counted = rows_of["count_all"].combine_chunks()
        self.so_far.set(some, pc.add(pc.fill_null(self.so_far.get(some), 0), counted))

    def on_timer(self, slots: Any, dues: pa.Array, ctx: flow.ProcessContext) -> None:
        found = self.sums.get(slots, dues)
        self.sums.remove(slots, dues)
        sums = [pc.struct_field(found, name) for name in ("n", "total")]
        columns = [ctx.keys(slots)["key"], dues, *sums, self.so_far.get(slots)]
        ctx.emit(pa.RecordBatch.from_arrays(columns, schema=SUMS))


def pipeline(args: Any, source: Any) -> flow.Pipeline:
    with flow.Pipeline("functions") as p:
        rules = pa.table({"name": [f"rule {n % 7}" for n in range(RULES)], "limit": range(RULES)})
        paced = op.paced(op.from_arrow(rules, batch_rows=3), args.rules)
        broadcast = p.source(paced, name="rules", parallelism=1)
        orders = p.source(source, name="orders").with_columns(at=col("id").cast(US)).with_watermark("at")
        orders = orders.rebalance().apply(partial(Slow, cost=args.cost * args.parallelism), name="slow orders")
        keyed = orders.key_by("key")
        by_key = keyed.process(ByKey, schema=SUMS, sides={"rules": SEEN}, broadcast=broadcast, name="by key")
        by_key.sink(op.write_parquet(args.work / "by-key"), name="sums by key")
        by_key.side("rules").sink(op.write_parquet(args.work / "seen"), name="seen")
        by_column = keyed.process(ByColumn, schema=SUMS, name="by column")
        by_column.sink(op.write_parquet(args.work / "by-column"), name="sums by column")
    return p


def main() -> None:
    parser = arguments()
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--rate", type=float, default=60_000)
    parser.add_argument("--rules", type=float, default=60)
    parser.add_argument("--cost", type=float, default=20)
    parser.add_argument("--batch", type=int, default=250)
    args = parser.parse_args()
    orders = op.read_parquet(Path(args.input), batch_rows=args.batch)
    source = op.paced(orders, [args.rate * share for share in (0.3, 0.2, 0.1, 0.15)])
    settings = flow.Checkpointing(
        args.work / "ckpt",
        every="60ms",
        min_pause="40ms",
        mode=args.mode,
        alignment_timeout="30ms" if args.mode == "aligned-timeout" else None,
        duplicates="rows",
    )
    run(lambda: pipeline(args, source), args.work, settings, args.parallelism, ("by key", "by column", "slow orders"))


if __name__ == "__main__":
    main()
