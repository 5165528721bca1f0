"""Nexmark queries, a function each: it takes streams of events with event time and returns the stream of the answer.

The meaning of the queries is that of nexmark/nexmark, commit 6b3646c. A query that aggregates without windows emits
signed changes, of which the net is the answer. Queries that join are in ``join_queries``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

import pyarrow as pa

import dataflow as flow
import operators as op
from benchmarks.nexmark.join_queries import q3, q4, q6, q8, q9, q13, q20, q23
from dataflow import col, lit, when
from dataflow.expressions import Aggregation, Expr

__all__ = ["PARTITIONS", "QUERIES"]

RATE = lit(Decimal("0.908"))
"""Euros of a dollar."""
DAY, MINUTE = col("dateTime").dt.strftime("%Y-%m-%d"), col("dateTime").dt.strftime("%H:%M")
PARTITIONS: Mapping[str, Sequence[str]] = {"q10": ("dt", "hm")}
"""Columns by which the answer of a query is divided into folders of files."""
RANKS: Mapping[str, Expr] = {
    "rank1": col("price") < 10_000,
    "rank2": (col("price") >= 10_000) & (col("price") < 1_000_000),
    "rank3": col("price") >= 1_000_000,
}


def q0(bids: flow.Stream) -> flow.Stream:
    """Pass all bids through."""
    return bids.select("auction", "bidder", "price", "dateTime", "extra")


def q1(bids: flow.Stream) -> flow.Stream:
    """Convert prices from dollars to euros."""
    euros = (col("price") * RATE).cast(pa.decimal128(23, 3))
    return bids.select("auction", "bidder", euros.alias("price"), "dateTime", "extra")


def q2(bids: flow.Stream) -> flow.Stream:
    """Select the bids on some auctions."""
    return bids.filter(col("auction") % 123 == 0).select("auction", "price")


def q5(bids: flow.Stream) -> flow.Stream:
    """Find the auctions with the most bids of the last 10 seconds, every 2 seconds."""
    hopping = bids.key_by("auction").window(op.hopping("10s", every="2s"))
    counts = hopping.agg(num=op.count(), name="q5 counts")
    hottest = counts.window(op.same_window()).top(1, by="num", ties="all", name="q5 hottest")
    return hottest.drop("rank")


def q7(bids: flow.Stream) -> flow.Stream:
    """Find the bids with the highest price of each 10 seconds."""
    highest = bids.window(op.tumbling("10s")).top(1, by="price", ties="all", name="q7 highest")
    return highest.select("auction", "price", "bidder", "dateTime", "extra")


def q10(bids: flow.Stream) -> flow.Stream:
    """Log all bids with their day and minute, for files in a folder of each minute (see ``PARTITIONS``)."""
    return bids.select("auction", "bidder", "price", "dateTime", "extra", dt=DAY, hm=MINUTE)


def q11(bids: flow.Stream) -> flow.Stream:
    """Count the bids of each bidder in sessions, which end after 10 seconds without a bid."""
    sessions = bids.key_by("bidder").window(op.session("10s"))
    return sessions.agg(bid_count=op.count(), name="q11 sessions")


def q12(bids: flow.Stream) -> flow.Stream:
    """Count the bids of each bidder in windows of 10 seconds by the clock."""
    by_clock = bids.with_processing_time("at").key_by("bidder").window(op.tumbling("10s"))
    return by_clock.agg(bid_count=op.count(), name="q12 windows")


def q14(bids: flow.Stream) -> flow.Stream:
    """Select bids by price in euros, with the time of day, and the number of the letter c in the text."""
    euros = (col("price") * RATE).cast(pa.decimal128(23, 3))
    hour = col("dateTime").dt.hour()
    return bids.filter((euros > 1_000_000) & (euros < 50_000_000)).select(
        "auction",
        "bidder",
        euros.alias("price"),
        when(hour.between(8, 18))
        .then("dayTime")
        .when((hour <= 6) | (hour >= 20))
        .then("nightTime")
        .otherwise("otherTime")
        .alias("bidTimeType"),
        "dateTime",
        "extra",
        col("extra").str.count("c").alias("c_counts"),
    )


def q15(bids: flow.Stream) -> flow.Stream:
    """Count the bids, bidders and auctions of each day, by the rank of the price."""
    days = bids.with_columns(day=DAY).key_by("day")
    return days.agg(_statistics(), emit="changes", name="q15 statistics")


def q16(bids: flow.Stream) -> flow.Stream:
    """Count the bids, bidders and auctions of each channel and day by the rank of the price, with the latest minute."""
    days = bids.with_columns(day=DAY, minute=MINUTE).key_by("channel", "day")
    return days.agg({"minute": col("minute").max(), **_statistics()}, emit="changes", name="q16 statistics")


def q17(bids: flow.Stream) -> flow.Stream:
    """Count the bids of each auction and day by the rank of the price, with least, greatest, mean and total price."""
    days = bids.with_columns(day=DAY).key_by("auction", "day")
    counts = {f"{rank}_bids": op.count(where=where) for rank, where in RANKS.items()}
    price = col("price")
    prices = {"min_price": price.min(), "max_price": price.max(), "sum_price": price.sum()}
    statistics = days.agg({"total_bids": op.count(), **counts, **prices}, emit="changes", name="q17 statistics")
    return statistics.with_columns((col("sum_price") // col("total_bids")).alias("avg_price"))


def q18(bids: flow.Stream) -> flow.Stream:
    """Keep the last bid of each bidder on each auction."""
    return bids.unique("bidder", "auction", keep="last", emit="changes", name="q18 last bids")


def q19(bids: flow.Stream) -> flow.Stream:
    """Rank the ten highest bids on each auction, of equal prices the earliest first."""
    return bids.key_by("auction").top(
        10, by=["price", "dateTime"], descending=[True, False], emit="changes", name="q19 highest bids"
    )


def q21(bids: flow.Stream) -> flow.Stream:
    """Find the id of each channel: a fixed one, or the one in the address of the page."""
    channel = col("channel").str.lower()
    in_url = col("url").str.extract("[&?]channel_id=([^&]*)")
    fixed = when(channel == "apple").then("0").when(channel == "google").then("1")
    channel_id = fixed.when(channel == "facebook").then("2").when(channel == "baidu").then("3").otherwise(in_url)
    known = bids.with_columns(channel_id.alias("channel_id")).filter(col("channel_id").is_not_null())
    return known.select("auction", "bidder", "price", "channel", "channel_id")


def q22(bids: flow.Stream) -> flow.Stream:
    """Take the folders out of the address of each bid's page."""
    folders = "//[^/]*/([^/]*)/([^/]*)/([^/]*)"
    parts = [col("url").str.extract(folders, number).alias(f"dir{number}") for number in (1, 2, 3)]
    return bids.select("auction", "bidder", "price", "channel", *parts)


def _statistics() -> dict[str, Aggregation]:
    """Return counts of bids, and of different bidders and auctions: of all bids, and of those of each rank."""
    ranks = {"total": None, **RANKS}
    return {
        **{f"{rank}_bids": op.count(where=where) for rank, where in ranks.items()},
        **{f"{rank}_bidders": col("bidder").count_distinct(where=where) for rank, where in ranks.items()},
        **{f"{rank}_auctions": col("auction").count_distinct(where=where) for rank, where in ranks.items()},
    }


QUERIES: Mapping[str, Callable[..., flow.Stream]] = {
    query.__name__: query
    for query in (
        q0,
        q1,
        q2,
        q3,
        q4,
        q5,
        q6,
        q7,
        q8,
        q9,
        q10,
        q11,
        q12,
        q13,
        q14,
        q15,
        q16,
        q17,
        q18,
        q19,
        q20,
        q21,
        q22,
        q23,
    )
}
