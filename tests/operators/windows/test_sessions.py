"""Sessions against a model: out of order, late, split and merging rows, through checkpoints with deltas."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from dataflow.planning.specs import Emit
from tests.operators.windows.sessioned import Sessioned, SessionModel
from tests.operators.windows.windowed import END, MERGED, UNMERGED
from tests.seeds import seeds

WAYS = [(Emit.FINAL, 0), (Emit.FINAL, 15), (Emit.CHANGES, 0), (Emit.CHANGES, 15)]


@pytest.mark.parametrize("aggregations", [MERGED, UNMERGED], ids=["merged", "rows"])
@pytest.mark.parametrize(("emit", "lateness"), WAYS, ids=str)
@pytest.mark.parametrize("seed", seeds(6, 60))
def test_a_long_walk_gives_what_the_model_says(seed: int, emit: Emit, lateness: int, aggregations: Any) -> None:
    """Rows far and near, in any order, often exactly a gap apart, with restores from a base and deltas."""
    draw = Random(f"{seed} {emit} {lateness}")
    gap, keyed = draw.choice([1, 4, 10, 10, 50]), draw.random() < 0.8
    options: dict[str, Any] = {"lateness": lateness, "emit": emit, "keyed": keyed}
    w = Sessioned(gap, **options, aggregations=aggregations)
    model = SessionModel(gap, **options, distinct=aggregations is UNMERGED)
    watermark = -100
    for step in range(50):
        now = step * draw.choice([1, 3])
        spread = draw.choice([2, gap, 5 * gap, 200])
        rows = [
            (draw.choice("aab"), draw.randrange(-9, 9), now + draw.randrange(-spread, spread + 1))
            for _ in range(draw.randrange(1, 6))
        ]
        rows += [(key, 1, time + draw.choice([-gap, gap])) for key, _, time in rows if draw.random() < 0.3]
        assert sorted(w.feed(*rows)) == sorted(model.feed(*rows))
        if draw.random() < 0.2:
            w.checkpoint()
        if draw.random() < 0.2:
            w.restore()
        watermark = max(watermark, now - draw.choice([0, 0, gap, 60]))
        assert sorted(w.advance(watermark)) == sorted(model.advance(watermark))
    assert sorted(w.advance(END)) == sorted(model.advance(END))
    assert w.counts() == (model.late, model.split)
    assert not len(w.operator._cells)
