"""Jobs run without an import of pandas, which pyarrow imports at its first conversion if it is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

JOBS = '''
import sys
import threading
from datetime import datetime

import dataflow as flow
import operators as op
from dataflow import col, when

RECIPES = {
    "k": op.integers(0, 9), "s": op.choice(["a", "b", None]), "x": op.normal(0, 1),
    "t": op.event_times("2026-01-01", rate="1/s"),
}


def check(what):
    found = sorted(name for name in sys.modules if name.partition(".")[0] == "pandas")
    assert not found, (what, found[:3])


def run(make, **options):
    with flow.Pipeline("job") as p:
        make(p)
    result = p.run(**options)
    check(make)
    return result


def source(p, rows=2_000):
    return p.source(op.generate(RECIPES, rows=rows, batch_rows=100), name="rows")


def write(p):
    source(p).sink(op.write_parquet("data"), name="out")


def read(p):
    return p.source(op.read_parquet("data"), name="rows")


def project(p):
    rows = read(p).filter((col("x") > 0.5) & (col("s") != "a") & (col("t") > datetime(2026, 1, 1, 0, 1)))
    rows = rows.select(y=col("k") // 3, z=when(col("k") > 3).then("big").otherwise(None), u=col("s").is_in(["a", "b"]))
    rows.sink(op.write_parquet("projected"), name="out")


def aggregate(key):
    def make(p):
        sums = [op.count().alias("n"), col("x").sum().alias("v"), col("s").min().alias("least")]
        read(p).key_by(key).agg(*sums, name="agg").sink(op.collect(), name="out")

    return make


def windows(p):
    timed = source(p, rows=None).with_watermark("t", delay="1min")
    counts = timed.key_by("s").window(op.tumbling("1min")).agg(op.count().alias("n"), name="agg")
    counts.sink(op.write_parquet("windows"), name="out")


def stopped():
    """Run the windows from the newest checkpoint until some are complete, and stop with a checkpoint."""
    with flow.Pipeline("job") as p:
        windows(p)
    job = p.start(checkpoint=flow.Checkpointing("ckpt", every="20ms"), parallelism=2)
    waiting = threading.Event()
    while job.progress().rows_in < 5_000:
        waiting.wait(0.01)
    result = job.stop()
    check("windows")
    return result


def csv(p):
    source(p).sink(op.write_csv("csv"), name="out")


def json(p):
    source(p).sink(op.write_json("json"), name="out")


run(write)
run(project)
run(aggregate("k"), parallelism=2)
run(aggregate("s"), parallelism=2)
run(csv)
run(json)
assert stopped().restore_report is None
assert stopped().restore_report is not None
'''


def test_no_job_imports_pandas(tmp_path: Path) -> None:
    assert find_spec("pandas") is not None, "without pandas this test cannot fail: pip install -e '.[test]'"
    ran = subprocess.run([sys.executable, "-c", JOBS], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
