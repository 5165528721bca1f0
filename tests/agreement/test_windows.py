"""Windows of event time per key, over timestamps of every unit and zone, negative ones among them, against DuckDB."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from tests.agreement.data import by_key, generated, near, write_files
from tests.agreement.running import ALL, MERGEABLE, Asked, queried, quoted
from tests.seeds import some_by_default

TIMES = [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "America/New_York")]
EACH = [
    type_ if type_.tz is None or type_.unit == "us" else pytest.param(type_, marks=pytest.mark.soak) for type_ in TIMES
]
"""Every unit and every zone; all of one with all of the other only with ``-m soak``."""
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
SPAN = 600
"""Seconds that the event times lie apart at most, half of them before 1970."""


@pytest.fixture(scope="session")
def timed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The generated rows with an event time in every unit and zone, out of order all over the files."""
    table = generated(seed=21)
    draw = np.random.default_rng(21)
    nanoseconds = draw.integers(-SPAN // 2 * 10**9, SPAN // 2 * 10**9, table.num_rows)
    nanoseconds[:6] = [-1, 0, 1, -10 * 10**9, 10 * 10**9, 10 * 10**9 - 1]  # at the edges of windows
    for type_ in TIMES:
        times = nanoseconds // (10**9 // PER_SECOND[type_.unit])
        table = table.append_column(f"at {type_}", pa.array(times).cast(type_))
    return write_files(table, tmp_path_factory.mktemp("timed"))


def windows(
    source: Any, time: str, keys: list[str], asked: dict[str, Asked], size: str, offset: str = "0s", **options: Any
) -> pa.Table:
    """Our windows; rows may be as late as they like."""
    aggregations = {name: one.aggregation for name, one in asked.items()}
    with flow.Pipeline("windows") as p:
        rows = p.source(source, name="rows").with_watermark(time, delay=f"{SPAN}s")
        cut = rows.key_by(*keys).window(op.tumbling(size, offset=offset))
        cut.agg(**aggregations, name="windows").sink(op.collect(), name="out")
    result = p.run(options.pop("runner", "local"), timeout="60s", **options)
    assert result.late == 0
    return result.table("out")


def expected(files: list[str], time: str, keys: list[str], asked: dict[str, Asked], size: int, offset: int = 0) -> Any:
    """DuckDB's; ``size`` and ``offset`` in nanoseconds."""
    names = ", ".join(map(quoted, keys))
    since = f"epoch_ns({quoted(time)}) - {offset}"
    start = f"{since} - (({since}) % {size} + {size}) % {size} + {offset}"
    aggregates = ", ".join(f"{one.sql} as {quoted(name)}" for name, one in asked.items())
    edges = f"({start}) as window_start, ({start}) + {size} as window_end"
    found = queried(files, f"{names}, {edges}, {aggregates}", "group by all")
    return near(by_key(found, [*keys, "window_start", "window_end"]))


FEW = {name: MERGEABLE[name] for name in ("rows", "paid", "variance", "last", "min of double")}


@pytest.mark.usefixtures("folded")
@pytest.mark.parametrize("type_", EACH, ids=str)
def test_windows_over_times_of_every_unit_and_zone_agree(type_: pa.DataType, timed: list[str]) -> None:
    time, keys = f"at {type_}", ["k", "window_start", "window_end"]
    rows = expected(timed, time, ["k"], FEW, 10 * 10**9)
    assert by_key(windows(op.read_parquet(timed, batch_rows=7), time, ["k"], FEW, "10s"), keys) == rows
    assert by_key(windows(op.read_parquet(timed), time, ["k"], FEW, "10s", parallelism=2), keys) == rows


CUTS = {
    "10s from 3s on": ("s", 10 * 10**9, 3 * 10**9),
    "250ms": ("s", 250 * 10**6, 0),
    "1500us from 1us on": ("ms", 1_500_000, 1_000),
    "7us from 5us on": ("ns", 7_000, 5_000),
    "1h from 15min on": ("us", 3_600 * 10**9, 900 * 10**9),
}
"""The unit of the times; size and offset in nanoseconds."""


@pytest.mark.parametrize("cut", CUTS)
def test_windows_of_any_length_and_offset_agree(cut: str, timed: list[str]) -> None:
    unit, *nanoseconds = CUTS[cut]
    size, offset = (f"{length // 1_000}us" for length in nanoseconds)
    time, keys = f"at timestamp[{unit}]", ["int8", "bool", "window_start", "window_end"]
    found = windows(op.read_parquet(timed), time, ["int8", "bool"], FEW, size, offset, parallelism=2)
    assert by_key(found, keys) == expected(timed, time, ["int8", "bool"], FEW, *nanoseconds)


@pytest.mark.parametrize(("parallelism", "batch_rows"), some_by_default([(2, 65_536)], [1, 2, 4], [1, 7, 65_536]))
def test_all_aggregates_of_windows_agree(parallelism: int, batch_rows: int, timed: list[str]) -> None:
    time, keys = "at timestamp[ms, tz=UTC]", ["string", "window_start", "window_end"]
    found = windows(
        op.read_parquet(timed, batch_rows=batch_rows), time, ["string"], ALL, "1min", parallelism=parallelism
    )
    assert by_key(found, keys) == expected(timed, time, ["string"], ALL, 60 * 10**9)
