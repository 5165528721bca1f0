"""Arguments of windows that are refused, and times and columns that do not fit, each with a way out."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import ConfigurationError, GraphError

TABLE = pa.table({"k": ["a"], "x": [1], "window_start": [1], "at": pa.array([1], pa.timestamp("us"))})


def source(table: pa.Table = TABLE, batch_rows: int = 1_000) -> flow.Stream:
    return flow.Pipeline().source(op.from_arrow(table, batch_rows=batch_rows), name="rows")


def timed(table: pa.Table = TABLE) -> flow.Stream:
    return source(table).with_watermark("at")


LENGTHS: dict[str, tuple[Callable[[], Any], str]] = {
    "no period": (lambda: op.hopping("0s", every="1s"), r"hopping\(period\) must be above 0"),
    "no step": (lambda: op.hopping("1s", every="0s"), r"hopping\(every=\) must be above 0"),
    "steps too long": (
        lambda: op.hopping("1s", every="2s"),
        r"every=\) must be at most the period.*rows would be lost",
    ),
    "no growth": (lambda: op.cumulate("1h", every="0s"), r"cumulate\(every=\) must be above 0"),
    "steps that do not divide": (lambda: op.cumulate("10s", every="3s"), r"must divide the period.*op.hopping takes"),
    "no offset": (
        lambda: op.hopping("10s", every="3s", offset="-1"),
        r"hopping\(offset=\) must be a timedelta or text",
    ),
    "no rows": (lambda: op.after_rows(0), r"after_rows\(n\) must be a whole number above 0, got 0"),
    "a truth value": (lambda: op.after_rows(n=True), r"after_rows\(n\) must be a whole number above 0, got True"),
    "no time of the clock": (lambda: op.after_time("0s"), r"after_time\(length\) must be above zero"),
    "no event time": (lambda: op.at_times("0s"), r"at_times\(every\) must be above zero"),
    "a bare number": (lambda: op.hopping(10, every="3s"), r"hopping\(period\) must be a timedelta or text"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", LENGTHS)
def test_lengths_out_of_range_are_refused(case: str) -> None:
    make, message = LENGTHS[case]
    with pytest.raises(ConfigurationError, match=message):
        make()


TOO_LONG = timedelta(days=999_999_999)
SETTINGS: dict[str, Callable[[], object]] = {
    "window(lateness=)": lambda: timed().window(op.tumbling("1s"), lateness=TOO_LONG),
    "with_watermark(delay=)": lambda: source().with_watermark("at", delay=TOO_LONG),
    "with_watermark(idle_after=)": lambda: source().with_watermark("at", idle_after=TOO_LONG),
    "with_watermark(close_after=)": lambda: source().with_watermark("at", close_after=TOO_LONG),
    "with_watermark(max_drift=)": lambda: source().with_watermark("at", max_drift=TOO_LONG),
    "agg(ttl=)": lambda: timed().key_by("k").agg(n=op.count(), ttl=TOO_LONG),
    "agg(every=)": lambda: timed().key_by("k").agg(n=op.count(), emit="updates", every=TOO_LONG),
    "after_time(length)": lambda: op.after_time(TOO_LONG),
    "at_times(every)": lambda: op.at_times(TOO_LONG),
    "session(gap)": lambda: op.session(TOO_LONG),
    "sliding(period)": lambda: op.sliding(TOO_LONG),
    "tumbling(offset=)": lambda: op.tumbling("1s", offset=TOO_LONG),
    "Checkpointing(every=)": lambda: flow.Checkpointing(flow.MemoryStore(), every=TOO_LONG),
    "Checkpointing(timeout=)": lambda: flow.Checkpointing(flow.MemoryStore(), timeout=TOO_LONG),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_that_is_too_long_is_refused_where_it_is_given(setting: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{re.escape(setting)} must be at most 100,000 days, got"):
        SETTINGS[setting]()


def test_nulls_in_the_edges_of_the_same_window_are_named() -> None:
    counts = timed(TABLE.drop_columns(["window_start"])).key_by("k").window(op.tumbling("5s")).agg(n=op.count())
    start = flow.when(col("n") > 100).then(col("window_start"))
    again = counts.with_columns(window_start=start).window(op.same_window()).agg(n=op.count())
    with pytest.raises(Exception, match=r"same_window\(\): 1 of 1 values of 'window_start' are null.*filter such rows"):
        again.collect()


@dataclass(frozen=True)
class Backwards(flow.Window):
    """Windows that end before they begin."""

    def assign(self, times: Any, batch: Any) -> flow.Assigned:
        return flow.Assigned(times, times - 1)


GRAPHS: dict[str, tuple[Callable[[], Any], str]] = {
    "no window": (lambda: timed().window("10s"), r"expected windows such as op.tumbling"),  # type: ignore[arg-type]
    "no time": (lambda: timed().select("x").window(op.tumbling("1s")), r"the stream has no event time"),
    "rows of no window": (lambda: timed().window(op.same_window()), r"rows that came out of a window.*'at'"),
    "edges of two types": (
        lambda: (
            timed(TABLE.drop_columns(["window_start"]))
            .window(op.tumbling("1s"))
            .agg(n=op.count())
            .with_columns(window_start=col("window_start").cast(pa.timestamp("ms")))
            .window(op.same_window())
        ),
        r"rows that came out of a window and still have its columns",
    ),
    "many tasks": (
        lambda: timed().window(op.tumbling("1s")).agg(n=op.count(), parallelism=2),
        r"must be 1 without keys, got 2.*key_by",
    ),
    "a key of that name": (
        lambda: timed().key_by("window_start").window(op.tumbling("1s")).agg(n=op.count()),
        r"duplicate column 'window_start'; rename",
    ),
    "an aggregate of that name": (
        lambda: timed().window(op.hopping("2s", every="1s")).agg(window_end=op.count()),
        r"duplicate column 'window_end'; rename",
    ),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_what_cannot_be_a_window_is_refused_when_it_is_built(case: str) -> None:
    build, message = GRAPHS[case]
    with pytest.raises(GraphError, match=message):
        build()


@pytest.mark.parametrize("window", [op.hopping("10s", every="3s"), op.cumulate("10s", every="5s"), op.tumbling("10s")])
@pytest.mark.parametrize("time", [-(2**63), 2**63 - 1])
def test_times_at_the_ends_of_64_bits_name_operator_and_column(time: int, window: flow.Window) -> None:
    table = pa.table({"at": pa.array([time], pa.timestamp("us"))})
    with pytest.raises(OverflowError, match=r"ends: event times in 'at' are out of range.*filter such rows out"):
        timed(table).window(window).agg(n=op.count(), name="ends").collect()


def test_a_kind_whose_windows_end_before_they_begin_is_blamed() -> None:
    with pytest.raises(TypeError, match=r"Backwards\(\): assign\(\) returned a window from 1 to 0"):
        timed().window(Backwards()).agg(n=op.count()).collect()


MISTAKES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no Assigned": (lambda t: (t, t + 1), r"assign\(\) must return flow.Assigned\(starts, ends\), got tuple"),
    "fractions": (lambda t: flow.Assigned(t, t + 0.5), r"ends of type float64; they must be integers"),
    "rows of another batch": (lambda t: flow.Assigned(t, t + 1, np.arange(len(t)) + 7), r"rows from 7 to .*ascending"),
    "negative rows": (lambda t: flow.Assigned(t, t + 1, np.arange(len(t)) - 1), r"rows from -1 to .*from 0 to"),
    "rows in another order": (lambda t: flow.Assigned(t, t + 1, len(t) - 1 - np.arange(len(t))), r"in ascending order"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_answer_of_a_kind_of_a_user_is_named(mistake: str) -> None:
    assigned, message = MISTAKES[mistake]

    @dataclass(frozen=True)
    class Mine(flow.Window):
        """Windows of one microsecond."""

        def assign(self, times: Any, batch: Any) -> flow.Assigned:
            return assigned(times)  # type: ignore[no-any-return]

    with pytest.raises(TypeError, match=rf"Mine\(\): .*{message}"):
        timed(pa.table({"at": pa.array([1, 2, 3], pa.timestamp("us"))})).window(Mine()).agg(n=op.count()).collect()


@pytest.mark.parametrize("returned", [1, -0.5, None])
def test_a_kind_that_completes_windows_too_early_is_named(returned: Any) -> None:
    @dataclass(frozen=True)
    class Early(flow.Window):
        """Windows whose rows may still come when they are complete."""

        def assign(self, times: Any, batch: Any) -> flow.Assigned:
            return flow.Assigned(times, times + 1)

        def complete(self, watermark: int) -> int:
            return None if returned is None else watermark + returned  # type: ignore[return-value]

    with pytest.raises(TypeError, match=r"Early\(\): complete\(0\) returned .*not above the watermark"):
        timed().window(Early()).agg(n=op.count())


@dataclass(frozen=True)
class Closed(flow.Window):
    """Windows of ten microseconds, whose last one belongs to them: [0, 9], [10, 19]."""

    overlaps = False

    def assign(self, times: Any, batch: Any) -> flow.Assigned:
        return flow.Assigned(times // 10 * 10, times // 10 * 10 + 9)

    def complete(self, watermark: int) -> int:
        return watermark - 1


def test_results_of_windows_with_inclusive_ends_are_not_late_in_the_same_windows() -> None:
    at = pa.array([1, 2, 9, 19, 29, 30], pa.timestamp("us"))
    rows = source(pa.table({"at": at}), batch_rows=1).with_watermark("at")
    counts = rows.window(Closed()).agg(n=op.count(), name="counts")
    again = counts.window(op.same_window()).agg(n=col("n").max())
    assert sorted(again.collect()["n"].to_pylist()) == [1, 1, 1, 3]


def test_windows_come_out_at_the_end_even_if_their_kind_completes_none() -> None:
    class Never(Closed):
        """Windows that no watermark completes."""

        def complete(self, watermark: int) -> int:
            return -1

    counts = timed(pa.table({"at": pa.array([1, 12], pa.timestamp("us"))})).window(Never()).agg(n=op.count())
    assert counts.collect()["n"].to_pylist() == [1, 1]


@pytest.mark.parametrize("kind", [op.tumbling("1s"), op.session("1s"), op.sliding("1s")])
def test_a_subclass_of_a_kind_of_the_library_is_refused(kind: flow.Window) -> None:
    """Its methods would not be called."""
    changed = type("Mine", (type(kind),), {})
    mine = changed(*[getattr(kind, field.name) for field in fields(kind)])  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=rf"Mine is a subclass of {type(kind).__name__}.*subclass of flow.Window"):
        timed().window(mine)


def test_a_kind_of_a_user_may_leave_rows_out() -> None:
    @dataclass(frozen=True)
    class Even(flow.Window):
        """Windows of the even microseconds."""

        def assign(self, times: Any, batch: Any) -> flow.Assigned:
            rows = np.flatnonzero(times % 2 == 0)
            return flow.Assigned(times[rows], times[rows] + 1, rows)

    table = pa.table({"at": pa.array([1, 2, 3, 4], pa.timestamp("us"))})
    counts = timed(table).window(Even()).agg(n=op.count()).collect()
    assert counts["window_start"].cast(pa.int64()).to_pylist() == [2, 4]


@pytest.mark.parametrize("emit", ["updates", "final"])
def test_an_aggregate_over_no_rows_is_one_row(emit: str) -> None:
    aggregates = {"n": op.count(), "x": col("x").count(), "s": col("x").sum(), "d": col("k").count_distinct()}
    found = timed(TABLE.slice(0, 0)).agg(aggregates, emit=emit).collect(parallelism=2)
    assert found.to_pylist() == [{"n": 0, "x": 0, "s": None, "d": 0}]


def test_windows_over_no_rows_are_none() -> None:
    assert timed(TABLE.slice(0, 0)).window(op.tumbling("1s")).agg(n=op.count()).collect().num_rows == 0


def test_updates_over_all_rows_reach_several_sinks_in_order() -> None:
    table = pa.table({"x": range(40)})
    with flow.Pipeline() as p:
        counts = p.source(op.from_arrow(table, batch_rows=2)).agg(n=op.count(), emit="updates")
        counts.sink(op.collect(), name="out", parallelism=3)
    assert p.run(parallelism=2).table("out")["n"].to_pylist()[-1] == 40


def test_partly_late_rows_are_in_the_summary_and_warned_of() -> None:
    times = pa.array([1, 12, 7], pa.timestamp("s"))
    with flow.Pipeline() as p:
        rows = p.source(op.from_arrow(pa.table({"at": times}), batch_rows=1)).with_watermark("at")
        rows.window(op.hopping("10s", every="5s")).agg(n=op.count(), name="hops").sink(op.collect(), name="out")
    with pytest.warns(flow.errors.LateRowsWarning, match=r"1 row came too late for some windows of 'hops'"):
        result = p.run()
    assert (result.late, result.partly_late, result.operator("hops").partly_late) == (0, 1, 1)
    assert "partly late: 1 row" in str(result)
