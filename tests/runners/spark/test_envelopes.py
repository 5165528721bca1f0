"""Large contents are sent in parts, which may arrive in any order."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from dataflow.protocol.events import Data, Element, EndOfInput, Idle, Watermark
from dataflow.runners.spark.envelopes import Content, Envelope, by_channel


def values(content: Content) -> dict[int, list[object]]:
    """The elements of each step, with rows one by one."""
    return {step: [v for element in elements for v in _values(element)] for step, elements in content.steps.items()}


def _values(element: Element) -> list[object]:
    rows: Any = element.rows if isinstance(element, Data) else None
    return [element] if rows is None else rows["x"].to_pylist()


def content_of(rng: random.Random) -> Content:
    content = Content(times={"a": 3} if rng.random() < 0.3 else {}, at=9)
    for step in sorted(rng.sample(range(20), rng.randint(1, 6))):
        elements: list[Element] = []
        for _ in range(rng.randint(1, 4)):
            size = rng.choice([1, 3, 200])
            elements.append(Data(pa.record_batch({"x": [rng.random() for _ in range(size)]}), 0))
            if rng.random() < 0.5:
                elements.append(rng.choice([Watermark(step), Idle()]))
        content.add(step, elements)
    if rng.random() < 0.3:
        content.add(20, [EndOfInput()])
    return content


@pytest.mark.parametrize("most", [1, 100, 5_000, 1 << 25])
def test_the_parts_of_a_content_make_the_same_content_in_whatever_order_they_arrive(most: int) -> None:
    parts = 0
    for seed in range(10):
        rng = random.Random(seed)
        content = content_of(rng)
        envelopes = [Envelope(0, 4, 2, 0, part.encode()) for part in content.parts(most)]
        rng.shuffle(envelopes)
        (merged,) = by_channel(envelopes).values()
        assert values(merged) == values(content)
        assert (merged.times, merged.at) == (content.times, content.at)
        parts += len(envelopes)
    assert (parts > 10) is (most < 1 << 25)


def test_no_part_has_more_than_its_bytes_unless_one_row_does() -> None:
    rows = pa.record_batch({"x": ["a" * length for length in (10, 10, 10, 5_000, 10)]})
    parts = list(Content({1: [Data(rows, 0)]}).parts(most=100))
    assert [[len(data.rows) for data in part.rows()] for part in parts] == [[1, 1, 1], [1], [1]]
    wide = pa.record_batch({"x": range(100_000)})
    sizes = [sum(data.rows.nbytes for data in part.rows()) for part in Content({1: [Data(wide, 0)]}).parts(most=8_000)]
    assert max(sizes) <= 8_000
    assert len(sizes) == 100


def test_a_content_of_times_alone_is_sent() -> None:
    assert [part.times for part in Content(times={"a": 3}, at=1).parts()] == [{"a": 3}]
    assert list(Content().parts()) == []
