"""The jobs as each engine runs them. What an engine answers is taken from its output when the time is over."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["JOBS", "Answer", "Engine", "Order"]

Answer = Callable[[], pa.Table]


@dataclass(frozen=True)
class Order:
    """What an engine is to do: ``files`` to read, rows a micro-batch, and an empty directory to work in."""

    job: str
    files: list[str]
    rows_per_trigger: int
    place: Path

    @property
    def out(self) -> Path:
        """Where output goes."""
        return self.place / "out"

    @property
    def checkpoint(self) -> Path:
        """Where a job keeps its state and its progress."""
        return self.place / "checkpoint"


Engine = Callable[[Any, Order], Answer]


# --- J2, J3: those of benchmarks.jobs


def _our_totals(session: Any, order: Order) -> Answer:
    return _ours(session, order, batch_rows=order.rows_per_trigger // 2)


def _ours(session: Any, order: Order, **options: int) -> Answer:
    import dataflow as flow
    import operators as op
    from benchmarks.jobs.ours import JOBS as OURS

    with flow.Pipeline(order.job) as p:
        rows = OURS[order.job].stream(p, [Path(file) for file in order.files], **options)
        rows.sink(op.write_parquet(order.out), name="answer")
    _run(p, flow.SparkRunner(session, rows_per_trigger=order.rows_per_trigger), order)
    return lambda: op.read_committed(order.out)


def _run(p: Any, runner: Any, order: Order) -> None:
    import dataflow as flow

    p.run(runner, parallelism=2, checkpoint=flow.Checkpointing(order.checkpoint))


def _totals(session: Any, order: Order) -> Answer:
    """Spark's own streaming aggregation, its state in RocksDB."""
    from pyspark.sql import functions as f

    bids = _read(session, order)
    frame = bids.groupBy("auction").agg(
        f.count("*").alias("n"), f.sum("price").alias("total"), f.max("price").alias("top")
    )
    found: dict[Any, Any] = {}

    def keep(batch: Any, number: int) -> None:
        for row in zip(*batch.toArrow().to_pydict().values(), strict=True):
            found[row[0]] = row

    _finish(frame.writeStream.outputMode("update").foreachBatch(keep), order)
    columns = list(zip(*found.values(), strict=True))
    return lambda: pa.table(dict(zip(("auction", "n", "total", "top"), map(pa.array, columns), strict=True)))


def _windows(session: Any, order: Order) -> Answer:
    """Windows with Spark's own watermark."""
    from pyspark.sql import functions as f

    bids = _read(session, order)
    timed = bids.withColumn("event_time", f.col("event_time").cast("timestamp"))
    timed = timed.withWatermark("event_time", "3 seconds")
    frame = timed.groupBy(f.window("event_time", "10 seconds"), "auction").count()
    rows = frame.select("auction", f.col("window.start").alias("window_start"), f.col("count").alias("n"))
    _finish(_parquet(rows, order), order)
    return lambda: pa.table(session.read.parquet(str(order.out)).toArrow())


# --- S1: without state


def _stateless(order: Order) -> Any:
    import dataflow as flow
    import operators as op
    from dataflow import col

    with flow.Pipeline(order.job) as p:
        bids = p.source(op.read_parquet(order.files, batch_rows=order.rows_per_trigger // 2), name="bids")
        kept = bids.filter(col("price") > 10_000)
        kept.select("auction", "price", (col("price") * 0.908).alias("euros")).sink(
            op.write_parquet(order.out), name="answer"
        )
    return p


def _on_our_source(session: Any, order: Order) -> Answer:
    import dataflow as flow

    _run(_stateless(order), flow.SparkRunner(session, rows_per_trigger=order.rows_per_trigger), order)
    return lambda: _checksum(order)


def _on_sparks_reader(session: Any, order: Order) -> Answer:
    import dataflow as flow

    _run(_stateless(order), flow.SparkRunner(session, sources={"bids": _read(session, order)}), order)
    return lambda: _checksum(order)


def _plain(session: Any, order: Order) -> Answer:
    """``mapInArrow`` on Spark's own reader, which reads the columns that are used, and Spark's own Parquet sink."""

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = batch.filter(pc.greater(batch["price"], 10_000))
            euros = pc.multiply(kept["price"], 0.908)
            yield pa.record_batch({"auction": kept["auction"], "price": kept["price"], "euros": euros})

    read = _read(session, order).select("auction", "price")
    rows = read.mapInArrow(convert, "auction bigint, price bigint, euros double")
    _finish(_parquet(rows, order), order)
    return lambda: _checksum(order)


def _checksum(order: Order) -> pa.Table:
    """Equal for equal rows, in whatever order and in however many files."""
    with duckdb.connect() as connection:
        return connection.sql(
            "select count(*) as n, sum(auction) as auctions, sum(price) as prices, "
            f"sum(hash(auction, price, euros)::hugeint)::varchar as euros from '{order.out}/*.parquet'"
        ).to_arrow_table()


# --- K1: many keys. Both write the keys that each micro-batch touched


def _many_keys(session: Any, order: Order) -> Answer:
    import dataflow as flow
    import operators as op
    from dataflow import col

    with flow.Pipeline(order.job) as p:
        rows = p.source(op.read_parquet(order.files, batch_rows=order.rows_per_trigger // 2), name="rows")
        totals = rows.key_by("key").agg(
            op.count().alias("n"), col("value").sum().alias("total"), emit="updates", name="totals"
        )
        totals.sink(op.write_parquet(order.out), name="answer")
    _run(p, flow.SparkRunner(session, rows_per_trigger=order.rows_per_trigger), order)
    return lambda: _last(f"{order.out}/*.parquet")


def _many_keys_in_spark(session: Any, order: Order) -> Answer:
    from pyspark.sql import functions as f

    totals = _read(session, order).groupBy("key").agg(f.count("*").alias("n"), f.sum("value").alias("total"))

    def write(batch: Any, number: int) -> None:
        batch.write.parquet(str(order.out / str(number)))

    _finish(totals.writeStream.outputMode("update").foreachBatch(write), order)
    return lambda: _last(f"{order.out}/*/*.parquet")


def _last(files: str) -> pa.Table:
    """The last row of each key: counts and sums only grow."""
    with duckdb.connect() as connection:
        return connection.sql(
            f"select key, max(n) as n, max(total) as total from '{files}' group by key"
        ).to_arrow_table()


# --- what Spark's own have in common


def _read(session: Any, order: Order) -> Any:
    """A file a micro-batch, as Spark reads them."""
    folder = order.place / "in"
    folder.mkdir(parents=True)
    for number, file in enumerate(order.files):
        os.symlink(os.path.abspath(file), folder / f"{number:05d}.parquet")  # may be another file system
    schema = session.read.parquet(order.files[0]).schema
    return session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def _parquet(rows: Any, order: Order) -> Any:
    return rows.writeStream.outputMode("append").format("parquet").option("path", str(order.out))


def _finish(writer: Any, order: Order) -> None:
    writer = writer.option("checkpointLocation", str(order.checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


JOBS: Mapping[str, Mapping[str, Engine]] = {
    "J2": {"ours": _our_totals, "native": _totals},
    "J3": {"ours": _ours, "native": _windows},
    "S1": {"ours": _on_our_source, "on Spark's reader": _on_sparks_reader, "native": _plain},
    "K1": {"ours": _many_keys, "native": _many_keys_in_spark},
}
"""Engines by job; ``native`` is what ours are compared with."""
