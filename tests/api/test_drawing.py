"""``draw`` of pipelines and streams: finished ones and those that are being written."""

from __future__ import annotations

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import ConfigurationError


def rows(p: flow.Pipeline) -> flow.Stream:
    table = pa.table({"k": ["a"], "x": [1], "at": pa.array([1], pa.timestamp("s"))})
    return p.source(op.from_arrow(table), name="rows")


def lines(picture: flow.Picture) -> list[str]:
    """Return the lines of a picture, with one space between words."""
    return [" ".join(line.split()) for line in picture.text().splitlines()]


def test_a_pipeline_without_operators_and_one_without_a_sink_can_be_drawn() -> None:
    p = flow.Pipeline("new")
    assert lines(p.draw()) == ["new: no operators"]
    assert lines(p.draw(physical=True)) == ["new: no vertices, no tasks, no channels"]
    rows(p).filter(flow.col("x") > 0, name="some")
    assert lines(p.draw(4, physical=True))[2:] == ["○ rows 4 tasks, source, read", "┊ some filter"]


def test_a_stream_shows_the_graph_up_to_it_and_how_its_next_operator_gets_rows() -> None:
    p = flow.Pipeline("p")
    timed = rows(p).with_watermark("at", name="timed")
    timed.filter(flow.col("x") > 0, name="elsewhere")
    assert lines(timed.draw())[2:] == ["○ rows source, read", "□ timed watermarks", "▽ this stream"]
    assert lines(timed.key_by("k", "x").draw())[4:] == ["│ ↓ by k, x", "▽ this stream"]
    assert lines(timed.broadcast().draw())[4:] == ["│ ↓ broadcast", "▽ this stream"]
    windows = timed.key_by("k").window(op.tumbling("10s"))
    assert lines(windows.draw())[4:] == ["│ ↓ by k", "▽ this stream"]
    late = windows.agg(op.count().alias("n"), name="counts").side("late")
    assert lines(late.draw())[-2:] == ["│ ↓ side output late", "▽ this stream"]
    for stream in (timed, windows, late):
        assert "this stream</text>" in stream._repr_html_()
        assert "this stream" not in stream.draw(physical=True).text()


def test_subtasks_are_shown_where_they_are_not_one() -> None:
    p = flow.Pipeline("p")
    rows(p).sink(op.collect(), name="out", parallelism=1)
    assert lines(p.draw())[2:] == ["○ rows source, read", "● out sink, write"]
    assert lines(p.draw(parallelism=3))[2:] == ["○ rows source, read, 3 subtasks", "● out sink, write"]


def test_a_large_parallelism_is_drawn_at_once() -> None:
    p = flow.Pipeline("p")
    rows(p).key_by("k").agg(op.count().alias("n"), name="n").sink(op.collect(), name="out")
    picture = p.draw(parallelism=1_000_000, physical=True)
    assert "hash by k, 1000000 x 1000000 channels" in picture.text()
    assert len(picture.svg()) < 10_000


@pytest.mark.parametrize("parallelism", [0, -1, 1.5, "2", True, None])
@pytest.mark.parametrize("physical", [False, True])
def test_a_parallelism_that_is_no_count_is_refused(parallelism: object, *, physical: bool) -> None:
    p = flow.Pipeline("p")
    rows(p)
    with pytest.raises(ConfigurationError, match=r"draw\(parallelism=\) must be a whole number of at least 1"):
        p.draw(parallelism, physical=physical)  # type: ignore[arg-type]


def test_operators_with_hostile_names_have_every_form() -> None:
    p = flow.Pipeline("<b>")
    rows(p).filter(flow.col("x") > 0, name="<img src=x onerror=alert(1)>").sink(op.collect(), name='`"\n' + "x" * 300)
    for picture in (p.draw(), p.draw(parallelism=64, physical=True)):
        assert "<img" not in picture.svg() + picture.html() + picture.mermaid()
        (picture.svg() + picture.html() + picture.mermaid() + picture.text()).encode()
