"""A checkpoint of windows says which columns each aggregate has, and can be restored with another order of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
import pytest

from dataflow.contracts.panes import AfterRows
from dataflow.contracts.window_kinds import Hopping, Tumbling
from dataflow.expressions import Aggregation, col, count
from dataflow.planning.aggregate_specs import Emit
from tests.operators.operating import stored
from tests.operators.windows.session_panes import PanedSessions
from tests.operators.windows.sessioned import Sessioned
from tests.operators.windows.triggering import Triggered
from tests.operators.windows.windowed import END, Windowed

MERGED = [
    count(),
    col("x").sum(),
    col("x").first(by="t"),
    col("t").first(by="t"),
    col("x").mean(),
    col("x").last(by="t"),
]
LISTED = [*MERGED, col("x").to_list(), col("x").quantile(0.5), col("x").quantile(0.1).alias("low")]
KINDS: dict[str, tuple[Callable[..., Any], Sequence[Aggregation]]] = {
    "panes": (lambda **given: Windowed(Tumbling(10), lateness=50, **given), LISTED),
    "slices": (lambda **given: Windowed(Hopping(20, 10), lateness=50, emit=Emit.CHANGES, **given), MERGED),
    "triggered": (lambda **given: Triggered(Tumbling(10), AfterRows(2), emit=Emit.CHANGES, **given), LISTED),
    "sessions": (lambda **given: Sessioned(5, lateness=50, emit=Emit.CHANGES, **given), MERGED),
    "sessions of rows": (lambda **given: Sessioned(5, lateness=50, emit=Emit.CHANGES, **given), LISTED),
    "panes of sessions": (lambda **given: PanedSessions(5, AfterRows(2), lateness=50, **given), MERGED),
}
BEFORE = [("a", 1, 3), ("b", 2, 4), ("a", 3, 12), ("a", 9, 13), ("b", 4, 31)]
AFTER = [("a", 7, 2), ("b", 5, 33), ("a", 6, 14)]


@pytest.mark.parametrize("kind", KINDS)
def test_aggregates_in_another_order_are_restored_and_own_columns_of_what_is_stored(kind: str) -> None:
    make, aggregations = KINDS[kind]
    first = make(aggregations=aggregations)
    first.feed(*BEFORE)
    first.advance(15)
    first.feed(("a", 8, 11))
    snapshot = stored(first.operator.snapshot())
    results = []
    for given in (aggregations, aggregations[::-1]):
        window = make(aggregations=given, restored=snapshot)
        names = {a.name: a.identity() for a in given}
        window._results = lambda window=window, names=names: _rows(window.out, names)
        window.check = window._results
        results.append([window.feed(*AFTER), window.advance(END)])
    assert results[0] != [[], []]
    assert results[0] == results[1]
    (part,) = cast(Sequence[Mapping[str, pa.Table]], snapshot.logs["state"])
    owners, columns = snapshot.rules["state"].owners, {name for table in part.values() for name in table.column_names}
    assert set(owners) == {a.identity() for a in aggregations}
    assert columns.issuperset([name for names in owners.values() for name in names])


def _rows(out: Any, names: Mapping[str, str]) -> list[list[str]]:
    """The rows that came out, by the identities of the aggregates."""
    rows = [row for batch in out.batches.pop(None, []) for row in batch.to_pylist()]
    return [sorted(f"{names.get(name, name)}: {value}" for name, value in row.items()) for row in rows]
