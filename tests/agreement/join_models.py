"""Joins in plain Python: what each kind of join of small lists of rows means. Times are in nanoseconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dataflow.contracts.windows import Sliced

__all__ = ["Row", "asof", "joined", "joined_by_window"]


@dataclass(frozen=True, slots=True)
class Row:
    """A row with a key, an event time in nanoseconds, and one value."""

    key: Any
    at: int
    value: Any


def joined(left: Sequence[Row], right: Sequence[Row], how: str, meets: Callable[[Row, Row], bool]) -> Counter[Any]:
    """Return the rows of a join: key, left time and value, right time and value."""
    rows: Counter[Any] = Counter()
    met = set()
    for one in left:
        found = [n for n, other in enumerate(right) if one.key is not None and one.key == other.key]
        found = [n for n in found if meets(one, right[n])]
        met.update(found)
        rows.update((one.key, one.at, one.value, right[n].at, right[n].value) for n in found)
        if not found and how in ("left", "full"):
            rows[one.key, one.at, one.value, None, None] += 1
    if how in ("right", "full"):
        alone = [other for n, other in enumerate(right) if n not in met]
        rows.update((other.key, None, None, other.at, other.value) for other in alone)
    return rows


def joined_by_window(left: Sequence[Row], right: Sequence[Row], how: str, window: Sliced) -> Counter[Any]:
    """Return the rows of a join of windows: key, start, end, then as ``joined``."""
    rows: Counter[Any] = Counter()
    of = [_windows(side, window) for side in (left, right)]
    for edges in {*of[0], *of[1]}:
        found = joined(of[0].get(edges, []), of[1].get(edges, []), how, lambda one, other: True)
        rows.update({(key, *edges, *others): count for (key, *others), count in found.items()})
    return rows


def _windows(rows: Sequence[Row], window: Sliced) -> dict[tuple[int, int], list[Row]]:
    found: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        assigned = window.assign(np.array([row.at // 1000]))
        for edges in zip((1000 * assigned.starts).tolist(), (1000 * assigned.ends).tolist(), strict=True):
            found.setdefault(edges, []).append(row)
    return found


def asof(left: Sequence[Row], right: Sequence[Row], how: str, *, forward: bool, limit: int | None) -> Counter[Any]:
    """Return the rows of a join with the nearest row; of equal times the last one of ``right`` counts."""
    rows: Counter[Any] = Counter()
    for one in left:
        found = [row for row in right if one.key is not None and row.key == one.key]
        found = [row for row in found if (row.at >= one.at if forward else row.at <= one.at)]
        found = [row for row in found if limit is None or abs(row.at - one.at) <= limit]
        if found:
            time = min(row.at for row in found) if forward else max(row.at for row in found)
            nearest = [row for row in found if row.at == time][-1]
            rows[one.key, one.at, one.value, nearest.at, nearest.value] += 1
        elif how == "left":
            rows[one.key, one.at, one.value, None, None] += 1
    return rows
