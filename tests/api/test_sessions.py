"""Sessions in pipelines: what is refused, what the summary says, and windows behind them."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import CheckpointMismatch, ConfigurationError, GraphError, LateRowsWarning, SchemaMismatch

TABLE = pa.table({"k": ["a"] * 4, "change": [1] * 4, "at": pa.array([1, 30, 7, 60], pa.timestamp("s"))})


def cut(
    lateness: str = "0s", table: pa.Table = TABLE, gap: str = "10s", delay: str = "0s", **options: Any
) -> flow.WindowedStream:
    """One row a batch."""
    rows = flow.Pipeline().source(op.from_arrow(table, batch_rows=1), name="rows")
    timed = rows.with_watermark("at", delay=delay)
    return timed.key_by("k").window(op.session(gap), lateness=lateness, **options)


LENGTHS: dict[str, tuple[Any, str]] = {
    "no gap": ("0s", r"session\(gap\) must be above 0"),
    "a negative gap": ("-1s", r"session\(gap\)"),
    "a month": ("1 month", r"session\(gap\): months, quarters and years have no fixed length"),
    "a bare number": (10, r"session\(gap\) must be a timedelta or text"),
}


@pytest.mark.parametrize("case", LENGTHS)
def test_gaps_out_of_range_are_refused(case: str) -> None:
    gap, message = LENGTHS[case]
    with pytest.raises(ConfigurationError, match=message):
        op.session(gap)


GRAPHS: dict[str, tuple[Callable[[], Any], str]] = {
    "updates": (
        lambda: cut().agg(n=op.count(), emit="updates"),
        r"emit='updates' cannot be used with op.session\(\).*emit='changes'.*panes='discarding'",
    ),
    "the default with lateness": (
        lambda: cut("5s").agg(n=op.count()),
        r"emit='updates', the default with lateness.*emit='changes'.*emit='final'.*panes='discarding'",
    ),
    "early panes of all rows": (
        lambda: cut(early=op.after_rows(1)).agg(n=op.count()),
        r"window\(early=\).*two sessions became one.*panes='discarding'.*emit='changes'",
    ),
    "early panes of all rows with signed changes": (
        lambda: cut(table=TABLE.drop_columns(["change"]), early=op.after_rows(1)).agg(n=op.count(), emit="changes"),
        r"window\(early=\).*two sessions became one; leave early= out, or use panes='discarding' without emit=",
    ),
    "late panes of all rows": (
        lambda: cut("5s", late=op.after_rows(1)).agg(n=op.count()),
        r"window\(late=\).*two sessions became one.*panes='discarding'.*emit='changes'",
    ),
    "updates of discarding panes": (
        lambda: cut("5s", panes="discarding").agg(n=op.count(), emit="updates"),
        r"emit='updates'\) cannot be used with panes='discarding'.*leave emit= out",
    ),
    "a column called pane": (
        lambda: cut(panes="discarding", early=op.after_rows(1)).agg(pane=op.count()),
        r"duplicate column 'pane'",
    ),
    "a column called change": (
        lambda: cut().agg(n=op.count(), emit="changes"),
        r"agg\(emit='changes'\): the stream has a column 'change'.*rename or drop it",
    ),
    "an aggregate of that name": (lambda: cut().agg(window_end=op.count()), r"duplicate column 'window_end'; rename"),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_what_sessions_cannot_do_is_refused(case: str) -> None:
    make, message = GRAPHS[case]
    with pytest.raises(GraphError, match=message):
        make()


def test_rows_that_cannot_be_kept_are_refused_with_their_column() -> None:
    table = TABLE.append_column("tags", pa.array([["x"]] * 4))
    with pytest.raises(SchemaMismatch, match=r"the column 'tags' of type list<.*> cannot be kept"):
        cut(table=table).agg(tags=col("tags").list.get(0).count_distinct()).collect()


def test_split_sessions_are_counted_and_warned_of() -> None:
    with flow.Pipeline() as p:
        rows = p.source(op.from_arrow(TABLE, batch_rows=1), name="rows").with_watermark("at", delay="13s")
        sessions = rows.key_by("k").window(op.session("10s")).agg(n=op.count(), name="visits")
        sessions.sink(op.collect(), name="out")
    with pytest.warns(LateRowsWarning, match=r"1 session of 'visits' came out before a row.*emit='changes'"):
        result = p.run()
    assert sorted(result.table("out")["n"].to_pylist()) == [1, 1, 1, 1]
    assert (result.late, result.split_sessions, result.operator("visits").split_sessions) == (0, 1, 1)
    assert "split sessions: 1 sessions (1 at 'visits')" in str(result)
    assert json.loads(result.to_json())["split_sessions"] == 1


def test_the_net_of_changes_is_what_a_batch_job_computes() -> None:
    table = TABLE.drop_columns(["change"])
    changes = cut("20s", table).agg(n=op.count(), last=col("at").max(), emit="changes")
    assert changes.changes == "signed"
    assert changes.collect().num_rows == 5
    patient = cut(table=table, delay="1h").agg(n=op.count(), last=col("at").max())
    assert patient.changes == "rows"
    assert changes.collect(net=True).sort_by("window_start") == patient.collect().sort_by("window_start")


def test_with_final_results_nothing_is_late_in_windows_behind_sessions() -> None:
    table = pa.table({"k": ["a", "b"] * 40, "at": pa.array([i // 2 * 7 % 97 for i in range(80)], pa.timestamp("s"))})
    with flow.Pipeline() as p:
        rows = p.source(op.from_arrow(table, batch_rows=2), name="rows").with_watermark("at")
        sessions = rows.key_by("k").window(op.session("3s"), lateness="100s").agg(n=op.count(), emit="final")
        ends = sessions.key_by("n").window(op.tumbling("5s")).agg(sessions=op.count(), rows=col("n").sum())
        ends.sink(op.collect(), name="ends")
        same = sessions.window(op.same_window()).agg(keys=op.count(), rows=col("n").sum())
        same.sink(op.collect(), name="same")
    result = p.run()
    assert result.late == 0
    assert sum(result.table("ends")["rows"].to_pylist()) == sum(result.table("same")["rows"].to_pylist()) == 80
    assert set(result.table("same")["keys"].to_pylist()) == {2}


def test_the_result_of_a_window_is_in_a_session_right_before_the_end_of_its_window() -> None:
    times = pa.array([1, 6, 11], pa.timestamp("s")).cast(pa.timestamp("us"))
    table = pa.table({"k": ["a"] * 3, "at": times})
    rows = flow.Pipeline().source(op.from_arrow(table)).with_watermark("at").key_by("k")
    counts = rows.window(op.tumbling("5s")).agg(n=op.count())
    (session,) = counts.key_by("k").window(op.session("5s")).agg(n=col("n").sum()).collect().to_pylist()
    edges = [session[edge].strftime("%S.%f") for edge in ("window_start", "window_end")]
    assert (edges, session["n"]) == (["04.999999", "19.999999"], 3)


def test_sessions_of_nanoseconds_keep_their_edges_in_the_same_windows() -> None:
    """Two sessions begin 1 ns after each other and end together; a third one begins 1 ns after an end."""
    at = pa.array([1000, 1500, 1001, 1500, 2501, 4000], pa.timestamp("ns"))
    table = pa.table({"k": ["a", "a", "b", "b", "a", "b"], "change": [1] * 6, "at": at})

    def edges_of(stream: flow.Stream) -> list[tuple[int, ...]]:
        rows = stream.collect()
        edges = [rows[name].cast(pa.int64()).to_pylist() for name in ("window_start", "window_end")]
        return sorted(zip(*edges, rows[rows.column_names[-1]].to_pylist(), strict=True))

    def sessions() -> flow.Stream:
        return cut(table=table, delay="1h", gap="1us").agg(n=op.count())

    three = [(1000, 2500, 1), (1001, 2500, 1), (2501, 3501, 1), (4000, 5000, 1)]
    assert edges_of(sessions()) == [(1000, 2500, 2), (1001, 2500, 2), *three[2:]]
    assert edges_of(sessions().window(op.same_window()).agg(keys=op.count())) == three
    assert edges_of(sessions().window(op.same_window()).agg(keys=col("k").count_distinct())) == three
    assert edges_of(sessions().window(op.same_window()).top(1, by="n")) == three
    panes = sessions().window(op.same_window(), early=op.after_rows(5), panes="discarding").agg(keys=op.count())
    assert edges_of(panes) == three


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_every_unit_of_time_gives_the_same_sessions(unit: str) -> None:
    times = TABLE["at"].cast(pa.timestamp("ns")).cast(pa.timestamp(unit, "UTC"))
    table = cut(table=TABLE.set_column(2, "at", times), delay="1h").agg(n=op.count()).collect()
    starts = table["window_start"].cast(pa.timestamp("us", "UTC")).cast("int64").to_pylist()
    assert sorted(zip(starts, table["n"].to_pylist(), strict=True)) == [
        (1_000_000, 2),
        (30_000_000, 1),
        (60_000_000, 1),
    ]


def test_a_gap_finer_than_the_unit_of_the_times_makes_finer_edges() -> None:
    found = cut(gap="1500ms", delay="1h").agg(n=op.count()).collect()
    assert found.schema.field("window_end").type == pa.timestamp("us")


def test_over_all_rows_there_are_no_keys() -> None:
    rows = flow.Pipeline().source(op.from_arrow(TABLE), name="rows").with_watermark("at")
    found = rows.window(op.session("10s")).agg(n=op.count()).collect()
    assert (found.column_names, found["n"].to_pylist()) == (["window_start", "window_end", "n"], [2, 1, 1])


def test_discarding_panes_are_rows_with_the_columns_of_panes() -> None:
    panes = cut("20s", panes="discarding", early=op.after_rows(2)).agg(n=op.count())
    assert panes.changes == "rows"
    assert panes.schema.names == ["k", "window_start", "window_end", "pane", "pane_index", "n"]
    rows = panes.collect().select(["window_end", "pane", "pane_index", "n"]).to_pylist()
    assert [(f"{row['window_end']:%M:%S}", *list(row.values())[1:]) for row in rows] == [
        ("00:11", "on_time", 0, 1),
        ("00:17", "late", 1, 1),
        ("00:40", "on_time", 0, 1),
        ("01:10", "on_time", 0, 1),
    ]


def test_discarding_panes_without_early_ones_have_no_columns_for_them() -> None:
    panes = cut(panes="discarding", delay="20s").agg(n=op.count())
    assert panes.schema.names == ["k", "window_start", "window_end", "n"]
    assert panes.collect()["n"].to_pylist() == [2, 1, 1]


def test_a_checkpoint_of_other_triggers_is_refused() -> None:
    store = flow.MemoryStore()

    def run(**options: Any) -> None:
        with flow.Pipeline("visits") as p:
            rows = p.source(op.from_arrow(TABLE, batch_rows=1), name="rows").with_watermark("at", delay="20s")
            sessions = rows.key_by("k").window(op.session("10s"), **options).agg(n=op.count(), name="visits")
            sessions.sink(op.collect(), name="out")
        p.run(checkpoint=flow.Checkpointing(store), restore="auto")

    run(panes="discarding")
    with pytest.raises(CheckpointMismatch, match="visits"):
        run(panes="discarding", early=op.after_rows(2))


@pytest.mark.parametrize("emit", ["final", "changes"])
def test_a_sum_of_decimals_that_overflows_is_named_with_its_key(emit: str) -> None:
    most = Decimal("9" * 38)
    sums = pa.array([Decimal(1), most, most, Decimal(2)], pa.decimal128(38, 0))
    table = pa.table({"user": ["a", "b", "b", "c"], "x": sums, "at": pa.array([1, 2, 3, 4], pa.timestamp("s"))})
    with flow.Pipeline() as p:
        rows = p.source(op.from_arrow(table)).with_watermark("at").key_by("user")
        rows.window(op.session("5s")).agg(s=col("x").sum(), emit=emit).sink(op.collect(), name="out")
    with pytest.raises(OverflowError, match=r"the sum 's' of key \{'user': 'b'\}"):
        p.run()
