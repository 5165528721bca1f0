"""Made-up rows: the same ones however they are cut, wherever reading begins, and at the rate that was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock
from dataflow.contracts.source import END, Json, Source, SourceContext
from dataflow.errors import ConfigurationError, InputChanged
from operators.sources.recipes import Draws, Recipe, rate_of

COLUMNS: dict[str, Recipe] = {
    "id": op.sequence(),
    "user": op.choice(["ann", "bob", None], weights=[5, 4, 1]),
    "n": op.integers(-5, 5),
    "price": op.uniform(1, 100),
    "size": op.normal(10, 2),
    "at": op.event_times("2026-01-01T00:00:00+00:00", rate="100/s", disorder="3s"),
}


def rows(source: Source, cut: int, offset: Json = None) -> list[dict[str, Any]]:
    """All rows, in batches of ``cut``, every split read from ``offset`` on."""
    found = []
    for split in source.splits():
        reader = source.reader(split, offset, SourceContext("made", 0, 1, ManualClock()))
        while (batch := reader.poll(cut)) is not END:
            assert batch is not None
            assert batch.schema == source.schema
            found += batch.to_pylist()
    return found


def by_id(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: row["id"])


def values(recipe: Recipe, count: int = 20_000) -> list[Any]:
    return recipe.column(Draws(np.arange(count), 7, "c")).to_pylist()


@pytest.mark.parametrize("splits", [1, 2, 3])
@pytest.mark.parametrize("cut", [1, 7, 1_000])
def test_rows_do_not_depend_on_batches_or_splits(splits: int, cut: int) -> None:
    whole = rows(op.generate(COLUMNS, rows=100), cut=100)
    assert by_id(rows(op.generate(COLUMNS, rows=100, splits=splits), cut)) == whole
    assert [row["id"] for row in whole] == list(range(100))


def test_reading_goes_on_where_it_stopped() -> None:
    source = op.generate(COLUMNS, rows=100)
    assert rows(source, 10, offset=35) == rows(source, 10)[35:]


def test_batches_end_where_they_do_however_they_are_cut() -> None:
    source = op.generate({"id": op.sequence()}, rows=25, batch_rows=10)
    reader = source.reader(source.splits()[0], 2, SourceContext("made", 0, 1, ManualClock()))
    found = []
    while (batch := reader.poll(5)) is not END:
        assert batch is not None
        found.append((len(batch), reader.mid_batch))
    assert found == [(5, True), (3, False), (5, True), (5, False), (5, False)]


def test_another_seed_gives_other_rows() -> None:
    drawn = [[row["price"] for row in rows(op.generate(COLUMNS, rows=50, seed=seed), 50)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1]
    assert not set(drawn[0]) & set(drawn[2])


def test_a_column_does_not_depend_on_the_others() -> None:
    source = op.generate(COLUMNS, rows=50)
    assert rows(source.select(["price"]), 50) == [{"price": row["price"]} for row in rows(source, 50)]


def test_two_columns_of_one_recipe_differ() -> None:
    pairs = rows(op.generate({"a": op.uniform(), "b": op.uniform()}, rows=50), 50)
    assert all(row["a"] != row["b"] for row in pairs)


def test_integers_are_spread_evenly_over_their_range() -> None:
    counts = np.bincount(np.array(values(op.integers(-5, 5))) + 5)
    assert counts.size == 10
    assert np.all(abs(counts - 2_000) < 200)


def test_integers_span_64_bits() -> None:
    drawn = values(op.integers(-(2**63), 2**63 - 1), 1_000)
    assert min(drawn) < -(2**61) < 2**61 < max(drawn)


def test_uniform_and_normal_have_their_moments() -> None:
    flat, bell = np.array(values(op.uniform(10, 20))), np.array(values(op.normal(5, 2)))
    assert 10 <= flat.min() < flat.max() < 20
    assert abs(flat.mean() - 15) < 0.1
    assert abs(bell.mean() - 5) < 0.1
    assert abs(bell.std() - 2) < 0.1


def test_choices_come_as_often_as_their_weights_say() -> None:
    drawn = values(op.choice(["a", "b", None], weights=[6, 0, 2]))
    assert set(drawn) == {"a", None}
    assert abs(drawn.count("a") / len(drawn) - 0.75) < 0.02


@pytest.mark.parametrize("rate", ["0.123456789/s", "1000/s", "7/h"])
def test_event_times_are_exact_at_any_rate_and_row(rate: str) -> None:
    recipe, per_us = op.event_times("1970-01-01", rate=rate), rate_of(rate, "rate")
    rows = np.array([0, 1, 9_223, 9_224, 10_000_000, 10**9])
    made = recipe.column(Draws(rows, 0, "at")).cast("int64").to_pylist()
    assert made == [int(row // per_us) for row in rows.tolist()]


@pytest.mark.parametrize("recipe", [op.event_times("1970-01-01", rate="0.123456789/h"), op.sequence(0, 2**61)])
def test_values_that_64_bits_do_not_hold_are_refused(recipe: Recipe) -> None:
    with pytest.raises(ConfigurationError, match="64 bits"):
        recipe.column(Draws(np.array([4, 10**10]), 0, "at"))


def test_event_times_are_never_further_back_than_the_disorder() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    lags = [
        start + timedelta(milliseconds=10) * i - at
        for i, at in enumerate(values(op.event_times(start, rate="100/s", disorder="3s"), 1_000))
    ]
    assert timedelta(0) <= min(lags) < timedelta(seconds=1)
    assert timedelta(seconds=2) < max(lags) <= timedelta(seconds=3)


def test_a_rate_is_kept_over_all_splits() -> None:
    clock = ManualClock()
    source = op.generate({"id": op.sequence()}, rate="1000/s", splits=2)
    readers = [source.reader(split, None, SourceContext("made", 0, 1, clock)) for split in source.splits()]
    assert [reader.poll(10_000) for reader in readers] == [None, None]
    clock.advance(1_000_000)
    assert [len(reader.poll(10_000)) for reader in readers] == [500, 500]  # type: ignore[arg-type]


def test_without_a_number_of_rows_the_input_has_no_end() -> None:
    assert (op.generate(COLUMNS).bounded, op.generate(COLUMNS, rows=5).bounded) == (False, True)
    assert flow.Pipeline().source(op.generate(COLUMNS)).head(3)["id"].to_pylist() == [0, 1, 2]


@dataclass(frozen=True)
class Even(Recipe):
    @property
    def type(self) -> pa.DataType:
        return pa.bool_()

    def column(self, draws: Draws) -> pa.Array:
        return pa.array(draws.rows % 2 == 0)


def test_a_recipe_of_ones_own() -> None:
    assert rows(op.generate({"even": Even()}, rows=3), 3) == [{"even": True}, {"even": False}, {"even": True}]


@pytest.mark.parametrize(
    "changed",
    [{"rows": 99}, {"seed": 1}, {"splits": 2}, {"columns": {"id": op.sequence(1)}}],
    ids=str,
)
def test_other_rows_than_those_of_the_checkpoint_are_refused(changed: dict[str, Any]) -> None:
    before = op.generate({"id": op.sequence()}, rows=100).splits()[0]
    options = {"columns": {"id": op.sequence()}, "rows": 100, **changed}
    with pytest.raises(InputChanged, match="generate: the checkpoint was taken over other rows: "):
        op.generate(options.pop("columns"), **options).check(before)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: op.generate({}), "give at least one column"),
        (lambda: op.generate({"x": 7}), r"column 'x' must be a recipe .* got 7 \(int\)"),  # type: ignore[dict-item]
        (lambda: op.generate(COLUMNS, splits=0), "splits must be a whole number of at least 1"),
        (
            lambda: op.generate(COLUMNS, rate="10"),
            r"generate\(rate=\) must be rows per time, such as '10000/s'.* got '10'",
        ),
        (lambda: op.generate(COLUMNS, rate="-1/s"), "must be rows per time"),
        (lambda: op.choice([]), "at least one value"),
        (lambda: op.choice([1, "a"]), "values must be a list of one type"),
        (lambda: op.choice([1, 2], weights=[1]), "2 values need 2 weights"),
        (lambda: op.choice([1, 2], weights=[0, 0]), "2 values need 2 weights"),
        (lambda: op.integers(3, 3), "low < high"),
        (lambda: op.uniform(0, float("inf")), "low < high, both finite"),
        (lambda: op.normal(0, -1), "deviation >= 0"),
        (lambda: op.event_times("soon"), "start must be a datetime or text"),
    ],
)
def test_what_cannot_be_made_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()
