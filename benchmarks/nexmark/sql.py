"""The same queries in SQL, computed by DuckDB over the same Parquet files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

__all__ = ["SQL", "by_duckdb"]

EUROS = "(price * 0.908::decimal(3, 3))::decimal(23, 3)"
DAY, MINUTE = (f"strftime(\"dateTime\", '{form}')" for form in ("%Y-%m-%d", "%H:%M"))
RANKS = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 and price < 1000000",
    "rank3": "price >= 1000000",
}
COUNTS = ", ".join(
    f"{what} filter ({where}) as {rank}_{name}"
    for name, what in (
        ("bids", "count(*)"),
        ("bidders", "count(distinct bidder)"),
        ("auctions", "count(distinct auction)"),
    )
    for rank, where in RANKS.items()
)
BIDS_BY_RANK = ", ".join(f"count(*) filter ({where}) as {rank}_bids" for rank, where in RANKS.items())
VALID_BIDS = 'auctions a join bids b on a.id = auction and b."dateTime" between a."dateTime" and expires'
WINNERS = f"""
        select a.*, bidder, price, channel, url, b."dateTime" as "dateTime_bid", b.extra as extra_bid
        from {VALID_BIDS}
        qualify row_number() over (partition by a.id order by price desc, b."dateTime") = 1"""

SQL: Mapping[str, str] = {
    "q0": 'select auction, bidder, price, "dateTime", extra from bids',
    "q1": f'select auction, bidder, {EUROS} as price, "dateTime", extra from bids',
    "q2": "select auction, price from bids where auction % 123 = 0",
    "q3": """
        select name, city, state, a.id from auctions a join people p on seller = p.id
        where category = 10 and state in ('OR', 'ID', 'CA')""",
    "q4": f"""
        select category, (sum(final) // count(*))::bigint as final
        from (select a.id, category, max(price) as final from {VALID_BIDS} group by a.id, category)
        group by category""",
    "q5": """
        with hops as (
            select auction, bucket - hop * interval 2 seconds as window_start
            from (select auction, time_bucket(interval 2 seconds, "dateTime") as bucket from bids), range(5) hops(hop)),
        counts as (select auction, window_start, count(*) as num from hops group by all)
        select window_start, window_start + interval 10 seconds as window_end, auction, num
        from counts qualify num = max(num) over (partition by counts.window_start)""",
    "q6": f"""
        with last as (
            select seller, price from ({WINNERS})
            qualify row_number() over (partition by seller order by "dateTime_bid" desc) <= 10)
        select seller, (sum(price) // count(*))::bigint as avg_price from last group by seller""",
    "q7": """
        select auction, price, bidder, "dateTime", extra from bids
        qualify price = max(price) over (partition by time_bucket(interval 10 seconds, "dateTime"))""",
    "q8": """
        select p.id, name, time_bucket(interval 10 seconds, p."dateTime") as window_start
        from people p semi join auctions a
        on p.id = seller
            and time_bucket(interval 10 seconds, p."dateTime") = time_bucket(interval 10 seconds, a."dateTime")""",
    "q9": WINNERS,
    "q10": f'select auction, bidder, price, "dateTime", extra, {DAY} as dt, {MINUTE} as hm from bids',
    "q11": """
        with marked as (
            select *, coalesce("dateTime" - lag("dateTime") over bidders > interval 10 seconds, true) as starts
            from bids window bidders as (partition by bidder order by "dateTime")),
        numbered as (
            select *, sum(starts::int) over (partition by bidder order by "dateTime") as number from marked)
        select bidder, min("dateTime") as window_start, max("dateTime") + interval 10 seconds as window_end,
            count(*) as bid_count
        from numbered group by bidder, number""",
    "q12": "select bidder, count(*) as bid_count from bids group by bidder",
    "q13": """
        select auction, bidder, price, "dateTime", value
        from bids join side_input on auction % 10000 = key""",
    "q14": f"""
        select auction, bidder, {EUROS} as price,
            case when hour("dateTime") between 8 and 18 then 'dayTime'
                when hour("dateTime") <= 6 or hour("dateTime") >= 20 then 'nightTime'
                else 'otherTime' end as "bidTimeType",
            "dateTime", extra, length(regexp_replace(extra, '[^c]', '', 'g')) as c_counts
        from bids where {EUROS} > 1000000 and {EUROS} < 50000000""",
    "q15": f"select {DAY} as day, {COUNTS} from bids group by day",
    "q16": f"""
        select channel, {DAY} as day, max({MINUTE}) as minute, {COUNTS}
        from bids group by channel, day""",
    "q17": f"""
        select auction, {DAY} as day, {BIDS_BY_RANK}, min(price) as min_price, max(price) as max_price,
            sum(price)::bigint as sum_price, trunc(sum(price) / count(*))::bigint as avg_price
        from bids group by auction, day""",
    "q18": """
        from bids qualify row_number() over (partition by bidder, auction order by "dateTime" desc) = 1""",
    "q19": """
        select *, row_number() over (partition by auction order by price desc, "dateTime") as rank from bids
        qualify rank <= 10""",
    "q20": """
        select b.*, "itemName", description, "initialBid", reserve, a."dateTime" as "dateTime_auction", expires, seller,
            category, a.extra as extra_auction
        from bids b join auctions a on auction = a.id where category = 10""",
    "q21": """
        select auction, bidder, price, channel,
            case lower(channel) when 'apple' then '0' when 'google' then '1' when 'facebook' then '2'
                when 'baidu' then '3'
                else nullif(regexp_extract(url, '[&?]channel_id=([^&]*)', 1), '') end as channel_id
        from bids where channel_id is not null""",
    "q22": """
        select auction, bidder, price, channel, split_part(url, '/', 4) as dir1, split_part(url, '/', 5) as dir2,
            split_part(url, '/', 6) as dir3
        from bids""",
    "q23": """
        select bidder, auction, price, channel, url, b."dateTime", b.extra, name, "emailAddress", "creditCard", city,
            state, p."dateTime" as "dateTime_person", p.extra as extra_person, a.id, "itemName", description,
            "initialBid", reserve, a."dateTime" as "dateTime_auction", expires, category, a.extra as extra_auction
        from bids b join people p on bidder = p.id join auctions a on seller = bidder""",
}
"""In q12 windows go by the clock, so only the count of each bidder over all windows is defined."""


def by_duckdb(query: str, files: Mapping[str, Sequence[Path]], threads: int = 2) -> pa.Table:
    """Return DuckDB's answer to a query over the files of each kind of events."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"set threads = {threads}")
        for kind, paths in files.items():
            connection.read_parquet([str(path) for path in paths]).create_view(kind)
        return connection.sql(SQL[query]).to_arrow_table()
