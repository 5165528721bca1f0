"""People, auctions and bids of Nexmark as Arrow tables, from the ids of events.

The rules are those of the reference generator (nexmark/nexmark, commit 6b3646c), which draws from an unseeded source,
so its streams cannot be repeated. Here each value depends on the seed and on the id of its event only, so another
order of arrival changes no row. Of each 50 ids the first is a person, three are auctions, and the others are bids.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.draws import Draws, Ids

__all__ = ["EPOCH", "HOT_CHANNELS", "auctions", "bids", "events_of", "people", "side_input"]

EPOCH, AUCTIONS = 50, 3
"""Ids in a row of which one is a person and three are auctions."""
FIRST_ID = 1_000
"""Of people and of auctions."""
FIRST_CATEGORY, CATEGORIES = 10, 5
HOT = 100
"""Half of the bids are on the first of the last so many auctions; three in four are by the second of so many people."""
IN_FLIGHT, ACTIVE, LEAD = 100, 1_000, 10
"""Auctions and people that are referred to, and ids beyond the newest that may be referred to before they exist."""
HORIZON = IN_FLIGHT * EPOCH // AUCTIONS
"""Events until so many auctions have come: half of the longest time that an auction is open."""
START = np.datetime64("2026-01-01T23:59:40", "ms").astype(np.int64)
"""Event time of id 0, 20 seconds before midnight, so that short streams have bids of two days."""

HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
CHANNELS = [f"channel-{number}" for number in range(10_000)]
FIRST_NAMES = ["Anna", "Ben", "Clara", "David", "Emma", "Felix", "Hanna", "Ivan", "Julia", "Karl", "Lena"]
LAST_NAMES = ["Abel", "Brandt", "Conrad", "Dietz", "Engel", "Franke", "Graf", "Hahn", "Jung"]
STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES = ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent"]


def events_of(kind: str, ids: Ids) -> Ids:
    """Return those of ``ids`` that are events of a kind: ``people``, ``auctions`` or ``bids``.

    >>> ids = np.arange(100)
    >>> [len(events_of(kind, ids)) for kind in ("people", "auctions", "bids")]
    [2, 6, 92]
    """
    place = ids % EPOCH
    of_kind = {"people": place == 0, "auctions": (place > 0) & (place <= AUCTIONS), "bids": place > AUCTIONS}
    return ids[of_kind[kind]]


def people(ids: Ids, rate: float, seed: int = 0) -> pa.Table:
    """Return the people of the events ``ids``, in this order, of a stream with ``rate`` events a second.

    >>> people(np.array([0, 50]), 100).select(["id", "dateTime"]).to_pylist()[1]
    {'id': 1001, 'dateTime': datetime.datetime(2026, 1, 1, 23, 59, 40, 500000)}
    """
    ids = events_of("people", ids)
    draws = Draws(ids, seed)
    first, last = draws.one_of("first name", FIRST_NAMES), draws.one_of("last name", LAST_NAMES)
    user, host = draws.letters("user", 7, 7), draws.letters("host", 5, 5)
    groups = [
        pc.utf8_slice_codeunits(pa.array(draws.below(f"card {n}", 10_000) + 10_000).cast("string"), 1) for n in "1234"
    ]
    return pa.table(
        {
            "id": _last_person(ids) + FIRST_ID,
            "name": pc.binary_join_element_wise(first, last, " "),
            "emailAddress": pc.binary_join_element_wise(user, "@", host, ".com", ""),
            "creditCard": pc.binary_join_element_wise(*groups, " "),
            "city": draws.one_of("city", CITIES),
            "state": draws.one_of("state", STATES),
            "dateTime": _timestamps(_milliseconds(ids, rate)),
            "extra": draws.letters("extra of people", 80, 120),
        }
    )


def auctions(ids: Ids, rate: float, seed: int = 0) -> pa.Table:
    """Return the auctions of the events ``ids``, in this order, of a stream with ``rate`` events a second.

    >>> auctions(np.arange(100), 100)["id"].to_pylist()
    [1000, 1001, 1002, 1003, 1004, 1005]
    """
    ids = events_of("auctions", ids)
    draws = Draws(ids, seed)
    price, time = _prices(draws, "initialBid"), _milliseconds(ids, rate)
    horizon = _milliseconds(ids + HORIZON, rate) - time
    hot_seller = _last_person(ids) // HOT * HOT
    return pa.table(
        {
            "id": _last_auction(ids) + FIRST_ID,
            "itemName": draws.letters("itemName", 10, 20),
            "description": draws.letters("description", 50, 100),
            "initialBid": price,
            "reserve": price + _prices(draws, "reserve"),
            "dateTime": _timestamps(_milliseconds(ids, rate)),
            "expires": _timestamps(time + 1 + draws.below("expires", np.maximum(2 * horizon, 1))),
            "seller": np.where(draws.below("is hot", 4) > 0, hot_seller, _some_person(draws)) + FIRST_ID,
            "category": FIRST_CATEGORY + draws.below("category", CATEGORIES),
            "extra": draws.letters("extra of auctions", 200, 400),
        }
    )


def bids(ids: Ids, rate: float, seed: int = 0) -> pa.Table:
    """Return the bids of the events ``ids``, in this order, of a stream with ``rate`` events a second.

    >>> some = bids(np.arange(100_000), 10_000)
    >>> some.num_rows, pc.sum(pc.is_in(some["channel"], pa.array(HOT_CHANNELS))).as_py() // 1_000
    (92000, 46)
    """
    ids = events_of("bids", ids)
    draws = Draws(ids, seed)
    newest = _last_auction(ids)
    oldest = np.maximum(newest - IN_FLIGHT, 0)
    some_auction = oldest + draws.below("auction", newest - oldest + 1 + LEAD)
    hot_bidder = _last_person(ids) // HOT * HOT + 1
    return pa.table(
        {
            "auction": np.where(draws.below("hot auction", 2) > 0, newest // HOT * HOT, some_auction) + FIRST_ID,
            "bidder": np.where(draws.below("hot bidder", 4) > 0, hot_bidder, _some_person(draws)) + FIRST_ID,
            "price": _prices(draws, "price"),
            **_channels(draws),
            "dateTime": _timestamps(_milliseconds(ids, rate)),
            "extra": draws.letters("extra of bids", 20, 40),
        }
    )


def side_input() -> pa.Table:
    """Return the table of q13: a text for each number below 10,000.

    >>> side_input().slice(7, 1).to_pylist()
    [{'key': 7, 'value': 'value 7'}]
    """
    return pa.table({"key": np.arange(10_000), "value": [f"value {key}" for key in range(10_000)]})


def _channels(draws: Draws) -> dict[str, pa.Array]:
    """Return channels and the addresses of their pages; half of the bids are of a hot channel, which has four pages."""
    hot = draws.below("hot channel", 2) > 0
    number = np.where(hot, draws.below("channel", 4), 4 + draws.below("channel", 10_000))
    folders = [draws.letters(f"folder {n}", 5, 5) for n in (1, 2, 3)]
    pages = ["item.htm?query=1"] * 4 + [f"item.htm?query=1&channel_id={n * 7_919 % 10_007}" for n in range(10_000)]
    names = pa.array([*HOT_CHANNELS, *CHANNELS])
    places = pa.array(number)
    return {
        "channel": names.take(places),
        "url": pc.binary_join_element_wise("https://www.nexmark.example", *folders, pa.array(pages).take(places), "/"),
    }


def _last_person(ids: Ids) -> Ids:
    """Return the number of the newest person at each event."""
    return ids // EPOCH


def _last_auction(ids: Ids) -> Ids:
    """Return the number of the newest auction at each event; -1 at the first event."""
    return ids // EPOCH * AUCTIONS + np.minimum(ids % EPOCH, AUCTIONS) - 1


def _some_person(draws: Draws) -> Ids:
    """Return one of the newest people, or one who comes soon."""
    known = _last_person(draws.ids) + 1
    active = np.minimum(known, ACTIVE)
    return known - active + draws.below("person", active + LEAD)


def _prices(draws: Draws, column: str) -> Ids:
    """Return prices in cents, spread evenly over six decades."""
    return np.round(10 ** (6 * draws.unit(column)) * 100).astype(np.int64)


def _milliseconds(ids: Ids, rate: float) -> Ids:
    return START + np.floor(ids * 1e6 / rate).astype(np.int64) // 1_000


def _timestamps(milliseconds: Ids) -> pa.Array:
    return pa.array(milliseconds * 1_000, pa.timestamp("us"))
