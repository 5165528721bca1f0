"""One real comparison on a small pipeline, for all tests that look at what it found: of all modes with ``-m soak``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT, barrierflow
from tests.seeds import in_soak

MODULE = """
import os
from uuid import uuid4

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col


def pipeline():
    numbers = pa.table({"k": [i % 20 for i in range(8_000)], "x": [i / 10 for i in range(8_000)]})
    with flow.Pipeline("mine") as p:
        source = p.source(op.from_arrow(numbers, splits=2, batch_rows=40), name="numbers")
        kept = source.rebalance().filter(col("x") > 1, name="kept")
        kept.sink(op.write_parquet("MUST-NOT-BE-WRITTEN"), name="rows")
        counts = kept.key_by("k").agg(op.count().alias("n"), col("x").sum().alias("s"), emit="updates", name="counts")
        counts.sink(op.collect(), name="totals")
    return p


made = pipeline()

def stamped(batch):
    return batch.append_column("batch", pa.array([str(uuid4())] * batch.num_rows))


def restless():
    with flow.Pipeline("restless") as p:
        source = p.source(op.from_arrow(pa.table({"x": range(10)})), name="numbers")
        schema = source.schema.append(pa.field("batch", pa.string()))
        source.map_batches(stamped, schema=schema, name="stamped").sink(op.collect(), name="out")
    return p


def tardy():
    times = pa.array([0, 10, 1, 11, 2], pa.timestamp("s"))
    with flow.Pipeline("tardy") as p:
        rows = p.source(op.from_arrow(pa.table({"k": 5 * ["a"], "at": times}), batch_rows=1), name="rows")
        windows = rows.with_watermark("at", delay="2s").key_by("k").window(op.tumbling("5s"))
        windows.agg(op.count().alias("n"), name="counts").map_batches(once).sink(op.collect(), name="out")
    return p


def once(batch):
    # two windows end, the second of them at the end of the input
    if os.environ.get("FAILING") and batch["window_start"][0].as_py().second:
        raise ValueError("on purpose")
    return batch


def broken():
    raise ValueError("no way")


def wrong():
    return "a text"
"""


@dataclass(frozen=True)
class Compared:
    """A comparison: where it was started, where it worked, and its report, also as a page."""

    home: Path
    folder: Path
    report: dict[str, Any]
    page: str

    def mode(self, name: str) -> dict[str, Any]:
        return next(mode for mode in self.report["modes"] if mode["mode"] == name)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a user's module."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "mine.py").write_text(MODULE, encoding="utf-8")
    return folder


@pytest.fixture
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if this process, and those it starts, had been started in the directory with the user's module."""
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(home)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    yield
    sys.modules.pop("mine", None)


TWO = ("--mode", "aligned", "--mode", "unaligned-persisted")
"""A mode that aligns, and one that stores rows in flight. Mode unaligned has a test of its own."""


@pytest.fixture(scope="session", params=[TWO, *in_soak(())], ids=["two modes", "all modes"])
def compared(request: pytest.FixtureRequest, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    folder = tmp_path_factory.mktemp("compare") / "run"
    page = folder.parent / "report.html"
    limit = () if request.param else ("--alignment-timeout", "5ms")
    words = ["--slow", "counts=200us", "--every", "50ms", "--credit", "16", *limit, "--html", str(page)]
    done = barrierflow("compare", "mine:pipeline", *request.param, *words, "--json", "--directory", folder, cwd=home)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return Compared(home, folder, json.loads(done.stdout), page.read_text(encoding="utf-8"))
