"""Windowed aggregates against a model of the four rules, through restores, and with rows folded beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.contracts.folding import FoldAll
from dataflow.contracts.incremental import Incremental
from dataflow.contracts.kept_rows import Keep, KeepMany, KeepNone
from dataflow.contracts.operator import Snapshot
from dataflow.contracts.row_errors import LATE
from dataflow.contracts.window_kinds import Tumbling
from dataflow.contracts.windows import EventTime
from dataflow.errors import CheckpointDamaged
from dataflow.expressions import Aggregation, col, count
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.aggregate_specs import WindowAggregate as Spec
from dataflow.planning.checks import edge_type
from dataflow.state.hashing import key_group_range
from dataflow.state.parts import resolved
from operators.aggregation.combine import CombineOperator
from operators.stateful.columns import is_partial
from operators.windows.aggregate import WindowAggregateOperator
from tests.operators.operating import Emitted, context_of, drained, joined, made, rows_of, stored
from tests.seeds import in_soak, part_of_the_examples

SCHEMA = pa.schema({"k": pa.string(), "x": pa.int64(), "t": pa.timestamp("us")})
AGGREGATIONS = (count().alias("n"), col("x").sum().alias("s"))
END = 2**63 - 1
Row = tuple[str, int, int]


class Windows:
    """A WindowAggregate with what an engine gives it; the arguments of ``feed`` are rows (key, x, time)."""

    def __init__(
        self,
        size: int = 10,
        *,
        lateness: int = 0,
        offset: int = 0,
        schema: pa.Schema = SCHEMA,
        aggregations: Sequence[Aggregation] = AGGREGATIONS,
        restored: Snapshot | None = None,
        groups: range = range(128),
    ) -> None:
        self.schema, self.out = schema, Emitted()
        self.spec = Spec(("k",), EventTime("t"), Tumbling(size, offset), lateness, tuple(aggregations), Emit.UPDATES)
        kind = edge_type(schema.field("t").type, self.spec.window)
        edges = [pa.field("window_start", kind), pa.field("window_end", kind)]
        results = [pa.field(a.name, a.dtype(schema)) for a in aggregations]
        self.context = context_of(
            schema, pa.schema([schema.field("k"), *edges, *results]), restored=restored, groups=groups
        )
        operator = WindowAggregateOperator(
            self.context, ("k",), EventTime("t"), self.spec.window, lateness, aggregations
        )
        self.operator = made(operator, self.context)

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        columns = list(zip(*rows, strict=True)) or [[], [], []]
        return pa.record_batch(
            [pa.array(c, t) for c, t in zip(columns, self.schema.types, strict=True)], schema=self.schema
        )

    def feed(self, *rows: Row) -> list[tuple[object, ...]]:
        return self.take(self.batch(rows))

    def take(self, batch: pa.RecordBatch) -> list[tuple[object, ...]]:
        drained(self.operator.process(0, batch, self.out))
        return self.results()

    def shown(self, state: Snapshot) -> list[dict[str, Any]]:
        """The state as predicates see it."""
        shown = WindowAggregateOperator.show(self.spec, state, [self.schema], self.context.output_schema)
        return shown.tables["rows"].to_pylist()

    def advance(self, watermark: int) -> list[tuple[object, ...]]:
        drained(self.operator.advance(watermark, self.out))
        return self.results()

    def results(self) -> list[tuple[object, ...]]:
        """(key, start, n, s) of every row that came out."""
        batches = self.out.batches.pop(None, [])
        found = []
        for batch in batches:
            starts = batch.column("window_start").cast(pa.int64()).to_pylist()
            ends = batch.column("window_end").cast(pa.int64()).to_pylist()
            keys, *values = (batch.column(i).to_pylist() for i in (0, *range(3, batch.num_columns)))
            assert all(end > start for start, end in zip(starts, ends, strict=True))
            found += list(zip(keys, starts, *values, strict=True))
        return found


def test_a_window_comes_out_when_the_watermark_reaches_its_end() -> None:
    w = Windows()
    assert w.feed(("a", 1, 3), ("a", 2, 9), ("a", 5, 10)) == []
    assert w.advance(9) == []
    assert w.advance(10) == [("a", 0, 2, 3)]
    assert w.advance(END) == [("a", 10, 1, 5)]


def test_times_before_the_epoch_fall_into_windows_before_it() -> None:
    w = Windows()
    w.feed(("a", 1, -1), ("a", 1, -10), ("a", 1, -11))
    assert w.advance(END) == [("a", -20, 1, 1), ("a", -10, 2, 2)]


def test_an_offset_moves_the_edges() -> None:
    w = Windows(offset=3)
    w.feed(("a", 1, 2), ("a", 1, 3), ("a", 1, 12))
    assert w.advance(END) == [("a", -7, 1, 1), ("a", 3, 2, 2)]


def test_a_row_is_late_when_its_window_ends_at_or_below_the_watermark() -> None:
    w = Windows()
    w.advance(10)
    assert w.feed(("a", 1, 9), ("a", 2, 10)) == []
    assert (w.context.tally.late, w.out.take(LATE)[0][:2]) == (1, ("a", 1))
    assert w.advance(END) == [("a", 10, 1, 2)]


def test_lateness_counts_from_the_moment_a_window_takes_no_more_rows() -> None:
    w = Windows(lateness=5)
    w.advance(18)
    w.feed(("a", 1, 9), ("a", 1, -1))
    lateness = w.context.tally.lateness
    assert (lateness.checked, lateness.buckets, lateness.most) == (2, {3: 1, 13: 1}, 13)


def test_a_row_older_than_the_watermark_is_not_late_while_its_window_is_open() -> None:
    w = Windows()
    w.advance(8)
    w.feed(("a", 1, 2))
    assert (w.context.tally.late, w.advance(10)) == (0, [("a", 0, 1, 1)])


def test_rows_of_one_batch_never_make_each_other_late() -> None:
    w = Windows()
    w.feed(("a", 1, 1_000), ("a", 1, 0))
    assert (w.context.tally.late, len(w.advance(END))) == (0, 2)


def test_allowed_lateness_brings_a_result_out_again() -> None:
    w = Windows(lateness=5)
    w.feed(("a", 1, 1), ("b", 1, 1))
    assert sorted(w.advance(10)) == [("a", 0, 1, 1), ("b", 0, 1, 1)]
    assert w.feed(("a", 2, 2), ("a", 7, 11)) == [("a", 0, 2, 3)]
    assert w.advance(14) == []
    assert w.feed(("b", 4, 3)) == [("b", 0, 2, 5)]
    assert w.advance(15) == []
    assert w.feed(("b", 4, 3)) == []
    assert (w.context.tally.late, w.advance(END)) == (1, [("a", 10, 1, 7)])


def test_of_a_pane_with_open_windows_only_those_that_were_out_come_out_again() -> None:
    w = Windows(lateness=1000)
    w.feed(*(("a", 1, 10 * i) for i in range(32)))
    assert len(w.operator._panes) < 32, "no pane has several windows"
    w.advance(10)
    assert w.feed(("a", 5, 3), ("a", 7, 13)) == [("a", 0, 2, 6)]


def test_state_is_dropped_with_its_last_window() -> None:
    w = Windows(lateness=5)
    w.feed(("a", 1, 1), ("a", 1, 11))
    w.advance(15)
    assert len(rows_of(stored(w.operator.snapshot()))) == 1
    w.advance(25)
    assert not len(rows_of(stored(w.operator.snapshot())))


def test_the_shown_state_has_no_windows_that_are_complete() -> None:
    """Neither those that share a pane with open ones, nor those that only older parts of a checkpoint hold."""
    w = Windows()
    w.feed(*[("a", 1, time) for time in range(0, 200, 10)], ("b", 5, 195))
    taken = w.operator.snapshot()
    log = taken.logs["state"]
    assert isinstance(log, Incremental)
    base = {name: reader.read_all() for name, reader in log.freeze(1, None).items()}
    assert len(w.shown(replace(taken, logs={"state": [base]}))) == 21
    log.durable(1)
    w.advance(185)
    w.feed(("a", 2, 199), ("c", 7, 300))
    delta = {name: reader.read_all() for name, reader in log.freeze(2, 1).items()}
    state = replace(w.operator.snapshot(), logs={"state": [base, delta]})
    shown = [(row["k"], row["window_start"].microsecond, row["n"], row["s"]) for row in w.shown(state)]
    assert sorted(shown) == [("a", 180, 1, 1), ("a", 190, 2, 3), ("b", 190, 1, 5), ("c", 300, 1, 7)]
    whole = resolved([base, delta])["keys"]
    assert sorted(whole.column(1).to_pylist()) == [*range(18), 18, 19, 19, 30]


def test_a_null_time_is_refused_with_a_way_out() -> None:
    w = Windows()
    with pytest.raises(ValueError, match=r"1 event times are null in 't'.*on_error="):
        w.take(pa.record_batch([["a"], [1], pa.array([None], pa.timestamp("us"))], schema=SCHEMA))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_every_unit_of_time_gives_the_same_windows(unit: str) -> None:
    schema = SCHEMA.set(2, pa.field("t", pa.timestamp(unit, "UTC")))
    w = Windows(10_000_000, schema=schema)
    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    w.feed(("a", 1, -1), ("a", 1, 9 * per_second), ("a", 1, 10 * per_second))
    assert w.advance(END) == [("a", start * per_second, 1, 1) for start in (-10, 0, 10)]


def test_windows_finer_than_the_unit_have_finer_edges() -> None:
    schema = SCHEMA.set(2, pa.field("t", pa.timestamp("s")))
    w = Windows(500_000, schema=schema)
    w.feed(("a", 1, 1), ("a", 1, 2))
    assert w.advance(END) == [("a", 1_000_000, 1, 1), ("a", 2_000_000, 1, 1)]


def test_a_time_too_large_for_the_edges_is_an_error_not_another_time() -> None:
    schema = SCHEMA.set(2, pa.field("t", pa.timestamp("s")))
    with pytest.raises(OverflowError, match="event time does not fit"):
        Windows(500_000, schema=schema).feed(("a", 1, 2**62))


@pytest.mark.parametrize(("number", "words"), [(None, "2 of 2 stored rows have no"), (2**62, "out of range")])
@pytest.mark.parametrize("watermark", [-50, 5])
def test_numbers_that_no_window_has_are_refused(number: int | None, words: str, watermark: int) -> None:
    w = Windows()
    w.advance(watermark)
    w.feed(("a", 1, 15), ("b", 1, 25))
    good = stored(w.operator.snapshot())
    rows = rows_of(good)
    numbers = pa.array([number] * rows.num_rows, pa.int64())
    wrong = rows.set_column(1, rows.schema.field(1), numbers).replace_schema_metadata(rows.schema.metadata)
    with pytest.raises(CheckpointDamaged, match=f"op: state: .*{words}"):
        Windows(restored=replace(good, logs={"state": [{"keys": wrong}]}))


def test_a_restored_operator_remembers_what_is_late() -> None:
    w = Windows()
    w.advance(10)
    again = Windows(restored=stored(w.operator.snapshot()))
    again.feed(("a", 1, 9))
    assert again.context.tally.late == 1


def test_states_of_several_subtasks_can_be_joined_and_divided_by_key() -> None:
    whole = Windows()
    whole.feed(*[(f"k{i}", i, i % 40) for i in range(200)])
    snapshot = stored(whole.operator.snapshot())
    parts = [Windows(restored=snapshot, groups=key_group_range(i, 3, 128)) for i in range(3)]
    assert sorted(row for part in parts for row in part.advance(END)) == sorted(whole.advance(END))


def test_states_that_were_joined_in_any_order_come_out_in_order_of_time() -> None:
    parts = []
    for key, time in (("late", 25), ("early", 5)):
        w = Windows()
        w.feed((key, 1, time))
        parts.append(stored(w.operator.snapshot()))
    again = Windows(restored=joined(*parts))
    assert [again.advance(10), again.advance(30)] == [[("early", 0, 1, 1)], [("late", 20, 1, 1)]]


@dataclass
class Model:
    """The rules, row by row."""

    size: int
    lateness: int
    offset: int
    groups: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    late: int = 0
    watermark: int | None = None

    def feed(self, rows: Sequence[Row]) -> None:
        for key, x, time in rows:
            start = (time - self.offset) // self.size * self.size + self.offset
            if self.watermark is not None and start + self.size + self.lateness <= self.watermark:
                self.late += 1
            else:
                self.groups.setdefault((key, start), []).append(x)

    def results(self) -> dict[tuple[object, ...], tuple[object, ...]]:
        return {key: (len(xs), sum(xs)) for key, xs in self.groups.items()}


def folded(w: Windows, batch: pa.RecordBatch) -> pa.RecordBatch:
    """What a Combine in front of ``w`` makes of a batch: records."""
    out, operator = Emitted(), CombineOperator(context_of(w.schema, w.schema), w.spec)
    operator.folding = FoldAll()
    operator.process(0, batch, out)
    (records,) = out.batches[None]
    assert is_partial(records.schema)
    return records


STEPS = st.lists(
    st.one_of(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.integers(-9, 9), st.integers(-200, 3_000)), min_size=1, max_size=40
        ),
        st.integers(-100, 3_100),
        st.just("restore"),
    ),
    max_size=14,
)


@part_of_the_examples(2)
@given(STEPS, st.sampled_from([1, 7, 10, 1_000]), st.sampled_from([0, 0, 15, 400]), st.integers(0, 9), st.booleans())
def test_the_last_row_of_every_window_is_that_of_the_model(
    steps: list[object],
    size: int,
    lateness: int,
    offset: int,
    fold_first: bool,  # noqa: FBT001
) -> None:
    offset %= size
    w, model = Windows(size, lateness=lateness, offset=offset), Model(size, lateness, offset)
    last: dict[tuple[object, ...], tuple[object, ...]] = {}
    late = 0
    for step in [*steps, END]:
        if step == "restore":
            late += w.context.tally.late
            w = Windows(size, lateness=lateness, offset=offset, restored=stored(w.operator.snapshot()))
            continue
        if isinstance(step, int):
            if model.watermark is not None and step <= model.watermark:
                continue
            model.watermark = step
            rows = w.advance(step)
        else:
            assert isinstance(step, list)
            model.feed(step)
            rows = w.take(folded(w, w.batch(step)) if fold_first else w.batch(step))
        last.update({(key, start): values for key, start, *values in map(list, rows)})
    assert {key: tuple(values) for key, values in last.items()} == model.results()
    assert late + w.context.tally.late == model.late


def test_many_windows_share_panes_and_come_out_in_order() -> None:
    w = Windows(1)
    rng = np.random.default_rng(7)
    times = rng.permutation(5_000).tolist()
    for start in range(0, 5_000, 500):
        w.feed(*[("a", t, t) for t in times[start : start + 500]])
    found = w.advance(END)
    assert sorted(found) == [("a", t, 1, t) for t in range(5_000)]
    assert len(list(w.operator._panes)) == 0


@pytest.mark.parametrize("batches", [1_100, *in_soak(2_000)])
def test_a_batch_spread_over_many_windows_makes_few_panes(batches: int) -> None:
    w = Windows(1)
    w.feed(*[("a", 1, t) for t in range(100_000)])
    assert len(w.operator._panes) <= 40
    w = Windows(1)
    for start in range(0, 10 * batches, 10):
        w.feed(*[("a", 1, t) for t in range(start, start + 10)])
    assert len(w.operator._panes) <= 1_000  # and not one for each batch


@pytest.mark.parametrize("keep", [KeepNone(), KeepMany()])
def test_folding_pauses_where_it_does_not_pay_and_the_result_stays_the_same(keep: Keep) -> None:
    w = Windows(1_000_000)
    out = Emitted()
    fold = CombineOperator(context_of(w.schema, w.schema), replace(w.spec, emit=Emit.FINAL))
    fold.keep = keep  # windows keep nothing back
    rows = [(f"k{i}", i, i) for i in range(6_000)]
    for _ in range(3):
        fold.process(0, w.batch(rows), out)
    assert [is_partial(batch.schema) for batch in out.batches[None]] == [False, False, False]
    for batch in out.batches[None]:
        w.take(batch)
    assert sorted(w.advance(END)) == sorted((key, 0, 3, 3 * x) for key, x, _ in rows)


def test_folding_pauses_after_a_batch_whose_first_rows_promised_more_than_the_rest_kept() -> None:
    w = Windows(1_000_000)
    out = Emitted()
    fold = CombineOperator(context_of(w.schema, w.schema), w.spec)
    rows = [(f"k{max(0, i - 2_000)}", i, i) for i in range(6_000)]
    for _ in range(3):
        fold.process(0, w.batch(rows), out)
    assert [is_partial(batch.schema) for batch in out.batches[None]] == [True, False, False]
    for batch in out.batches[None]:
        w.take(batch)
    sums = {key: 3 * sum(x for k, x, _ in rows if k == key) for key in ("k0", "k1", "k3999")}
    assert {key: total for key, _, _, total in w.advance(END) if key in sums} == sums


@pytest.mark.parametrize("seed", [1, *in_soak(0, *range(2, 20))])
def test_no_window_is_in_two_panes_however_many_there_are(seed: int) -> None:
    """Batches of a few windows each, near and far, over so many that panes crowd; the watermark follows far behind."""
    chance = np.random.default_rng(seed)
    w, last, rows = Windows(1), dict[object, object](), 0
    for batch in range(400):
        middle = batch * 40 if seed % 2 else int(chance.integers(0, 16_000))
        times = middle + chance.integers(0, [3, 60, 2_000][batch % 3], 12)
        rows += len(times)
        w.feed(*[("a", 1, int(time)) for time in times])
        if seed % 2 and batch > 200:
            for key, start, count_, _ in w.advance((batch - 200) * 40):
                assert (key, start) not in last, f"window {start} came out twice"
                last[key, start] = count_
    for key, start, count_, _ in w.advance(END):
        assert (key, start) not in last, f"window {start} came out twice"
        last[key, start] = count_
    assert sum(last.values()) + w.context.tally.late == rows  # type: ignore[arg-type]
