"""A run warns of operators that keep all rows of input without an end, and says what limits them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import GrowingStateWarning

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
