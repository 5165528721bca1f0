"""Aggregates that are added and removed at a restore, in each kind of operator, against a model in plain Python."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.evolution import PieceChanges
from dataflow.contracts.folding import FoldAll
from dataflow.errors import CheckpointMismatch
from dataflow.planning.operator_table import make_operator
from operators.stateful.columns import is_partial
from tests.keeping_state import Visit
from tests.operators.evolving import Evolving, Keyed, described, node_of
from tests.operators.operating import Emitted, context_of, drained

SCHEMA = pa.schema({"k": pa.string(), "at": pa.timestamp("us"), "x": pa.int64(), "s": pa.string()})
START = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Row:
    k: str
    at: int
    x: int
    s: str
    number: int


Model = Callable[[Sequence[Row]], Any]


def _mean(rows: Sequence[Row]) -> float | None:
    return sum(row.x for row in rows) / len(rows) if rows else None


def _variance(rows: Sequence[Row]) -> float | None:
    return statistics.variance([row.x for row in rows]) if len(rows) > 1 else None


def _quantile(q: float) -> Model:
    return lambda rows: float(np.quantile([row.x for row in rows], q)) if rows else None


def _chosen(column: str, choose: Callable[..., Row], key: Callable[[Row], Any]) -> Model:
    return lambda rows: getattr(choose(rows, key=key), column) if rows else None


def _in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.number)


PYTHON = op.aggregate_python(
    "x", zero=0, add=lambda total, x: total + (x or 0), merge=lambda a, b: a + b, state=pa.int64()
)
AGGREGATES: dict[str, tuple[Any, Model]] = {
    "n": (op.count(), len),
    "total": (col("x").sum(), lambda rows: sum(row.x for row in rows) if rows else None),
    "mean": (col("x").mean(), _mean),
    "variance": (col("x").variance(), _variance),
    "least": (col("x").min(), lambda rows: min((row.x for row in rows), default=None)),
    "most": (col("x").max(), lambda rows: max((row.x for row in rows), default=None)),
    "some": (op.count(where=col("x") > 4), lambda rows: sum(row.x > 4 for row in rows)),
    "first": (col("x").first(by="at"), _chosen("x", min, lambda row: (row.at, row.number))),
    "last": (col("x").last(by="at"), _chosen("x", max, lambda row: (row.at, row.number))),
    "best": (col("x").arg_max("x"), lambda rows: max((row.x for row in rows), default=None)),
    "distinct": (col("x").count_distinct(), lambda rows: len({row.x for row in rows})),
    "median": (col("x").quantile(0.5), _quantile(0.5)),
    "high": (col("x").quantile(0.9), _quantile(0.9)),
    "all": (col("x").to_list(by="x"), lambda rows: sorted(row.x for row in rows) or None),
    "words": (col("s").max(), lambda rows: max((row.s for row in rows), default=None)),
    "python": (PYTHON, lambda rows: sum(row.x for row in rows) if rows else None),
}
FEW = ["n", "total"]


@dataclass(frozen=True)
class Kind:
    """A kind of operator, and which groups (key, window) a row is in."""

    add: Keyed
    groups: Callable[[Sequence[Row]], Iterator[tuple[tuple[Any, ...], list[Row]]]]
    label: Sequence[str]


def _by(key: Callable[[Row], Sequence[tuple[Any, ...]]]) -> Callable[[Sequence[Row]], Any]:
    def groups(rows: Sequence[Row]) -> Iterator[tuple[tuple[Any, ...], list[Row]]]:
        found: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            for group in key(row):
                found.setdefault(group, []).append(row)
        yield from found.items()

    return groups


def _at(time: int) -> datetime:
    return START + timedelta(microseconds=time)


def _sessions(gap: int) -> Callable[[Sequence[Row]], Any]:
    def groups(rows: Sequence[Row]) -> Iterator[tuple[tuple[Any, ...], list[Row]]]:
        for k in {row.k for row in rows}:
            session: list[Row] = []
            for row in sorted([row for row in rows if row.k == k], key=lambda row: row.at):
                if session and row.at > session[-1].at + gap:
                    yield (k, _at(session[0].at)), session
                    session = []
                session.append(row)
            yield (k, _at(session[0].at)), session

    return groups


def _windows(size: int, every: int) -> Callable[[Row], Sequence[tuple[Any, ...]]]:
    def windows(row: Row) -> list[tuple[Any, ...]]:
        last = row.at // every * every
        return [(row.k, _at(start)) for start in range(last, row.at - size, -every)]

    return windows


def _count_windows(rows: Sequence[Row]) -> Iterator[tuple[tuple[Any, ...], list[Row]]]:
    for k in {row.k for row in rows}:
        mine = [row for row in _in_order(rows) if row.k == k]
        for at in range(0, len(mine), 7):
            yield (k, at // 7), mine[at : at + 7]


def _named(names: Sequence[str]) -> list[Any]:
    return [AGGREGATES[name][0].alias(name) for name in names]


IN_WINDOWS = ("k", "window_start")
KINDS = {
    "running": Kind(lambda rows, a: rows.agg(*a, emit="final", name="it"), _by(lambda row: [(row.k,)]), ("k",)),
    "updates": Kind(lambda rows, a: rows.agg(*a, emit="updates", name="it"), _by(lambda row: [(row.k,)]), ("k",)),
    "tumbling": Kind(
        lambda rows, a: rows.window(op.tumbling("100us")).agg(*a, name="it"), _by(_windows(100, 100)), IN_WINDOWS
    ),
    "hopping": Kind(
        lambda rows, a: rows.window(op.hopping("150us", every="50us")).agg(*a, name="it"),
        _by(_windows(150, 50)),
        IN_WINDOWS,
    ),
    "late": Kind(
        lambda rows, a: rows.window(op.hopping("150us", every="50us"), lateness="1ms").agg(
            *a, emit="updates", name="it"
        ),
        _by(_windows(150, 50)),
        IN_WINDOWS,
    ),
    "sessions": Kind(lambda rows, a: rows.window(op.session("9us")).agg(*a, name="it"), _sessions(9), IN_WINDOWS),
    "count windows": Kind(
        lambda rows, a: rows.window(op.count_window(7)).agg(*a, name="it"), _count_windows, ("k", "window_index")
    ),
    "global": Kind(
        lambda rows, a: rows.window(op.global_window()).agg(*a, name="it"),
        _by(lambda row: [(row.k, 0)]),
        ("k", "window_index"),
    ),
    "triggered": Kind(
        lambda rows, a: rows.window(op.hopping("150us", every="50us"), early=op.after_rows(3)).agg(*a, name="it"),
        _by(_windows(150, 50)),
        IN_WINDOWS,
    ),
}


def sample(seed: int, low: int, high: int, start: int, count: int = 60) -> list[Row]:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(low, high, count)).tolist()
    xs = rng.integers(0, 9, count).tolist()
    numbered = enumerate(zip(times, xs, strict=True), start)
    return [Row(f"k{rng.integers(0, 4)}", t, x, f"w{x}", number) for number, (t, x) in numbered]


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = [[getattr(row, name) for row in rows] for name in SCHEMA.names]
    return pa.record_batch([pa.array(c, t) for c, t in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def model(kind: Kind, rows: Sequence[Row], since: Mapping[str, int]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The results of all windows; the rows of an aggregate count from number ``since`` on."""
    return {
        label: {
            name: AGGREGATES[name][1]([row for row in members if row.number >= first]) for name, first in since.items()
        }
        for label, members in kind.groups(rows)
    }


