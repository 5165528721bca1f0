"""Windows on the clock of a zone begin where dt.truncate says, and nothing is between them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.local_windows import LocalTumbling
from dataflow.errors import ConfigurationError, GraphError
from dataflow.expressions.truncation import truncate

MINUTE = 60_000_000
ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo"]
SIZES = [1_440, 60, 30, 15, 120, 420, 10_080]
"""Minutes."""


def changes(zone: str) -> np.ndarray:
    """Times around every change of the clock in three years, and others, in microseconds."""
    hours = np.arange(2017 * 8_766 - 1_970 * 8_766, 2020 * 8_766 - 1_970 * 8_766) * 60 * MINUTE
    shown = pa.array(hours, pa.timestamp("us", zone))
    local = np.asarray(pa.compute.local_timestamp(shown).cast(pa.int64()))
    at = hours[np.flatnonzero(np.diff(local - hours))]
    near = np.arange(-300, 300, 7) * MINUTE
    return np.unique(np.concatenate([(at[:, None] + near).ravel(), hours[::97] + 1, hours[::97] - 1]))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("minutes", SIZES)
def test_windows_are_those_of_truncate_and_adjacent(minutes: int, zone: str) -> None:
    window, times = LocalTumbling(minutes * MINUTE, 0, zone), changes(zone)
    assigned = window.assign(times, None)
    floors = truncate(pa.array(times, pa.timestamp("us", zone)), minutes * MINUTE, 0).cast(pa.int64())
    assert assigned.starts.tolist() == floors.to_pylist()
    assert (assigned.starts <= times).all()
    assert (times < assigned.ends).all()
    assert window.assign(assigned.ends, None).starts.tolist() == assigned.ends.tolist()
    assert window.assign(assigned.ends - 1, None).starts.tolist() == assigned.starts.tolist()


@pytest.mark.parametrize(
    ("zone", "reason"),
    [
        ("UTC", r"has the zone 'UTC'; write col\('at'\).cast\('timestamp\[s, tz=Europe/Berlin\]'\) in a with_columns"),
        (None, r"has no zone; write col\('at'\).dt.localize\('Europe/Berlin'\), if it has the times of that clock"),
    ],
)
def test_the_column_must_have_the_zone(zone: str | None, reason: str) -> None:
    table = pa.table({"at": pa.array([1], pa.timestamp("s", zone))})
    rows = flow.Pipeline().source(op.from_arrow(table)).with_watermark("at")
    with pytest.raises(GraphError, match=reason):
        rows.window(op.tumbling("1d", zone="Europe/Berlin"))


def test_local_times_are_counted_by_local_days() -> None:
    """The Azores set the clock back at one in the morning of the 29th, to midnight: 25 hours from the first one."""
    shown = pa.array(["2023-10-28T23:30", "2023-10-29T00:30", "2023-10-29T00:45", "2023-10-29T23:30"])
    rows = flow.Pipeline().source(op.from_arrow(pa.table({"at": shown.cast(pa.timestamp("s"))})))
    instants = rows.with_columns(at=col("at").dt.localize("Atlantic/Azores", ambiguous="later")).with_watermark("at")
    days = instants.window(op.tumbling("1d", zone="Atlantic/Azores")).agg(n=op.count()).collect().to_pylist()
    hours = [(day["window_end"].timestamp() - day["window_start"].timestamp()) / 3_600 for day in days]
    assert (hours, [day["n"] for day in days]) == ([24, 25], [1, 3])


def test_a_negative_offset_counts_from_the_end_of_a_window() -> None:
    for zone in (None, "Asia/Tokyo"):
        assert op.tumbling("1d", offset="-6h", zone=zone) == op.tumbling("1d", offset="18h", zone=zone)
    assert op.hopping("1d", every="5h", offset=timedelta(hours=-11)) == op.hopping("1d", every="5h", offset="4h")
    assert op.cumulate("1d", every="1h", offset=" -25h") == op.cumulate("1d", every="1h", offset="23h")
    assert col("t").dt.truncate("1h", offset="-15min").equals(col("t").dt.truncate("1h", offset="45min"))


@pytest.mark.parametrize("length", ["1mo", "2 months", "1y", "1 quarter"])
def test_months_are_refused_with_a_way_out(length: str) -> None:
    with pytest.raises(ConfigurationError, match=r"no fixed length.*subclass of dataflow.Window"):
        op.tumbling(length, zone="Europe/Berlin")


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "", 5])
def test_a_zone_that_does_not_exist_is_refused(zone: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"zone=\) must be a time zone"):
        op.tumbling("1d", zone=zone)
