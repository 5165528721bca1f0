"""Text that is read as a dictionary is interned once per dictionary: rows cost a look-up each, however many there are.

What is counted are the values that keyed state interns, not the time it takes.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow.state.interning import Interner
from tests.agreement.data import by_key
from tests.agreement.running import FEW, grouped

ROWS, ROW_GROUP, BATCH = 12_000, 3_000, 250
VALUES = ["north", "south", "east", None, "west"]


@pytest.fixture
def interned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many values each call interned, as the calls come."""
    counts: list[int] = []
    intern = Interner._intern

    def counted(interner: Interner, values: pa.Array) -> Any:
        counts.append(len(values))
        return intern(interner, values)

    monkeypatch.setattr(Interner, "_intern", counted)
    return counts


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Four row groups of few texts."""
    path = tmp_path_factory.mktemp("texts") / "a.parquet"
    drawn = [VALUES[(i * i + i // 7) % 5] for i in range(ROWS)]
    table = pa.table({"text": drawn, "day": [i % 3 for i in range(ROWS)], "price": list(range(ROWS))})
    pq.write_table(table, path, row_group_size=ROW_GROUP)
    return [str(path)]


def counted(texts: list[str], keys: list[str], parallelism: int, dictionary: list[str]) -> pa.Table:
    source = op.read_parquet(texts, batch_rows=BATCH, dictionary=dictionary)
    with flow.Pipeline("texts") as p:
        p.source(source, name="rows").key_by(*keys).agg(op.count().alias("rows"), name="n").sink(
            op.collect(), name="out"
        )
    return p.run(parallelism=parallelism, timeout="60s").table("out")


@pytest.mark.parametrize("keys", [["text"], ["text", "day"]], ids="+".join)
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_dictionary_is_interned_once_however_many_rows_refer_to_it(
    parallelism: int, keys: list[str], texts: list[str], interned: list[int]
) -> None:
    found = counted(texts, keys, parallelism, ["text"])
    row_groups = ROWS // ROW_GROUP
    assert sum(interned) <= parallelism * row_groups * len(VALUES)
    assert by_key(found, keys) == by_key(grouped(texts, keys, {"rows": FEW["rows"]}), keys)


def test_plain_text_is_interned_row_by_row(texts: list[str], interned: list[int]) -> None:
    p = flow.Pipeline("plain")
    p.source(op.from_arrow(pq.read_table(texts))).key_by("text").agg(op.count().alias("rows")).collect()
    assert sum(interned) == ROWS


def test_text_keys_of_parquet_files_are_interned_like_dictionaries(texts: list[str], interned: list[int]) -> None:
    counted(texts, ["text"], 1, [])
    assert sum(interned) <= ROWS // ROW_GROUP * len(VALUES)