def check(kind: Kind, got: Sequence[Mapping[str, Any]], expected: Mapping[tuple[Any, ...], Mapping[str, Any]]) -> None:
    """Compare the last row of each window: it has the columns of the time when it came out."""
    last = {tuple(row[name] for name in kind.label): row for row in got}
    assert last.keys() == expected.keys()
    for label, values in expected.items():
        found = {name: last[label][name] for name in values if name in last[label]}
        assert _rounded(found) == _rounded({name: values[name] for name in found}), label


def _rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: round(value, 9) if isinstance(value, float) else value for name, value in values.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_aggregates_are_added_and_removed(kind: str) -> None:
    of_kind, everything = KINDS[kind], [*AGGREGATES]
    before, middle, after = sample(1, 0, 160, 0), sample(2, 150, 330, 60), sample(3, 320, 420, 120)
    it = Evolving(SCHEMA, of_kind.add, _named(FEW))
    it.feed(batch_of(before[:30]))
    it.checkpoint()
    it.feed(batch_of(before[30:]), 140)
    shown = it.rows()
    done = it.restore(_named(everything[::-1]))
    assert len(done) == len(everything) - len(FEW)
    it.feed(batch_of(middle), 310)
    seen = it.rows()
    since = {name: 0 if name in FEW else 60 for name in everything}
    left = [
        name for name in everything if name not in ("all", "total", "python", "words", "median", "distinct", "high")
    ]
    it.restore(_named(left), dropped={*everything} - {*left})
    it.feed(batch_of(after), 410)
    got = [*shown, *seen, *it.finish()]
    assert all(row.keys() >= AGGREGATES.keys() for row in seen)
    check(of_kind, got, model(of_kind, [*before, *middle, *after], since))


