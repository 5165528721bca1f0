"""The same jobs as rivals run them, on two threads, in the words a user of each would choose.

A ``target`` is the file to write the answer to; without one it is an Arrow table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.jobs.bids import auctions, categories, openings

if TYPE_CHECKING:
    import polars as pl

__all__ = ["RIVALS", "THREADS"]

THREADS = 2


def _sessions(gap: int) -> str:
    """Return the query for sessions with a gap of ``gap`` seconds: a row more than that after the last begins one."""
    seconds = f"interval '{gap} seconds'"
    by_time = "over (partition by auction order by event_time)"
    return (
        "with begins as (select auction, event_time, "
        f"coalesce(event_time - lag(event_time) {by_time} > {seconds}, true)::int first from bids), "
        f"numbered as (select auction, event_time, sum(first) {by_time} session from begins) "
        f"select auction, min(event_time) window_start, max(event_time) + {seconds} window_end, count(*) n "
        "from numbered group by auction, session"
    )


SQL: Mapping[str, str] = {
    "J1": "select count(*) n, sum(price * 0.908::double) total from bids where auction % 123 = 0",
    "J2": "select auction, count(*) n, sum(price)::bigint total, max(price) top from bids group by auction",
    "J3": "select auction, time_bucket(interval '10 seconds', event_time) window_start, count(*) n from bids "
    "group by auction, window_start",
    "J4": "select channel, count(*) n from bids group by channel",
    "J5": "with slices as (select auction, time_bucket(interval '2 seconds', event_time) slice, count(*) n from bids "
    "group by auction, slice), counts as (select auction, slice - hop * interval '2 seconds' window_start, "
    "sum(n)::bigint n from slices, range(5) hops(hop) group by auction, window_start) "
    "select window_start, max(n) most from counts group by window_start",
    "J6": "select auction, count(*) n, sum(price)::bigint total, max(price) top from bids group by auction "
    "having n < 0",
    "J7": _sessions(10),
    "J8": _sessions(1),
    "J9": "select category, count(*) n, sum(price)::bigint total from bids join categories using (auction) "
    "group by category",
    "J10": "with windowed as (select auction, time_bucket(interval '10 seconds', event_time) window_start from bids), "
    "opened as (select auction, time_bucket(interval '10 seconds', event_time) window_start, reserve from openings) "
    "select window_start, reserve, count(*) n from windowed join opened using (auction, window_start) "
    "group by window_start, reserve",
    "J11": "select category, count(*) n, sum(price)::bigint total from bids join auctions using (auction) "
    "group by category",
    "J12": "select reserve, count(*) n from bids asof join openings on bids.auction = openings.auction "
    "and bids.event_time >= openings.event_time group by reserve",
}

Rival = Callable[[str, Sequence[Path], Path | None], pa.Table | None]


def _duckdb(job: str, files: Sequence[Path], target: Path | None) -> pa.Table | None:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"set threads = {THREADS}")
        connection.read_parquet([str(file) for file in files]).create_view("bids")
        connection.register("categories", categories())
        if job in ("J10", "J12"):
            connection.read_parquet([str(file) for file in openings(files)]).create_view("openings")
        if job == "J11":
            connection.read_parquet(str(auctions(files))).create_view("auctions")
        if target is None:
            return connection.sql(SQL[job]).to_arrow_table()
        connection.sql(SQL[job]).write_parquet(str(target))
        return None


def _polars(job: str, files: Sequence[Path], target: Path | None) -> pa.Table | None:
    """With the streaming engine. The number of threads holds for the process, from the first import on."""
    os.environ["POLARS_MAX_THREADS"] = str(THREADS)
    import polars as pl

    bids = pl.scan_parquet([str(file) for file in files])
    count, price = pl.len().cast(pl.Int64).alias("n"), pl.col("price")
    window = pl.col("event_time").dt.truncate("10s").alias("window_start")
    totals = bids.group_by("auction").agg(count, price.sum().alias("total"), price.max().alias("top"))
    known = bids.join(pl.LazyFrame(categories()), on="auction")

    def opened() -> pl.LazyFrame:
        return pl.scan_parquet([str(file) for file in openings(files)])

    slices = bids.group_by("auction", pl.col("event_time").dt.truncate("2s").alias("slice")).agg(count)
    starts = pl.concat_list([pl.col("slice").dt.offset_by(f"-{2 * n}s") for n in range(5)]).alias("window_start")
    hops = slices.select("auction", "n", starts).explode("window_start").group_by("auction", "window_start")
    queries: Mapping[str, Callable[[], pl.LazyFrame]] = {
        "J1": lambda: bids.filter(pl.col("auction") % 123 == 0).select(count, (price * 0.908).sum().alias("total")),
        "J2": lambda: totals,
        "J3": lambda: bids.group_by("auction", window).agg(count),
        "J4": lambda: bids.group_by("channel").agg(count),
        "J5": lambda: hops.agg(pl.col("n").sum()).group_by("window_start").agg(pl.col("n").max().alias("most")),
        "J6": lambda: totals.filter(pl.col("n") < 0),
        "J7": lambda: _session_counts(bids, 10),
        "J8": lambda: _session_counts(bids, 1),
        "J9": lambda: known.group_by("category").agg(count, price.sum().alias("total")),
        "J10": lambda: (
            bids.select("auction", window)
            .join(opened().select("auction", window, "reserve"), on=["auction", "window_start"])
            .group_by("window_start", "reserve")
            .agg(count)
        ),
        "J11": lambda: (
            bids.join(pl.scan_parquet(auctions(files)), on="auction")
            .group_by("category")
            .agg(count, price.sum().alias("total"))
        ),
        "J12": lambda: (
            bids.select("auction", "event_time")
            .sort("event_time")
            .join_asof(opened().sort("event_time"), on="event_time", by="auction", check_sortedness=False)
            .filter(pl.col("reserve").is_not_null())
            .group_by("reserve")
            .agg(count)
        ),
    }
    if target is None:
        return queries[job]().collect(engine="streaming").to_arrow()
    queries[job]().sink_parquet(target, engine="streaming")
    return None


def _session_counts(bids: pl.LazyFrame, gap: int) -> pl.LazyFrame:
    """Return the number of rows of each session, with a gap of ``gap`` seconds, of rows sorted by auction and time."""
    import polars as pl

    auction, time = pl.col("auction"), pl.col("event_time")
    rows = bids.select("auction", "event_time").sort("auction", "event_time")
    begins = (auction != auction.shift()) | (time - time.shift() > pl.duration(seconds=gap))
    numbered = rows.with_columns(begins.fill_null(value=True).cast(pl.Int64).cum_sum().alias("session"))
    first, last = time.min().alias("window_start"), time.max().dt.offset_by(f"{gap}s").alias("window_end")
    return numbered.group_by("auction", "session").agg(first, last, pl.len().cast(pl.Int64).alias("n")).drop("session")


RIVALS: Mapping[str, Rival] = {"duckdb": _duckdb, "polars": _polars}
