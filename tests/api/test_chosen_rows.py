"""``unique``, ``top`` and ``split``: what is refused when they are built, each with a way out, and their columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import ConfigurationError, DataflowError, GraphError, SchemaMismatch, UnknownColumn

US = pa.timestamp("us")
TABLE = pa.table({"k": [1, 1], "x": [2, 3], "tags": [["a"], ["b"]], "ok": [True, None], "at": pa.array([1, 2], US)})


def rows(table: pa.Table = TABLE) -> flow.Stream:
    return flow.Pipeline().source(op.from_arrow(table), name="rows").with_watermark("at", name="timed")


def endless() -> flow.Stream:
    return flow.Pipeline().source(op.generate({"k": op.sequence(), "x": op.sequence()}), name="numbers")


def counts(emit: str) -> flow.Stream:
    return rows().key_by("k").agg(op.count().alias("n"), emit=emit, name="counts")


def named(name: str) -> flow.Stream:
    return rows().select("k", "at", col("x").alias(name))


def top(n: Any = 1, **options: Any) -> flow.Stream:
    return rows().key_by("k").top(n, **{"by": "x", **options})


def window_top(window: Any, options: dict[str, Any] | None = None, **more: Any) -> flow.Stream:
    return rows().key_by("k").window(window, **options or {}).top(1, **{"by": "x", **more})


REFUSED: dict[str, tuple[Callable[[], object], type[DataflowError], str]] = {
    "split: no mapping": (lambda: rows().split([col("ok")]), GraphError, r"split: expected a mapping from names"),  # type: ignore[arg-type]
    "split: empty": (lambda: rows().split({}), GraphError, r"split: no condition is given; give at least one"),
    "split: a name twice": (lambda: rows().split({"a": "ok"}, rest="a"), GraphError, r"rest='a'.* name of its own"),
    "split: no name": (lambda: rows().split({"": "ok"}), GraphError, r"split: the names .* must be text and not empty"),
    "split: a number": (lambda: rows().split({"a": "x"}), SchemaMismatch, r"split of 'a': expected a boolean"),
    "split: unknown": (lambda: rows().split({"a": "no"}), UnknownColumn, r"split of 'a': there is no column 'no'"),
    "split: updates": (
        lambda: counts("updates").split({"a": col("n") > 1}),
        GraphError,
        r"split: a row and the one that replaces it.*'counts' emits updates.*emit=\"final\"",
    ),
    "split: change": (
        lambda: counts("changes").split({"a": col("change") > 0}),
        GraphError,
        r"split: 'change' is kept without being named",
    ),
    "unique: no key": (lambda: rows().unique(), GraphError, r"unique: no key is given"),
    "unique: unknown": (lambda: rows().unique("kk"), UnknownColumn, r"unique: .*'kk' \(did you mean 'k'"),
    "unique: a list": (lambda: rows().unique("tags"), SchemaMismatch, r"unique: the column 'tags' .* cannot be a key"),
    "unique: keep": (lambda: rows().unique("k", keep="any"), ConfigurationError, r"'first' or 'last', got 'any'"),  # type: ignore[arg-type]
    "unique: emit first": (lambda: rows().unique("k", emit="final"), GraphError, r"emit='final'\) needs keep='last'"),
    "unique: emit": (
        lambda: rows().drop("tags").unique("k", keep="last", emit="updates"),
        ConfigurationError,
        r"unique\(emit=\) must be 'changes' or 'final', got 'updates'",
    ),
    "unique: final ttl": (
        lambda: rows().drop("tags").unique("k", keep="last", emit="final", ttl="1s"),
        GraphError,
        r"unique\(ttl=\) needs emit='changes'",
    ),
    "unique: ttl": (lambda: rows().unique("k", ttl="0s"), ConfigurationError, r"unique\(ttl=\) must be above zero"),
    "unique: last list": (lambda: rows().unique("k", keep="last"), SchemaMismatch, r"'tags' cannot be kept.*'first'"),
    "unique: change": (
        lambda: named("change").unique("k", keep="last"),
        GraphError,
        r"unique\(keep='last'\): the stream has a column 'change'.*rename or drop",
    ),
    **{
        f"unique: {keep} of {emit}": (
            lambda keep=keep, emit=emit: counts(emit).unique("k", keep=keep),  # type: ignore[misc]
            GraphError,
            rf"unique: a row .*{word}.*'counts' emits .*emit=.final.\) at 'counts'",
        )
        for keep in ("first", "last")
        for emit, word in (("updates", "replaced"), ("changes", "taken back"))
    },
    "top: no number": (lambda: top("2"), ConfigurationError, r"top\(n\) must be a whole number of at least 1, got '2'"),
    "top: zero": (lambda: top(0), ConfigurationError, r"top\(n\) must be a whole number of at least 1, got 0"),
    "top: unknown": (lambda: top(by="y"), UnknownColumn, r"top\(by=\): there is no column 'y'"),
    "top: nothing": (lambda: top(by=[]), GraphError, r"top\(by=\): no column is given"),
    "top: computed": (lambda: top(by=-col("x")), GraphError, r"top\(by=\): .*compute the column first, as in with_"),
    "top: twice": (lambda: top(by=["x", "x"]), GraphError, r"top\(by=\): duplicate column 'x'; name each column once"),
    "top: a list": (lambda: top(by="tags"), SchemaMismatch, r"the column 'tags' of type list.* has no order"),
    "top: ties": (lambda: top(ties="no"), ConfigurationError, r"top\(ties=\) must be 'arrival' or 'all', got 'no'"),
    "top: descending": (
        lambda: top(descending=[True, False]),
        ConfigurationError,
        r"one of them for each of the 1 columns in by=, got \[True, False\]",
    ),
    "top: a word": (
        lambda: top(descending="no"),
        ConfigurationError,
        r"descending=\) must be True, False, .* got 'no'",
    ),
    "top: emit": (lambda: top(emit="updates"), ConfigurationError, r"top\(emit=\) must be 'changes' or 'final'"),
    "top: final ttl": (lambda: top(emit="final", ttl="1s"), GraphError, r"top\(ttl=\) needs emit='changes'"),
    "top: rank": (lambda: named("rank").key_by("k").top(1, by="rank"), GraphError, r"top: duplicate column 'rank'"),
    "top: change": (
        lambda: named("change").key_by("k").top(1, by="change", emit="changes"),
        GraphError,
        r"top\(emit='changes'\): the stream has a column 'change'",
    ),
    "top: parallel": (
        lambda: rows().top(1, by="x", parallelism=2),
        GraphError,
        r"top\(parallelism=\) must be 1 without keys",
    ),
    "top: updates": (
        lambda: counts("updates").key_by("k").top(1, by="n"),
        GraphError,
        r"top: a row among the first ones could be replaced",
    ),
    "top: signed ttl": (
        lambda: counts("changes").key_by("k").top(1, by="n", ttl="1s"),
        GraphError,
        r"top\(ttl=\) cannot be used on signed changes",
    ),
    "top: by change": (
        lambda: counts("changes").key_by("k").top(1, by="change"),
        UnknownColumn,
        r"top\(by=\): there is no column 'change'",
    ),
    "windows: sessions": (lambda: window_top(op.session("1s")), GraphError, r"top: session.* has no top.*op.tumbling"),
    "windows: sliding": (lambda: window_top(op.sliding("1s")), GraphError, r"top: sliding.* has no top"),
    "windows: global": (lambda: window_top(op.global_window()), GraphError, r"top: global.* has no top"),
    "windows: early": (
        lambda: window_top(op.tumbling("1s"), {"early": op.after_rows(1)}),
        GraphError,
        r"top: .*takes no early=, late= or panes=",
    ),
    "windows: unknown": (lambda: window_top(op.tumbling("1s"), by="y"), UnknownColumn, r"top\(by=\): .*'y'"),
    "windows: clash": (
        lambda: named("window_end").key_by("k").window(op.tumbling("1s")).top(1, by="k"),
        GraphError,
        r"top: duplicate column 'window_end'; rename or drop",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_built_is_refused_with_a_way_out(case: str) -> None:
    build, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        build()


def test_an_unknown_stream_of_a_split_is_a_key_error_that_lists_them() -> None:
    parts = rows().split({"good": "ok"}, rest="bad")
    with pytest.raises(KeyError, match=r"no stream 'god' \(did you mean 'good'\?\); there are \['good', 'bad'"):
        parts["god"]
    assert "god" not in parts
    assert len(parts) == 2


def test_streams_of_a_split_that_are_not_used_are_dropped() -> None:
    parts = rows().split({"big": col("x") > 2, "small": col("x") > 0}, name="split")
    assert parts["big"].collect()["x"].to_pylist() == [3]
    assert parts["big"] is parts["big"]


def test_the_streams_of_a_split_keep_columns_time_and_signs() -> None:
    parts = rows().split({"a/b": "ok"}, rest="rest", name="split")
    assert [(part.name, part.time, part.schema) for part in parts.values()] == [
        ("split.a_b", "at", rows().schema),
        ("split.rest", "at", rows().schema),
    ]
    assert counts("changes").split({"a": col("n") > 1})["a"].changes == "signed"


@pytest.mark.parametrize(
    ("stream", "columns", "time", "changes"),
    [
        (lambda: rows().unique("k"), ["k", "x", "tags", "ok", "at"], "at", "rows"),
        (lambda: rows().drop("tags").unique("x", keep="last"), ["k", "x", "ok", "at"], None, "rows"),
        (lambda: endless().unique("x", keep="last"), ["k", "x", "change"], None, "signed"),
        (lambda: endless().key_by("k").top(1, by="x"), ["k", "x", "rank", "change"], None, "signed"),
        (lambda: endless().top(1, by="x", ttl="1s"), ["k", "x", "rank", "change"], None, "signed"),
        (lambda: top(), ["k", "x", "tags", "ok", "at", "rank"], None, "rows"),
        (lambda: counts("changes").top(1, by="n"), ["k", "n", "rank"], None, "rows"),
        (
            lambda: window_top(op.tumbling("1s")),
            ["k", "window_start", "window_end", "x", "tags", "ok", "at", "rank"],
            "window_end",
            "rows",
        ),
    ],
)
def test_columns_and_event_time_are_known(
    stream: Callable[[], flow.Stream], columns: list[str], time: str | None, changes: str
) -> None:
    made = stream()
    assert (made.schema.names, made.time, made.changes) == (columns, time, changes)