JOINED = [col("x").first(by="at").alias("first"), col("x").quantile(0.5).alias("median")]
JOINING = [
    col("s").first(by="at").alias("word"),
    col("x").quantile(0.9).alias("high"),
    col("x").quantile(0.5).alias("again"),
]


@pytest.mark.parametrize("kind", ["running", "hopping", "count windows"])
def test_an_aggregate_that_joins_others_has_what_they_keep(kind: str) -> None:
    of_kind, before, after = KINDS[kind], sample(1, 0, 160, 0), sample(2, 100, 330, 60)
    it = Evolving(SCHEMA, of_kind.add, JOINED)
    it.feed(batch_of(before))
    it.rows()
    done = it.restore([*JOINING[:2], *JOINED, JOINING[2]])
    assert done[0].startswith("word: added; null for keys with a chosen row, until another row is chosen")
    assert int(done[0].split()[-1]) == len({row.k for row in before})
    assert done[1].startswith("high: added; exact, because all values were kept")
    assert done[2] == "again: added; it has the state of 'median', which is the same aggregate"
    it.feed(batch_of(after))
    for row in it.finish():
        label = tuple(row[name] for name in of_kind.label)
        (members,) = [members for group, members in of_kind.groups([*before, *after]) if group == label]
        assert row["again"] == row["median"] == AGGREGATES["median"][1](members)
        assert row["high"] == pytest.approx(AGGREGATES["high"][1](members))
        first = min(members, key=lambda row: (row.at, row.number))
        assert (row["first"], row["word"]) == (first.x, first.s if first.number >= 60 else None)


def test_another_order_and_other_names_change_nothing_that_is_stored() -> None:
    it = Evolving(SCHEMA, KINDS["running"].add, _named(FEW))
    it.feed(batch_of(sample(1, 0, 160, 0)))
    stored, (node, _) = it.checkpoint(), node_of(SCHEMA, KINDS["running"].add, _named(FEW[::-1]))
    adaptation = node.spec.evolve(described(it.node), described(node), PieceChanges())
    assert (adaptation.stored, adaptation.changes, adaptation.folds_alike) == (described(node), [], False)
    sums = [op.count().alias("n"), col("x").sum().alias("sum")]
    assert it.restore(sums, renamed={"total": "sum"}) == ["sum: renamed from 'total'"]
    assert stored.logs["state"][0]["keys"].equals(it.checkpoint().logs["state"][0]["keys"])


