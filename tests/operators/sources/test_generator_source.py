"""Python generators as sources: what they may yield, how positions are kept, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock
from dataflow.contracts.source import END, Json, Source, SourceContext, SplitReader
from dataflow.errors import ConfigurationError, InputChanged, SchemaMismatch, SourceError
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from tests.seeds import seeds

NUMBERS = pa.schema({"n": pa.int64(), "s": pa.string()})
ALL = [{"n": n, "s": str(n)} for n in range(10)]


def counting(position: Json) -> Iterator[Any]:
    """One row at a time; a position is the number of the next row."""
    start = position or 0
    assert isinstance(start, int)
    for n in range(start, 10):
        yield {"n": n, "s": str(n)}, n + 1


def portions(position: Json) -> Iterator[Any]:
    """Rows in every shape; a position is the number of the next portion."""
    start = position or 0
    assert isinstance(start, int)
    shapes: list[Any] = [
        {"n": 0, "s": "0"},
        (1, "1"),
        [{"n": 2, "s": "2"}, (3, "3")],
        pa.RecordBatch.from_pylist(ALL[4:6]),
        None,
        pa.Table.from_pylist(ALL[6:7]).select(["s", "n"]),
        [],
        polars.DataFrame(ALL[7:]),
    ]
    for i in range(start, len(shapes)):
        yield shapes[i], i + 1


def reader(source: Source, offset: Json = None) -> SplitReader:
    return source.reader(source.splits()[0], offset, SourceContext("made", 0, 1, ManualClock()))


def rest(of: SplitReader, cut: int = 100) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while (batch := of.poll(cut)) is not END:
        if batch is not None:
            assert batch.num_rows <= cut
            assert batch.schema == NUMBERS
            found += batch.to_pylist()
    return found


def source(function: Callable[..., Any], **options: Any) -> Source:
    return op.from_generator(function, schema=NUMBERS, **options)


@pytest.mark.parametrize("cut", [1, 3, 100])
def test_rows_come_in_every_shape(cut: int) -> None:
    assert rest(reader(source(portions)), cut) == ALL


@given(made=st.sampled_from([counting, portions]), cuts=st.lists(st.integers(1, 5)), after=st.integers(1, 5))
def test_reading_goes_on_from_any_offset(made: Callable[..., Any], cuts: list[int], after: int) -> None:
    first, seen = reader(source(made)), []
    for cut in cuts:
        batch = first.poll(cut)
        if batch is not None and batch is not END:
            seen += batch.to_pylist()
    again = reader(source(made), first.offset)
    assert seen + rest(again, after) == ALL


def test_rows_behind_a_position_may_come_in_other_portions() -> None:
    def changing(position: Json) -> Iterator[Any]:
        yield (ALL, "end") if position is None and not restored else (ALL[:7], "seven")
        if restored:
            yield ALL[7:], "end"

    restored = False
    first = reader(source(changing))
    assert len(first.poll(8)) == 8  # type: ignore[arg-type]
    assert first.offset == {"position": None, "rows": 8}
    restored = True
    assert rest(reader(source(changing), first.offset)) == ALL[8:]


def test_rows_that_come_one_by_one_are_gathered() -> None:
    assert len(reader(source(counting)).poll(100)) == 10  # type: ignore[arg-type]


def test_batches_end_where_they_do_however_they_are_cut() -> None:
    def frame(position: Json) -> Iterator[Any]:
        yield pa.Table.from_pylist(ALL), 1

    cut = reader(source(frame, batch_rows=4))
    found = []
    while (batch := cut.poll(3)) is not END:
        assert batch is not None
        found.append((len(batch), cut.mid_batch))
    assert found == [(3, True), (1, False), (3, True), (1, False), (2, False)]


def test_a_slow_generator_is_not_waited_for_twice() -> None:
    clock = ManualClock()

    def slow(position: Json) -> Iterator[Any]:
        for row in counting(position):
            clock.advance(20_000)
            yield row

    made = source(slow)
    slow_reader = made.reader(made.splits()[0], None, SourceContext("made", 0, 1, clock))
    assert len(slow_reader.poll(100)) == 1  # type: ignore[arg-type]


def test_none_means_nothing_for_now() -> None:
    def pausing(position: Json) -> Iterator[Any]:
        yield {"n": 1, "s": "1"}, 1
        yield None
        yield None
        yield {"n": 2, "s": "2"}, 2

    paused = reader(source(pausing))
    assert [None if (b := paused.poll(9)) is None or b is END else len(b) for _ in range(4)] == [1, None, 1, None]


def test_splits_are_read_side_by_side_each_with_its_value() -> None:
    def region(factor: Json, position: Json) -> Iterator[Any]:
        assert isinstance(factor, int)
        for row, after in counting(position):
            yield {**row, "n": row["n"] * factor}, after

    p = flow.Pipeline()
    made = p.source(source(region, splits={"eu": 1, "us": 100})).collect(parallelism=2)
    assert sorted(made["n"].to_pylist()) == sorted([n * f for n in range(10) for f in (1, 100)])


def test_names_of_splits_are_their_values() -> None:
    made = source(lambda name, position: [({"n": 1, "s": name}, 1)], splits=["a", "b"])
    assert sorted(flow.Pipeline().source(made).collect()["s"].to_pylist()) == ["a", "b"]


def test_a_job_that_was_stopped_goes_on_behind_its_checkpoint(tmp_path: Path) -> None:
    asked: list[Json] = []

    def endless(position: Json) -> Iterator[Any]:
        asked.append(position)
        start = position or 0
        assert isinstance(start, int)
        for n in range(start, start + 10_000_000):
            yield {"n": n, "s": str(n)}, n + 1

    def run() -> flow.RunResult:
        with flow.Pipeline("endless") as p:
            p.source(source(endless, bounded=False), name="numbers").sink(op.collect(), name="out")
        with p.start(checkpoint=flow.Checkpointing(tmp_path / "checkpoints", every="1h")) as job:
            while not job.progress().rows_in:  # a checkpoint may come before the first row
                pass
            job.checkpoint(timeout="30s")
            return job.stop()

    run()
    found = run().table("out")["n"].to_pylist()
    assert asked[0] is None
    assert isinstance(asked[1], int)
    assert found == list(range(len(found)))


@pytest.mark.parametrize("mode", ["aligned", "unaligned-persisted"])
@pytest.mark.parametrize("seed", seeds(2, 5))
def test_nothing_is_lost_or_doubled_over_crashes(mode: str, seed: int) -> None:
    def many(name: Json, position: Json) -> Iterator[Any]:
        start = position or 0
        assert isinstance(start, int)
        for n in range(start, 100, 5):
            yield [(i, str(name)) for i in range(n, n + 5)], n + 5

    def no_sevens(row: dict[str, Any]) -> dict[str, Any]:
        assert row["n"] % 7, "a seven"
        return row

    with flow.Pipeline("crashing") as p:
        made = p.source(source(many, splits=["a", "b"], batch_rows=3), name="numbers")
        mapped = made.rebalance().map(no_sevens, on_error="side", name="no_sevens")
        mapped.sink(op.collect(), name="out")
        mapped.side("errors").sink(op.collect(), name="errors")
    runner = SimulatedRunner(seed=seed, faults=Faults(crashes=3, slices=0.5))
    result = p.run(runner, parallelism=2, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms", mode=mode))
    found = sorted((row["n"], row["s"]) for row in result.table("out").to_pylist())
    assert found == [(n, s) for n in range(100) if n % 7 for s in "ab"]
    assert result.table("errors").num_rows == 30


def test_without_positions_checkpoints_are_at_most_once() -> None:
    def plain() -> Iterator[Any]:
        yield from ALL

    made = source(plain, replayable=False)
    assert (made.replayable, made.accepts_loss) == (False, True)
    result = numbers(made).run(checkpoint=flow.Checkpointing(flow.MemoryStore()))
    assert result.table("out").to_pylist() == ALL
    assert result.guarantee is flow.Guarantee.AT_MOST_ONCE


def numbers(made: Source) -> flow.Pipeline:
    with flow.Pipeline("numbers") as p:
        p.source(made, name="numbers").sink(op.collect(), name="out")
    return p


@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        (({"n": "x", "s": "x"}, 1), SchemaMismatch, r"column 'n' should be int64 but the row has 'x' \(str\)"),
        (({"n": 1}, 1), SchemaMismatch, "column 's' is missing"),
        (((1, "x", 3), 1), SchemaMismatch, r"a tuple must have a value for each of the columns \['n', 's'\], got"),
        ((7, 1), TypeError, r"expected a dict, a tuple, a list of these, .* got 7 \(int\)"),
        ((pa.table({"n": [1]}), 1), SchemaMismatch, "'s' .string. is missing"),
        ({"n": 1, "s": "x"}, SourceError, r"expected a pair \(rows, position\) or None.* needs replayable=False"),
        (({"n": 1, "s": "x"}, None), SourceError, "position None means the beginning"),
        (({"n": 1, "s": "x"}, date(2026, 1, 1)), SourceError, r"a position must be JSON .*got datetime.date"),
        (({"n": 1, "s": "x"}, np.int64(1)), SourceError, r"a position must be JSON .*numpy numbers as int"),
        (({"n": 1, "s": "x"}, (1, 2)), SourceError, r"but \(1, 2\) becomes \[1, 2\]; use that"),
        (({"n": 1, "s": "x"}, {1: 2}), SourceError, r"becomes {'1': 2}"),
        (({"n": 1, "s": "x"}, float("nan")), SourceError, "a position must be JSON"),
    ],
)
def test_what_may_not_be_yielded_is_refused(item: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"from_generator 'numbers', split 'generator': .*{message}"):
        numbers(source(lambda position: iter([item]))).run("simulated")


def test_a_row_that_does_not_fit_is_shown_whole() -> None:
    with pytest.raises(SchemaMismatch) as raised:
        rest(reader(source(lambda position: [([(1, "a"), ("b", "b")], 1)])))
    assert "the row is {'n': 'b', 's': 'b'}" in raised.value.__notes__


def test_a_function_that_yields_nothing_to_iterate_over_is_refused() -> None:
    with pytest.raises(SourceError, match=r"the function must yield, .* got None"):
        reader(source(lambda position: None))


def test_fewer_rows_than_before_are_noticed() -> None:
    with pytest.raises(InputChanged, match=r"after position 8 it yielded fewer rows .* 3 of 5 are missing"):
        rest(reader(source(counting), {"position": 8, "rows": 5}))


def test_rows_that_are_dropped_after_a_restore_still_count_as_read() -> None:
    def frames(position: Json) -> Iterator[Any]:
        start = position or 0
        assert isinstance(start, int)
        for i in range(start, 4):
            yield pa.Table.from_pylist(ALL[3 * i : 3 * i + 3]), i + 1

    again = reader(source(frames), {"position": None, "rows": 8})
    assert (again.poll(100), again.offset) == (None, {"position": 1, "rows": 5})
    assert rest(reader(source(frames), again.offset)) == ALL[8:]


def test_a_generator_is_closed_with_its_reader() -> None:
    closed: list[bool] = []

    def tidy(position: Json) -> Iterator[Any]:
        try:
            yield from counting(position)
        finally:
            closed.append(True)

    opened = reader(source(tidy))
    opened.poll(1)
    opened.close()
    assert closed == [True]


def test_other_splits_than_those_of_the_checkpoint_are_refused() -> None:
    old = source(counting, splits={"eu": 1}).splits()[0]
    with pytest.raises(InputChanged, match=r"'eu' was .*1.* when the checkpoint was taken and is .*2"):
        source(counting, splits={"eu": 2}).check(old)
    with pytest.raises(InputChanged, match=r"has split 'eu', now there are \['us'\]"):
        source(counting, splits=["us"]).check(old)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"function": counting(None)}, "expected a function that yields, got generator"),
        ({"schema": {"n": int}}, "expected a pyarrow.Schema, got dict"),
        ({"splits": "eu"}, "takes names, or values by name"),
        ({"splits": []}, "takes names, or values by name"),
        ({"splits": ["a", "a"]}, "names must differ"),
        ({"splits": {"a": date(2026, 1, 1)}}, "the value of 'a' must be JSON"),
        ({"batch_rows": 0}, "at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        op.from_generator(**{"function": counting, "schema": NUMBERS, **options})
