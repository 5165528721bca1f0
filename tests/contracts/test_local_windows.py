"""Windows on the clock of a zone begin where dt.truncate says, and nothing is between them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
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


@pytest.mark.parametrize("length", ["1mo", "2 months", "1y", "1 quarter"])
def test_months_are_refused_with_a_way_out(length: str) -> None:
    with pytest.raises(ConfigurationError, match=r"no fixed length.*subclass of dataflow.Window"):
        op.tumbling(length, zone="Europe/Berlin")


def test_a_zone_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"zone=\) must be a time zone"):
        op.tumbling("1d", zone="Europe/Nowhere")