@pytest.mark.parametrize(
    ("aggregations", "changes"),
    [
        ([op.count()], {}),
        ([op.count(), col("s").max().alias("total")], {}),
        ([op.count(), col("x").sum().alias("sum")], {}),
        ([op.count(), col("s").max().alias("total")], {"renamed": {"n": "count"}}),
    ],
)
def test_a_removed_or_renamed_aggregate_that_is_not_listed_is_left_to_the_comparison(
    aggregations: Sequence[Any], changes: Mapping[str, Any]
) -> None:
    before, _ = node_of(SCHEMA, KINDS["tumbling"].add, _named(FEW))
    now, _ = node_of(SCHEMA, KINDS["tumbling"].add, aggregations)
    adaptation = now.spec.evolve(described(before), described(now), PieceChanges(**changes))
    assert not adaptation.changes
    assert adaptation.stored != described(now)
    names = [name for name, _ in adaptation.stored.schema]
    assert names[-2:] == ["count" if changes else "n", "total"]


def test_results_of_windows_that_stay_by_window_take_rows_that_were_folded_by_slice() -> None:
    of_kind, before, after = KINDS["hopping"], sample(1, 0, 160, 0), sample(2, 100, 330, 60)
    it = Evolving(SCHEMA, of_kind.add, _named([*FEW, "median"]))
    it.feed(batch_of(before))
    it.restore(_named(FEW), dropped={"median"})
    combine: Any = make_operator(it.node.spec.folding(), context_of(it.inputs[0], it.inputs[0]))
    combine.folding = FoldAll()
    folded = Emitted()
    drained(combine.process(0, batch_of(after).select(it.inputs[0].names), folded))
    (records,) = folded.batches[None]
    assert is_partial(records.schema)
    drained(it.operator.process(0, records, it.out))
    check(of_kind, it.finish(), model(of_kind, [*before, *after], dict.fromkeys(FEW, 0)))
    shown = it.operator.show(it.node.spec, it.checkpoint(), it.inputs, it.node.schema)
    assert shown.tables["rows"].column_names == it.node.schema.names


def test_over_signed_changes_only_quantiles_of_values_that_are_kept_can_be_added() -> None:
    def signed(rows: flow.KeyedStream, aggregations: Sequence[Any]) -> flow.Stream:
        counts = rows.agg(op.count().alias("x"), col("s").max().alias("s"), emit="changes", name="counts")
        return counts.key_by("s").agg(*aggregations, emit="final", name="it")

    before, _ = node_of(SCHEMA, signed, [col("x").quantile(0.5)])
    for new in (op.count(), col("x").max()):
        now, _ = node_of(SCHEMA, signed, [col("x").quantile(0.5), new])
        with pytest.raises(CheckpointMismatch, match="cannot be added, because its input has signed changes"):
            now.spec.evolve(described(before), described(now), PieceChanges())
    now, _ = node_of(SCHEMA, signed, [col("x").quantile(0.5), col("x").quantile(0.9).alias("high")])
    (change,) = now.spec.evolve(described(before), described(now), PieceChanges()).changes
    assert change.what == "added; exact, because all values were kept"


def test_rows_that_were_shown_are_taken_back_as_they_were() -> None:
    def changing(rows: flow.KeyedStream, aggregations: Sequence[Any]) -> flow.Stream:
        return rows.agg(*aggregations, emit="changes", name="it")

    base = [col("x").sum().alias("total"), col("x").quantile(0.5).alias("median")]
    before, _ = node_of(SCHEMA, changing, base)
    for new in (op.count(), col("x").count_distinct(), col("x").quantile(0.9), col("x").sum().alias("again")):
        now, _ = node_of(SCHEMA, changing, [*base, new.alias("new")])
        with pytest.raises(CheckpointMismatch, match="rows that were shown are taken back"):
            now.spec.evolve(described(before), described(now), PieceChanges())
    it = Evolving(SCHEMA, changing, base)
    it.feed(batch_of(sample(1, 0, 160, 0)))
    shown = it.rows()
    it.restore([*base, col("x").max().alias("most")])
    it.feed(batch_of(sample(2, 100, 330, 60)))
    net: dict[tuple[Any, ...], int] = {}
    for row in [*[{**row, "most": None} for row in shown], *it.finish()]:
        key = (row["k"], row["total"], row["median"], row["most"])
        net[key] = net.get(key, 0) + row["change"]
    assert {*net.values()} == {0, 1}


