"""The benchmark of keys that expire runs, and shows memory that follows the keys that live."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.expiry import KINDS, main, run


@pytest.mark.parametrize("kind", KINDS)
def test_the_keys_in_use_follow_the_ttl(kind: str) -> None:
    samples = run(kind, rate=500, minutes=8)
    assert max(sample.live for sample in samples) < 3 * 60 * 500, "a minute's keys, some garbage, and a batch"
    assert samples[-1].cpu > 0


def test_it_writes_samples_and_a_chart(tmp_path: Path) -> None:
    files = [f"--out={tmp_path / 'found.json'}", f"--chart={tmp_path / 'found.svg'}"]
    done = CliRunner().invoke(main, ["--rate=500", "--minutes=2", *files], catch_exceptions=False)
    assert done.exit_code == 0
    assert "M rows a CPU-second" in done.output
    assert list(json.loads((tmp_path / "found.json").read_text())) == list(KINDS)
    assert (tmp_path / "found.svg").read_text().startswith("<svg")
