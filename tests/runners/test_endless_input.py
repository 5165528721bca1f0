"""A run warns of operators that keep all rows of an endless input, or emit at its end, and says what helps."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import EndlessInputWarning, GrowingStateWarning
from dataflow.runners.endless_input import warn_of_endless_input

RUNNERS = ["local", "simulated"]


def joined(*, ends: bool, **options: Any) -> flow.Stream:
    """Numbers with numbers."""
    p = flow.Pipeline("numbers")
    left = p.source(op.generate({"n": op.sequence()}, rows=50 if ends else None, batch_rows=10), name="left")
    right = p.source(op.from_arrow(pa.table({"n": list(range(20))})), name="right")
    return left.join(right, on="n", name="pairs", **options)


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_join_of_endless_input_warns_and_names_what_limits_it(runner: str) -> None:
    with pytest.warns(GrowingStateWarning, match=r"'pairs' keeps its rows.*limit it with ttl=, within= or window="):
        joined(ends=False).head(5, runner=runner)


def numbers() -> flow.Stream:
    return flow.Pipeline().source(op.generate({"n": op.sequence()}, batch_rows=10), name="numbers")


CHOSEN: dict[str, Callable[[flow.Stream, Any], flow.Stream]] = {
    "first": lambda rows, ttl: rows.unique("n", ttl=ttl, name="chosen"),
    "last": lambda rows, ttl: rows.unique("n", keep="last", ttl=ttl, name="chosen"),
    "top": lambda rows, ttl: rows.key_by("n").top(1, by="n", ttl=ttl, name="chosen"),
}


@pytest.mark.parametrize("kind", CHOSEN)
def test_chosen_rows_of_endless_input_warn_unless_they_have_a_time_to_live(kind: str) -> None:
    with pytest.warns(GrowingStateWarning, match=r"'chosen' keeps its rows.*limit it with ttl="):
        CHOSEN[kind](numbers(), None).head(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GrowingStateWarning)
        assert CHOSEN[kind](numbers(), "1h").head(5).num_rows == 5


UPDATES = "its results never come; give emit='changes', or emit='updates'"
CHANGES = "its results never come; give emit='changes'"
EARLY = "its results never come; give window(early=...) a trigger"
LONELY = "rows without a counterpart never come; give emit='changes'"


def keyed() -> flow.KeyedStream:
    return numbers().key_by("n")


def signed() -> flow.KeyedStream:
    return keyed().agg(m=op.count(), emit="changes", name="signed").key_by("m")


def triggered(**options: Any) -> flow.Stream:
    return keyed().window(op.global_window(), **options).agg(op.count())


AT_THE_END: dict[str, tuple[Callable[[], flow.Stream], str]] = {
    "global window": (lambda: triggered(), EARLY),
    "global window without keys": (lambda: numbers().window(op.global_window()).agg(op.count()), EARLY),
    "changes of a global window": (lambda: keyed().window(op.global_window()).agg(op.count(), emit="changes"), EARLY),
    "discarding panes": (lambda: triggered(panes="discarding"), EARLY),
    "aggregate": (lambda: keyed().agg(op.count(), emit="final"), UPDATES),
    "aggregate without keys": (lambda: numbers().agg(op.count(), emit="final"), UPDATES),
    "aggregate of changes": (lambda: signed().agg(op.count(), emit="final"), CHANGES),
    "last of key": (lambda: numbers().unique("n", keep="last", emit="final"), CHANGES),
    "top": (lambda: keyed().top(1, by="n", emit="final"), CHANGES),
    "top of changes": (lambda: signed().top(1, by="n", emit="final"), CHANGES),
    "left join": (lambda: joined(ends=False, how="left", emit="final"), LONELY),
}


@pytest.mark.parametrize("kind", AT_THE_END)
def test_what_an_endless_input_never_emits_is_warned_of_with_what_emits_it(kind: str) -> None:
    build, text = AT_THE_END[kind]
    (warning,) = endless(build())
    assert warning.endswith(f"has no end, so {text}")


def endless(stream: flow.Stream) -> list[str]:
    """The warnings of results that never come."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        warn_of_endless_input("p", stream._pipeline.graph)
    return [str(warning.message) for warning in caught if warning.category is EndlessInputWarning]


BEFORE_THE_END: dict[str, Callable[[], flow.Stream]] = {
    "panes by rows": lambda: triggered(early=op.after_rows(100)),
    "panes by the clock": lambda: triggered(early=op.after_time("1s")),
    "panes that add up": lambda: triggered(early=op.after_rows(100), panes="discarding"),
    "count windows": lambda: keyed().window(op.count_window(100)).agg(op.count()),
    "updates": lambda: keyed().agg(op.count()),
    "shown rows": lambda: joined(ends=False, how="left"),
    "rows that expire": lambda: joined(ends=False, how="left", ttl="1h"),
    "inner join": lambda: joined(ends=False),
    "top": lambda: keyed().top(1, by="n"),
    "an end": lambda: joined(ends=True, how="left").window(op.global_window()).agg(op.count(), emit="final"),
}


@pytest.mark.parametrize("kind", BEFORE_THE_END)
def test_what_is_emitted_before_the_end_is_not_warned_of(kind: str) -> None:
    assert endless(BEFORE_THE_END[kind]()) == []


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_job_warns_when_it_starts(runner: str) -> None:
    with flow.Pipeline("counted") as p:
        rows = p.source(op.generate({"n": op.sequence()}, batch_rows=10), name="numbers")
        rows.window(op.global_window()).agg(op.count(), name="all").sink(op.collect())
    with pytest.warns(EndlessInputWarning, match="the input of 'all' has no end"), p.start(runner) as job:
        job.cancel()


@pytest.mark.parametrize("options", [{"ends": True}, {"ends": False, "ttl": "1h"}])
def test_a_join_that_is_limited_does_not_warn(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", GrowingStateWarning)
        assert joined(**options).head(5).num_rows == 5


@pytest.mark.parametrize("late", ["left", "right"])
def test_late_rows_of_a_join_warn_until_their_side_is_read(late: str) -> None:
    def run(*tags: str) -> list[str]:
        times = {"left": [50, 60], "right": [50, 60], late: [50, 1, 60]}
        with flow.Pipeline() as p:
            left, right = (
                p.source(
                    op.from_arrow(pa.table({"k": [1] * len(at), "at": pa.array(at, pa.timestamp("us"))}), batch_rows=1),
                    name=name,
                ).with_watermark("at")
                for name, at in times.items()
            )
            pairs = left.join(right, on="k", within=("0us", "1us"), name="pairs")
            pairs.select(col("k")).sink(op.collect(), name="out")
            for tag in tags:
                pairs.side(tag).sink(op.collect(), name=tag)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = next(r for r in (p.run(flow.SimulatedRunner(seed)) for seed in range(100)) if r.late)
        assert result.operator("pairs").late_right == (late == "right")
        return [str(warning) for warning in result.warnings]

    own, other = ("late", "late_right") if late == "left" else ("late_right", "late")
    (warning,) = run(other)
    assert "1 row (" in warning
    assert f"read them with .side({own!r}); " in warning
    assert run(own) == []
