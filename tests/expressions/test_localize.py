"""``dt.localize``: what the clock of a zone shows, as instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import cycle, product
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import GraphError, SchemaMismatch
from dataflow.expressions import Expr, col, lit, when
from tests.expressions.zone_changes import distinct_zones, kinds_of_changes

CHOICES = ["earlier", "later", "null"]
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
COMBINED = [("earlier", "null", "ms"), ("later", "earlier", "us"), ("null", "later", "ns"), ("earlier", "later", "s")]
BERLIN = "Europe/Berlin"
MICROSECONDS = pa.timestamp("us")
TWICE, NEVER, ONCE = datetime(2024, 10, 27, 2, 30), datetime(2024, 3, 31, 2, 30), datetime(2024, 7, 1, 12)
x = col("x")


def localized(expr: Expr, readings: list[Any], dtype: pa.DataType = MICROSECONDS) -> list[Any]:
    """The instants in ticks since 1970."""
    batch = pa.record_batch({"x": pa.array(readings, dtype)})
    result = expr.evaluate(batch)
    result.validate(full=True)
    assert result.type == expr.dtype(batch.schema)
    return result.cast(pa.int64()).to_pylist()


def test_each_change_of_each_clock_has_two_instants_or_none() -> None:
    for zone, (ambiguous, missing, unit) in zip(distinct_zones(), cycle(COMBINED), strict=False):
        ticks = UNITS[unit]
        readings, instants = [], []
        for at, before, after in kinds_of_changes(zone):
            for reading in {at + before, (2 * at + before + after) // 2, at + after}:
                earlier, later = (reading - before) * ticks, (reading - after) * ticks
                if at + before <= reading < at + after:
                    instants.append({"earlier": at * ticks - 1, "later": at * ticks, "null": None}[missing])
                elif at + after <= reading < at + before:
                    instants.append({"earlier": earlier, "later": later, "null": None}[ambiguous])
                else:
                    instants.append(later)
                readings.append(reading * ticks)
        found = localized(x.dt.localize(zone, ambiguous, missing), readings, pa.timestamp(unit))
        assert found == instants, zone


def test_times_that_the_clock_shows_once_are_those_of_zoneinfo() -> None:
    days = [datetime(1890, 1, 1, 12, 0, 0, 5) + timedelta(days=97) * n for n in range(540)]
    for zone in (BERLIN, "America/Havana", "Australia/Lord_Howe", "Africa/Monrovia", "Asia/Kathmandu"):
        aware = [day.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) for day in days]
        instants = pa.array(aware, pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        assert localized(x.dt.localize(zone), days) == instants


@pytest.mark.parametrize(
    ("reading", "reason"),
    [
        (TWICE, r"shows 2024-10-27 02:30:00.000000 twice: at .* 02:30:00.000000\+0200 and at .* 02:30:00.000000\+0100"),
        (NEVER, r"never shows 2024-03-31 02:30:00.000000: it was set forward at .* 03:00:00.000000\+0200"),
    ],
)
def test_two_instants_or_none_are_an_error_that_says_what_to_choose(reading: datetime, reason: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^expression: col\('x'\).dt.localize.*{reason}; choose .* ambiguous= and missing="
    ):
        localized(x.dt.localize(BERLIN), [ONCE, reading, None])
    for ambiguous, missing in product(CHOICES, CHOICES):
        chosen = {"ambiguous": ambiguous} if reading is TWICE else {"missing": missing}
        assert len(localized(x.dt.localize(BERLIN, **chosen), [ONCE, reading, None])) == 3
        with pytest.raises(ValueError, match=reason):
            localized(
                x.dt.localize(BERLIN, **{"ambiguous": ambiguous, "missing": missing} | dict.fromkeys(chosen, "raise")),
                [reading],
            )


def test_a_job_fails_at_such_a_time_and_loses_it_only_by_choice() -> None:
    rows = flow.Pipeline().source(op.from_arrow(pa.table({"at": [ONCE, TWICE]})), name="log")
    with pytest.raises(ValueError, match=r"with_columns.*shows 2024-10-27 02:30:00.000000 twice"):
        rows.with_columns(at=col("at").dt.localize(BERLIN)).collect()
    hours = rows.with_columns(at=col("at").dt.localize(BERLIN, ambiguous="null")).collect()
    assert [at and at.isoformat() for at in hours["at"].to_pylist()] == ["2024-07-01T12:00:00+02:00", None]


def test_branches_and_unused_dictionary_entries_cannot_raise() -> None:
    branch = when(x > lit(datetime(2024, 5, 1))).then(x.dt.localize(BERLIN)).otherwise(x.dt.localize("UTC"))
    assert None not in localized(branch, [ONCE, NEVER])
    encoded = pa.array([TWICE, ONCE, ONCE, ONCE]).dictionary_encode().slice(1)
    instants = x.dt.localize(BERLIN).evaluate(pa.record_batch({"x": encoded}))
    assert instants.to_pylist() == [ONCE.replace(tzinfo=ZoneInfo(BERLIN))] * 3
    assert x.dt.localize("UTC").evaluate(pa.record_batch({"x": pa.nulls(2)})).type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("tick", "zone"), [(2**63 - 1, "America/New_York"), (-(2**63), "Asia/Tokyo"), (2**63 - 1, "-01:00")]
)
def test_an_instant_beyond_the_times_of_the_type_is_refused(tick: int, zone: str) -> None:
    for choice in ("raise", "null"):
        with pytest.raises(OverflowError, match=r"beyond the times of timestamp\[ns"):
            localized(x.dt.localize(zone, choice, choice), [None, tick], pa.timestamp("ns"))


@pytest.mark.parametrize(
    ("arguments", "error", "reason"),
    [
        (("Europe/Nowhere",), GraphError, "localize: .*no such time zone.*Europe/Nowhere"),
        (("",), GraphError, "no such time zone"),
        ((None,), TypeError, "zone must be text such as 'Europe/Berlin', got None"),
        ((BERLIN, "infer"), GraphError, "ambiguous must be 'raise', 'earlier', 'later' or 'null', got 'infer'"),
        ((BERLIN, "raise", True), GraphError, "missing must be .* got True"),
    ],
)
def test_arguments_without_meaning_are_refused_when_they_are_written(
    arguments: Any, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        x.dt.localize(*arguments)


def test_columns_that_are_no_local_times_are_refused() -> None:
    schema = pa.schema({"z": pa.timestamp("ms", "UTC"), "d": pa.date32(), "s": pa.string(), "c": pa.time64("us")})
    with pytest.raises(
        SchemaMismatch,
        match=r"here: .* without a zone, found timestamp\[ms, tz=UTC\].*cast\('timestamp\[ms, tz=Europe/Berlin\]'\)",
    ):
        col("z").dt.localize(BERLIN).dtype(schema, "here")
    for name in "dsc":
        with pytest.raises(SchemaMismatch, match=r"cannot be computed.* localize timestamps"):
            col(name).dt.localize(BERLIN).dtype(schema)


def test_times_with_and_without_a_zone_do_not_combine_but_the_error_says_how() -> None:
    schema = pa.schema({"z": pa.timestamp("ms", "UTC"), "t": pa.timestamp("ms")})
    for expr in (
        col("z") < col("t"),
        col("t").fill_null(col("z")),
        when(col("t").is_null()).then(col("z")).otherwise(x),
    ):
        with pytest.raises(SchemaMismatch, match=r"with a zone are instants.*\.dt\.localize\(zone\) them"):
            expr.dtype(schema.append(pa.field("x", pa.timestamp("ms"))))


def test_a_cast_of_a_local_time_names_localize() -> None:
    text = flow.Pipeline().source(op.from_arrow(pa.table({"at": ["2024-03-01 10:00:00"]})), name="in")
    with pytest.raises(
        ValueError, match=r"expected a zone offset\. Read local times .*\.dt\.localize\(zone\); some of"
    ):
        text.select(at=flow.col("at").cast(pa.timestamp("us", "Europe/Berlin"))).collect()