ROW_KEEPERS: dict[str, Keyed] = {
    "sliding": lambda rows, a: rows.window(op.sliding("40us")).agg(*a, name="it"),
    "sliding, few columns": lambda rows, a: (
        rows.window(op.sliding("40us")).agg(*a, name="it").select("k", *[each.name for each in a])
    ),
    "merging": lambda rows, a: rows.window(Visit(30)).agg(*a, name="it"),
}
TOTAL = col("x").sum().alias("total")


@pytest.mark.parametrize("kind", ROW_KEEPERS)
def test_operators_that_keep_rows_compute_an_added_aggregate_from_them(kind: str) -> None:
    rows, more = batch_of(sample(1, 0, 160, 0)), batch_of(sample(2, 150, 330, 60))
    changed, always = (Evolving(SCHEMA, ROW_KEEPERS[kind], [TOTAL]) for _ in range(2))
    everything = [TOTAL, col("x").max().alias("most")]
    always.start_with(everything)
    for each in (changed, always):
        each.feed(rows, 50)
        each.rows()
    changed.restore(everything)
    for each in (changed, always):
        each.feed(more, 200)
    assert sorted(changed.rows(), key=repr) == sorted(always.rows(), key=repr)
    changed.restore([everything[1]], dropped={"total"})
    removed = [{name: value for name, value in row.items() if name != "total"} for row in always.finish()]
    assert sorted(changed.finish(), key=repr) == sorted(removed, key=repr)


def test_rows_without_a_column_that_an_added_aggregate_reads_are_refused() -> None:
    words = [TOTAL, col("s").max().alias("word")]
    it = Evolving(SCHEMA, ROW_KEEPERS["sliding, few columns"], [TOTAL])
    now, _ = node_of(SCHEMA, ROW_KEEPERS["sliding, few columns"], words)
    (change,) = now.spec.evolve(described(it.node), described(now), PieceChanges()).changes
    assert change.apply is not None
    it.feed(batch_of(sample(1, 0, 160, 0)))
    with pytest.raises(CheckpointMismatch, match="those of the checkpoint have no column 's'"):
        change.apply(it.checkpoint())
    it = Evolving(SCHEMA, ROW_KEEPERS["merging"], [TOTAL])
    it.feed(batch_of(sample(1, 0, 160, 0)))
    with pytest.raises(CheckpointMismatch, match="those of the checkpoint have no column 's'"):
        it.restore(words)
    it = Evolving(SCHEMA, ROW_KEEPERS["merging"], words)
    it.feed(batch_of(sample(1, 0, 160, 0)))
    assert it.restore([TOTAL], dropped={"word"}) == ["word: dropped 4"]
    assert it.finish()
    sessions = KINDS["sessions"].add
    first = col("x").first(by="at").alias("first")
    for before, new in (([AGGREGATES["median"][0]], col("s").count_distinct()), ([first], col("s").last(by="at"))):
        it = Evolving(SCHEMA, sessions, before)
        it.feed(batch_of(sample(1, 0, 160, 0)))
        with pytest.raises(CheckpointMismatch, match=r"have no column 's'|kept in another way now"):
            it.restore([*before, new.alias("new")])


def test_functions_with_one_text_cannot_change_places() -> None:
    def above(limit: int) -> Any:
        given: Any = {"merge": lambda a, b: a + b, "state": pa.int64()}
        return op.aggregate_python("x", zero=0, add=lambda n, x: n + ((x or 0) > limit), **given)

    some, few = above(0).alias("some"), above(100).alias("few")
    before, _ = node_of(SCHEMA, KINDS["running"].add, [some, few])
    now, _ = node_of(SCHEMA, KINDS["running"].add, [few, some])
    with pytest.raises(CheckpointMismatch, match="nothing says whose state is whose"):
        now.spec.evolve(described(before), described(now), PieceChanges())
