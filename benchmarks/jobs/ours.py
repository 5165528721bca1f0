"""The jobs as this engine runs them: the pipeline of each, and whether the API for it is there.

``tuned`` pipelines have the options that an expert would set for throughput, the others none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path

import dataflow as flow
import operators as op
from benchmarks.jobs.bids import auctions, categories, openings
from dataflow import col, lit

__all__ = ["JOBS", "Answer", "Input", "Job", "unavailable"]

BATCH_ROWS = 1 << 20
"""Rows of a batch, if tuned."""


class Input(Enum):
    """What a repetition of the bids is."""

    REPEATED = "the same rows again"
    LATER = "the same auctions at later times"


class Answer(Enum):
    """What becomes of the answer while the time is taken, in every engine alike."""

    IN_MEMORY = "kept as an Arrow table"
    IN_FILES = "written to Parquet: it grows with the input"


@dataclass(frozen=True)
class Job:
    """A job by this engine.

    ``keys`` are the columns by which rows of the answer are told apart; there are none in an answer of one row.
    ``variants`` are other ways to write the job, by name, each of which is measured like a rival.
    """

    title: str
    stream: Callable[..., flow.Stream]
    keys: tuple[str, ...]
    input: Input = Input.REPEATED
    answer: Answer = Answer.IN_MEMORY
    variants: Mapping[str, Callable[..., flow.Stream]] = field(default_factory=dict)


def _rows(tuned: bool, part: int = 1) -> int | None:  # noqa: FBT001
    return BATCH_ROWS // part if tuned else None


def _filtered(p: flow.Pipeline, files: Sequence[Path], *, tuned: bool) -> flow.Stream:
    """The checksum is an aggregate of the rows that pass (one in 110), by a key that they all have."""
    return (
        p.source(op.read_parquet(files, batch_rows=_rows(tuned)), name="bids")
        .filter(col("auction") % 123 == 0)
        .select(lit(1).alias("all"), (col("price") * 0.908).alias("price"))
        .key_by("all")
        .agg(op.count().alias("n"), col("price").sum().alias("total"), emit="final", name="checksum")
        .select("n", "total")
    )


def _totals(p: flow.Pipeline, files: Sequence[Path], *, tuned: bool, emit: str = "final") -> flow.Stream:
    return (
        p.source(op.read_parquet(files, batch_rows=_rows(tuned)), name="bids")
        .key_by("auction")
        .agg(
            op.count().alias("n"),
            col("price").sum().alias("total"),
            col("price").max().alias("top"),
            emit=emit,
            name="totals",
        )
    )


def _windows(p: flow.Pipeline, files: Sequence[Path], *, tuned: bool) -> flow.Stream:
    windows = _timed(p, files, tuned=tuned).key_by("auction").window(op.tumbling("10s"))
    return windows.agg(op.count().alias("n"), name="windows").select("auction", "window_start", "n")


def _timed(p: flow.Pipeline, files: Sequence[Path], *, tuned: bool) -> flow.Stream:
    bids = p.source(op.read_parquet(files, batch_rows=_rows(tuned, 2)), name="bids")  # for less memory
    return bids.with_watermark("event_time", delay="3s", max_drift="20s")  # a file holds 10 s


def _most(p: flow.Pipeline, files: Sequence[Path], *, tuned: bool) -> flow.Stream:
    hopping = _timed(p, files, tuned=tuned).key_by("auction").window(op.hopping("10s", every="2s"))
    counts = hopping.agg(op.count().alias("n"), name="windows")
    most = counts.window(op.same_window()).agg(col("n").max().alias("most"), name="most")
    return most.select("window_start", "most")


def _sessions(p: flow.Pipeline, files: Sequence[Path], *, tuned: bool, gap: str) -> flow.Stream:
    sessions = _timed(p, files, tuned=tuned).key_by("auction").window(op.session(gap))
    counts = sessions.agg(op.count().alias("n"), name="sessions")
    return counts.select("auction", "window_start", "window_end", "n")


def _no_totals(p: flow.Pipeline, files: Sequence[Path], *, tuned: bool, emit: str = "changes") -> flow.Stream:
    return _totals(p, files, tuned=tuned, emit=emit).filter(col("n") < 0)


def _counts(p: flow.Pipeline, files: Sequence[Path], *, tuned: bool) -> flow.Stream:
    return (
        p.source(op.read_parquet(files, batch_rows=_rows(tuned), dictionary=["channel"] if tuned else []), name="bids")
        .key_by("channel")
        .agg(op.count().alias("n"), emit="final", name="counts")
    )


def _by_category(p: flow.Pipeline, files: Sequence[Path], *, tuned: bool) -> flow.Stream:
    bids = p.source(op.read_parquet(files, batch_rows=_rows(tuned)), name="bids")
    known = bids.lookup(categories(), on="auction", name="categories")
    return known.key_by("category").agg(
        op.count().alias("n"), col("price").sum().alias("total"), emit="final", name="totals"
    )


def _joined_in_windows(p: flow.Pipeline, files: Sequence[Path], *, tuned: bool) -> flow.Stream:
    joined = _timed(p, files, tuned=tuned).join(
        _opened(p, files, tuned=tuned), on="auction", window=op.tumbling("10s"), name="join"
    )
    return joined.key_by("window_start", "reserve").agg(op.count().alias("n"), emit="final", name="counts")


def _opened(p: flow.Pipeline, files: Sequence[Path], *, tuned: bool) -> flow.Stream:
    opened = p.source(op.read_parquet(openings(files), batch_rows=_rows(tuned, 2)), name="openings")
    return opened.with_watermark("event_time", max_drift="20s")


def _joined(p: flow.Pipeline, files: Sequence[Path], *, tuned: bool) -> flow.Stream:
    bids = p.source(op.read_parquet(files, batch_rows=_rows(tuned)), name="bids")
    known = p.source(op.read_parquet(auctions(files)), name="auctions")
    return (
        bids.join(known, on="auction", name="join")
        .key_by("category")
        .agg(op.count().alias("n"), col("price").sum().alias("total"), emit="final", name="totals")
    )


def _with_last_opening(p: flow.Pipeline, files: Sequence[Path], *, tuned: bool) -> flow.Stream:
    joined = _timed(p, files, tuned=tuned).join_asof(
        _opened(p, files, tuned=tuned), by="auction", how="inner", name="join"
    )
    return joined.key_by("reserve").agg(op.count().alias("n"), emit="final", name="counts")


JOBS: Mapping[str, Job] = {
    "J1": Job("filter auction % 123 = 0, project price * 0.908, checksum", _filtered, ()),
    "J2": Job("count, sum and max of price by auction", _totals, ("auction",)),
    "J3": Job(
        "count by auction in tumbling windows of 10 s",
        _windows,
        ("auction", "window_start"),
        Input.LATER,
        Answer.IN_FILES,
    ),
    "J4": Job("count by channel, a string", _counts, ("channel",)),
    "J5": Job(
        "the highest count by auction in each window of 10 s, every 2 s",
        _most,
        ("window_start",),
        Input.LATER,
    ),
    "J6": Job(
        "J2 as signed changes, all of which are dropped",
        _no_totals,
        ("auction",),
        variants={"ours, final": partial(_no_totals, emit="final")},
    ),
    "J7": Job(
        "count by auction in sessions with a gap of 10 s",
        partial(_sessions, gap="10s"),
        ("auction", "window_start"),
        Input.LATER,
        Answer.IN_FILES,
    ),
    "J8": Job(
        "count by auction in sessions with a gap of 1 s",
        partial(_sessions, gap="1s"),
        ("auction", "window_start"),
        Input.LATER,
        Answer.IN_FILES,
    ),
    "J9": Job(
        "count and sum of price by category, looked up in a table of 10,000 auctions", _by_category, ("category",)
    ),
    "J10": Job(
        "bids joined with the openings of their auctions in windows of 10 s, counted by window and reserve",
        _joined_in_windows,
        ("window_start", "reserve"),
        Input.LATER,
    ),
    "J11": Job(
        "count and sum of price by category, bids joined with 100,000 auctions without windows", _joined, ("category",)
    ),
    "J12": Job(
        "bids joined with the last opening of their auction before them, counted by reserve",
        _with_last_opening,
        ("reserve",),
        Input.LATER,
    ),
}


def unavailable(job: str) -> str | None:
    """Why this version cannot run a job; None: it can."""
    if job == "J3" and not (hasattr(flow.Stream, "with_watermark") and hasattr(op, "tumbling")):
        return "this version has no windows yet (Stream.with_watermark, op.tumbling)"
    return None
