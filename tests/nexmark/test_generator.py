"""The generator of Nexmark events keeps to the published rules, and data depends on ids and the seed only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.nexmark.events import KINDS, Events
from benchmarks.nexmark.generator import HOT_CHANNELS, START

MANY = Events(200_000)
BIDS, AUCTIONS, PEOPLE = (MANY.table(kind) for kind in ("bids", "auctions", "people"))


def share(hits: pa.ChunkedArray) -> float:
    return float(pc.mean(hits.cast("int64")).as_py())


def numbers(table: pa.Table, column: str) -> np.ndarray:
    return np.asarray(table[column].to_numpy())


def newest(table: pa.Table, per_second: int) -> np.ndarray:
    """Return the number of auctions or people that existed at the time of each row, to a millisecond."""
    milliseconds = table["dateTime"].cast("int64").to_numpy() // 1_000 - START
    return milliseconds * per_second // 1_000


def test_of_fifty_events_one_is_a_person_and_three_are_auctions() -> None:
    assert [table.num_rows for table in (PEOPLE, AUCTIONS, BIDS)] == [4_000, 12_000, 184_000]


def test_ids_are_sequential_from_1000() -> None:
    assert numbers(PEOPLE, "id").tolist() == list(range(1_000, 5_000))
    assert numbers(AUCTIONS, "id").tolist() == list(range(1_000, 13_000))


def test_half_of_the_bids_are_on_the_first_of_the_last_hundred_auctions() -> None:
    hot = (numbers(BIDS, "auction") - 1_000) % 100 == 0
    assert np.mean(hot) == pytest.approx(0.505, abs=0.01)


def test_three_in_four_bidders_and_sellers_are_hot_and_differ() -> None:
    assert np.mean((numbers(BIDS, "bidder") - 1_000) % 100 == 1) == pytest.approx(0.7525, abs=0.01)
    assert np.mean((numbers(AUCTIONS, "seller") - 1_000) % 100 == 0) == pytest.approx(0.7525, abs=0.02)


def test_half_of_the_bids_are_of_four_hot_channels() -> None:
    assert share(pc.is_in(BIDS["channel"], pa.array(HOT_CHANNELS))) == pytest.approx(0.5, abs=0.01)
    assert len(BIDS["channel"].unique()) > 9_900


def test_references_are_to_auctions_and_people_in_flight_or_soon_to_come() -> None:
    behind = newest(BIDS, 600) - (numbers(BIDS, "auction") - 1_000)
    assert -14 <= behind.min() < 0 < behind.max() <= 104
    people_behind = newest(BIDS, 200) - (numbers(BIDS, "bidder") - 1_000)
    assert -11 <= people_behind.min() < 0 < people_behind.max() <= 1_001


def test_prices_are_spread_over_six_decades() -> None:
    decades = np.bincount(np.log10(numbers(BIDS, "price")).astype(int) - 2, minlength=6)[:6]
    assert decades / BIDS.num_rows == pytest.approx(1 / 6, abs=0.01)


def test_auctions_are_open_for_up_to_twice_the_time_of_1666_events() -> None:
    lengths = pc.subtract(AUCTIONS["expires"], AUCTIONS["dateTime"]).cast("int64").to_numpy() // 1_000
    assert (lengths.min(), lengths.max()) == (1, pytest.approx(333, abs=2))
    assert np.mean(lengths) == pytest.approx(166, abs=4)


def test_event_times_follow_ids_at_the_rate() -> None:
    times = Events(100, rate=10).table("bids")["dateTime"].cast("int64").to_numpy() // 1_000 - START
    assert times[:3].tolist() == [400, 500, 600]
    assert times[-1] == 9_900


@pytest.mark.parametrize("kind", KINDS)
def test_disorder_and_delays_change_no_event(kind: str) -> None:
    in_order = Events(5_000).table(kind)
    shuffled = Events(5_000, group=100, one_in=20, delay=700).table(kind)
    assert not shuffled.equals(in_order)
    order = [("dateTime", "ascending"), *((name, "ascending") for name in in_order.column_names)]
    assert shuffled.sort_by(order).equals(in_order.sort_by(order))


@pytest.mark.parametrize("kind", KINDS)
def test_any_range_of_ids_can_be_generated_by_itself(kind: str) -> None:
    whole = KINDS[kind](np.arange(1_000), 100, 0)
    parts = [KINDS[kind](np.arange(start, start + 250), 100, 0) for start in range(0, 1_000, 250)]
    assert pa.concat_tables(parts).combine_chunks().equals(whole.combine_chunks())


def test_another_seed_gives_other_events() -> None:
    one, other = (Events(1_000, seed=seed).table("bids") for seed in (0, 1))
    assert one["dateTime"].equals(other["dateTime"])
    assert all(not one[name].equals(other[name]) for name in ("auction", "bidder", "price", "channel", "url", "extra"))


def test_the_columns_of_an_event_are_independent() -> None:
    hot_auction = (numbers(BIDS, "auction") - 1_000) % 100 == 0
    columns = [hot_auction, (numbers(BIDS, "bidder") - 1_000) % 100 == 1, numbers(BIDS, "price") > 100_000]
    assert np.corrcoef(np.array(columns, float)) == pytest.approx(np.eye(3), abs=0.01)


def test_files_hold_each_event_once_in_turn(tmp_path: Path) -> None:
    events = Events(1_000, group=50)
    paths = events.write(tmp_path, "auctions", files=4)
    tables = [pq.read_table(path) for path in paths]
    assert [table.num_rows for table in tables] == [15] * 4
    whole = pa.concat_tables(tables).sort_by("id")
    assert whole.equals(Events(1_000).table("auctions").combine_chunks())
