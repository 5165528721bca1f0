"""Nexmark queries that join streams, or rows with a table: functions as those of ``queries``."""

from __future__ import annotations

import dataflow as flow
import operators as op
from dataflow import col

__all__ = ["q3", "q4", "q6", "q8", "q9", "q13", "q20", "q23"]


def q3(auctions: flow.Stream, people: flow.Stream) -> flow.Stream:
    """Find who sells something of category 10 in three states, and the auctions."""
    offers = auctions.filter(col("category") == 10)
    sellers = people.filter(col("state").is_in(["OR", "ID", "CA"]))
    pairs = offers.join(sellers, left_on="seller", right_on="id", suffix="_person", name="q3 offers")
    return pairs.select("name", "city", "state", "id")


def q4(auctions: flow.Stream, bids: flow.Stream) -> flow.Stream:
    """Compute the mean of the highest bids of the auctions of each category."""
    prices = _valid_bids(auctions, bids, "q4 bids").key_by("id", "category")
    highest = prices.agg(final=col("price").max(), emit="changes", name="q4 prices")
    totals = highest.key_by("category").agg(
        total=col("final").sum(), auctions=op.count(), emit="changes", name="q4 categories"
    )
    return totals.select("category", final=col("total") // col("auctions"))


def q6(auctions: flow.Stream, bids: flow.Stream) -> flow.Stream:
    """Compute the mean price of the last ten auctions of each seller, by the time of the winning bid."""
    winners = _winners(auctions, bids, "q6").drop("rank").key_by("seller")
    last = winners.top(10, by="dateTime_bid", emit="changes", name="q6 last auctions")
    totals = last.key_by("seller").agg(total=col("price").sum(), auctions=op.count(), emit="changes", name="q6 sellers")
    return totals.select("seller", avg_price=col("total") // col("auctions"))


def q8(people: flow.Stream, auctions: flow.Stream) -> flow.Stream:
    """Find the people who open an auction in the same 10 seconds in which they register."""
    sellers = auctions.key_by("seller").window(op.tumbling("10s")).agg(auctions=op.count(), name="q8 sellers")
    new = people.join(sellers, left_on="id", right_on="seller", window=op.tumbling("10s"), name="q8 people")
    return new.select("id", "name", "window_start")


def q9(auctions: flow.Stream, bids: flow.Stream) -> flow.Stream:
    """Find the winning bid of each auction: the highest one, of equal prices the earliest."""
    return _winners(auctions, bids, "q9").drop("rank")


def q13(bids: flow.Stream, side_input: flow.Source) -> flow.Stream:
    """Give each bid the value that a table has for its auction."""
    keyed = bids.with_columns(key=col("auction") % 10_000)
    return keyed.lookup(side_input, on="key", name="q13 values").select(
        "auction", "bidder", "price", "dateTime", "value"
    )


def q20(bids: flow.Stream, auctions: flow.Stream) -> flow.Stream:
    """Give each bid the columns of its auction, if that is of category 10."""
    offers = auctions.filter(col("category") == 10)
    return bids.join(offers, left_on="auction", right_on="id", suffix="_auction", name="q20 auctions")


def q23(bids: flow.Stream, people: flow.Stream, auctions: flow.Stream) -> flow.Stream:
    """Find all bids of people who sell something, too, with the person and each of their auctions."""
    by_person = bids.join(people, left_on="bidder", right_on="id", suffix="_person", name="q23 people")
    return by_person.join(auctions, left_on="bidder", right_on="seller", suffix="_auction", name="q23 auctions")


def _valid_bids(auctions: flow.Stream, bids: flow.Stream, name: str) -> flow.Stream:
    """Return each bid with its auction, if the auction was open."""
    pairs = auctions.join(bids, left_on="id", right_on="auction", suffix="_bid", name=name)
    return pairs.filter(col("dateTime_bid").between(col("dateTime"), col("expires")))


def _winners(auctions: flow.Stream, bids: flow.Stream, query: str) -> flow.Stream:
    """Return each auction with its winning bid."""
    valid = _valid_bids(auctions, bids, f"{query} bids").key_by("id")
    return valid.top(1, by=["price", "dateTime_bid"], descending=[True, False], emit="changes", name=f"{query} winners")
