"""Batches that are killed again and again: the output is that of one undisturbed run.

The long look, 60 cases: ``pytest -m soak tests/reality/test_batch_kills.py``.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.reality import batch
from tests.seeds import seeds

ROOT = Path(__file__).parents[2]
KILLS = 4


def lives(work: Path, draw: Random) -> list[float]:
    """Run the batch, killed after a random time, until it ends; return the times."""
    times: list[float] = []
    while True:
        command = [sys.executable, "-m", "tests.reality.batch", str(work)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == b"begins\n", process.stderr.read().decode()
            times.append(draw.uniform(0.05, 1.2))
            try:
                process.wait(times[-1] if len(times) <= KILLS else 120)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
            errors = process.stderr.read().decode()
        assert process.returncode in (0, -signal.SIGKILL), errors
        if process.returncode == 0:
            return times


def rows(out: Path) -> pa.Table:
    table = pq.read_table(out)
    return table.sort_by([(name, "ascending") for name in table.schema.names])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    batch.pipeline(out).run(execution="batch")
    return out


@pytest.mark.parametrize("seed", seeds(1, 60))
def test_a_batch_that_is_killed_gives_what_an_undisturbed_one_gives(
    seed: int, tmp_path: Path, undisturbed: Path
) -> None:
    lives(tmp_path, Random(seed))
    for name in ("numbered", "windows"):
        assert rows(tmp_path / "out" / name).equals(rows(undisturbed / name))
        hidden = [path for path in (tmp_path / "out" / name).rglob("*") if path.suffix == ".staged"]
        assert hidden == []
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("barrierflow-sort")] == []
    (manifest,) = (tmp_path / "checkpoints").glob("*/manifest.json")
    assert manifest.exists()
