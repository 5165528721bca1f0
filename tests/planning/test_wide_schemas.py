"""Schemas with thousands of columns: the work grows with their number, not with its square."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa

from dataflow.errors import repeated_names
from dataflow.expressions import col
from dataflow.planning.specs import Project, Union

COLUMNS = 2_000


class Counted(str):
    """A name that counts how often one is compared."""

    comparisons = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)


def test_names_that_repeat_are_found_without_comparing_each_with_all() -> None:
    Counted.comparisons = 0
    names = [Counted(f"c{number}") for number in range(COLUMNS)]
    assert repeated_names([*names, names[7], names[7], names[3]]) == ["c3", "c7"]
    assert Counted.comparisons <= COLUMNS


def test_a_projection_looks_at_each_expression_once_for_all_columns(monkeypatch: Any) -> None:
    spec = Project(tuple(col(f"c{number}") for number in range(COLUMNS)))
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(COLUMNS)])
    kind = type(spec.columns[0])
    looks, original = itertools.count(), kind._output_name
    monkeypatch.setattr(kind, "_output_name", lambda self: original(self) if next(looks) >= 0 else None)
    assert spec.narrowed([schema.remove(0)], schema).names == schema.names[1:]
    assert all(spec.takes_encoded(name) for name in schema.names)
    assert next(looks) <= 2 * COLUMNS


def test_a_union_keeps_the_columns_that_all_inputs_have() -> None:
    first, second = (pa.schema([(name, pa.int64()) for name in names]) for names in ("abc", "cab"))
    assert Union().narrowed([first, second.remove(0)], first).names == ["a", "b"]
