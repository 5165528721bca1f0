"""Users' operators that break their contract are named: what methods return, and how they open and close."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
from dataflow.errors import CleanupFailedWarning, ContractViolation
from tests.contracts.user_classes import ROWS, RUNNERS, checkpoints, doing, emitting, everywhere, failing, run, said

# --- what methods return


@everywhere
@pytest.mark.parametrize(
    ("method", "returned", "shown"),
    [
        ("process", [1], "a list"),
        ("process", pa.record_batch({"a": [1]}), "a pyarrow.lib.RecordBatch"),
        ("advance", True, "True"),
        ("finish", False, "False"),
    ],
)
def test_a_method_that_returns_no_generator_is_named(runner: str, method: str, returned: Any, shown: str) -> None:
    with pytest.raises(
        ContractViolation, match=rf"operator 'mine' .*: {method}\(\) returns None or .*returned {shown}"
    ):
        run(doing(**{method: lambda self, *_: returned}), runner)


def test_a_timer_that_returns_no_generator_is_named() -> None:
    asks = doing(open=lambda self: self.context.schedule(0), timer=lambda self, due, out: [])
    with pytest.raises(ContractViolation, match=r"timer\(\) returns None or a generator, but returned a list"):
        run(asks)


def test_a_batch_that_is_yielded_and_not_emitted_is_an_error() -> None:
    def process(self: Any, port: int, batch: Any, out: Any) -> Iterator[Any]:
        yield batch

    with pytest.raises(ContractViolation, match=r"it yielded a RecordBatch; send rows with out.emit"):
        run(doing(process=process))


def test_a_plain_iterator_may_be_returned() -> None:
    def process(self: Any, port: int, batch: Any, out: Any) -> Any:
        out.emit(batch)
        return iter([None, None])

    assert run(doing(process=process)).equals(ROWS)


def test_an_open_that_yields_is_an_error_because_it_did_not_run() -> None:
    def opened(self: Any) -> Iterator[None]:
        yield

    with pytest.raises(ContractViolation, match=r"open\(\) must be a plain method, but it returned a generator"):
        run(doing(open=opened))


@everywhere
@pytest.mark.parametrize(
    ("snapshot", "problem"),
    [
        ({"n": 1}, r"snapshot\(\) returns a Snapshot, but returned a dict"),
        (None, r"snapshot\(\) returns a Snapshot, but returned None"),
        (flow.Snapshot({"n": np.int64(3)}), r"values\['n'\] is a int64, which is not JSON-serialisable.*int\(...\)"),
        (flow.Snapshot({"n": np.float64(3)}), r"values\['n'\] is a float64"),
        (flow.Snapshot({"n": {1}}), r"values\['n'\] is a set"),
        (flow.Snapshot({"n": float("nan")}), r"values\['n'\] is nan"),
        (flow.Snapshot({"n": "\udcff"}), r"values\['n'\] is '\\udcff', which is not Unicode text"),
        (flow.Snapshot({"\udcff": 1}), r"a key of values is '\\udcff', which is not Unicode text"),
        (flow.Snapshot(logs=[1]), "logs of a Snapshot are a dict, but are a list"),  # type: ignore[arg-type]
        (
            flow.Snapshot(logs={"n": 3}),
            r"logs of a Snapshot are state with freeze\(\) and durable\(\) by name, but logs\['n'\]",
        ),
        (flow.Snapshot([1]), r"values and tables of a Snapshot are dicts, but are a list"),  # type: ignore[arg-type]
        (flow.Snapshot({}, {"t": pa.record_batch({"a": [1]})}), r"tables\['t'\] is a pyarrow.lib.RecordBatch"),  # type: ignore[dict-item]
    ],
)
def test_a_snapshot_that_no_checkpoint_can_hold_names_its_operator(runner: str, snapshot: Any, problem: str) -> None:
    with pytest.raises(ContractViolation, match=r"operator 'mine' \(Mine\), subtask .*\[0\]: .*" + problem):
        run(doing(snapshot=lambda self: snapshot), runner, checkpoint=checkpoints())


@pytest.mark.parametrize(
    ("process", "makes_time", "problem"),
    [
        (lambda self, port, batch, out: out.watermark(3), False, "does not set makes_time = True"),
        (lambda self, port, batch, out: out.idle(), False, r"calls out.idle\(\), but does not set makes_time = True"),
        (lambda self, port, batch, out: out.watermark("3"), True, "takes microseconds as an int, got '3'"),
        (
            lambda self, port, batch, out: self.context.schedule(None),
            False,
            "takes microseconds of the clock, got None",
        ),
        (
            lambda self, port, batch, out: self.context.schedule(float("nan")),
            False,
            "takes microseconds of the clock, got nan",
        ),
    ],
)
def test_a_time_that_is_none_or_not_announced_is_refused(process: Any, makes_time: object, problem: str) -> None:
    with pytest.raises(ContractViolation, match="operator 'mine'.*" + problem):
        run(type("Timed", (flow.Operator,), {"process": process, "makes_time": makes_time}))


def test_times_may_be_integers_of_numpy() -> None:
    rung: list[int] = []

    def process(self: Any, port: int, batch: Any, out: Any) -> None:
        self.context.schedule(np.int64(0))
        out.watermark(np.int64(3))
        out.emit(batch)

    def timer(self: Any, due: int, out: Any) -> None:
        rung.append(due)

    assert run(doing(process=process, timer=timer, makes_time=True)).equals(ROWS)
    assert rung


# --- building, opening, closing


@everywhere
@pytest.mark.parametrize("method", ["__init__", "open"])
def test_an_operator_that_cannot_be_built_or_opened_is_named(runner: str, method: str) -> None:
    with pytest.raises(ValueError, match="no") as caught:
        run(doing(**{method: failing}), runner)
    assert "operator 'mine'" in said(caught.value)
    assert "[0]" in said(caught.value)


def test_an_operator_that_cannot_be_closed_is_named_in_a_warning() -> None:
    with pytest.warns(
        CleanupFailedWarning, match=r"no.*raised while operator 'mine' \(Mine\), subtask in\[0\] was closed"
    ):
        assert run(doing(close=failing)).equals(ROWS)


@everywhere
@pytest.mark.parametrize("made", [None, {}, flow.Operator])
def test_a_factory_that_makes_no_operator_is_named(runner: str, made: Any) -> None:
    with pytest.raises(ContractViolation, match=r"operator 'mine', subtask in\[0\]: expected an Operator"):
        run(lambda context: made, runner)


@pytest.mark.parametrize("runner", [*RUNNERS])
def test_an_operator_without_a_constructor_keeps_its_context(runner: str) -> None:
    named = emitting(lambda batch: batch)
    asked = []
    named.open = lambda self: asked.append(self.context.name)  # type: ignore[assignment,method-assign,misc]
    assert run(named, runner).equals(ROWS)
    assert asked == ["mine"]


def test_a_constructor_of_its_own_need_not_call_the_base_class() -> None:
    assert run(doing(__init__=lambda self, context: None)).equals(ROWS)
