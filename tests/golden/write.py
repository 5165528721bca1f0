"""Writes the kept directories: ``python tests/golden/write.py`` from anywhere; with names, only these.

Each job runs in a process of its own, which kills itself when a checkpoint is durable and its sinks are not committed.
Jobs that are not on Spark are simulated, with the first seed that has what is wanted of its mode.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HOST = "a host"
"""What the files of locks say instead of this machine's name."""


def main(names: Sequence[str]) -> None:
    sys.path.insert(0, str(ROOT))
    from tests.golden.archives import MODES, SPARK, pack

    for name in names or (*MODES, SPARK):
        with tempfile.TemporaryDirectory() as folder:
            work = killed(name, Path(folder))
            strip(work)
            archive = pack(work, name)
            print(archive.relative_to(ROOT), archive.stat().st_size, "bytes")


def killed(name: str, folder: Path) -> Path:
    """Return the directory of a job that killed itself: of the first seed whose job had what is wanted."""
    for seed in range(40):
        work = folder / f"work-{seed}"
        command = [sys.executable, "-m", "tests.golden.write", "--killed", name, str(work), str(seed)]
        done = subprocess.run(command, cwd=ROOT, check=False, start_new_session=True)
        if done.returncode == -signal.SIGKILL:
            return work
    raise SystemExit(f"{name}: no job had a checkpoint that is wanted; the last one ended with {done.returncode}")


def strip(work: Path) -> None:
    """Remove the name of the host, and what no restart reads: notes on processes, and pickles for workers."""
    for folder in ("working", "workers"):
        shutil.rmtree(work / "ckpt" / folder, ignore_errors=True)
    for path in [*work.rglob("FENCE"), *work.rglob("LOCK")]:
        owner = json.loads(path.read_text())
        path.write_text(json.dumps({**owner, "host": HOST, "pid": 0}))


def run(name: str, work: Path, seed: int) -> None:
    """Run a job until it kills itself."""
    import dataflow as flow
    from tests.golden.job import make_input, pipeline

    make_input(work / "in")
    golden = pipeline(work)
    sinks = [node.spec.sink for node in golden.graph if hasattr(node.spec, "sink")]
    if name == "spark":
        later = count()  # the first of the sinks commits, which a restart has to take back
        kill_in_commit(sinks, lambda checkpoint: checkpoint >= 4 and next(later) > 0)
        run_on_spark(golden, work)
        return
    checkpoint = flow.Checkpointing(work / "ckpt", every="2ms", mode=name, duplicates="rows", keep=2)
    kill_in_commit(sinks, lambda checkpoint: checkpoint >= 2 and is_wanted(work / "ckpt", checkpoint, name))
    golden.run(flow.SimulatedRunner(seed), parallelism=2, checkpoint=checkpoint)


def run_on_spark(golden: Any, work: Path) -> None:
    import dataflow as flow

    with tempfile.TemporaryDirectory() as folder:
        conf = {
            "spark.master": "local[2]",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true",
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.local.dir": folder,
        }
        runner = flow.SparkRunner(rows_per_trigger=1_500, conf=conf)
        golden.run(runner, parallelism=2, max_key_groups=4, checkpoint=flow.Checkpointing(work / "ckpt"))


def kill_in_commit(sinks: Sequence[Any], wanted: Callable[[int], bool]) -> None:
    """Let the process group be killed when one of ``sinks`` is to commit a checkpoint that is ``wanted``."""

    def dying(commit: Callable[..., None]) -> Callable[..., None]:
        def committed(checkpoint: int, handles: Sequence[Any]) -> None:
            if handles and wanted(checkpoint):
                os.killpg(0, signal.SIGKILL)
            commit(checkpoint, handles)

        return committed

    for sink in sinks:
        sink.commit = dying(sink.commit)


def is_wanted(directory: Path, checkpoint: int, mode: str) -> bool:
    """Return whether a checkpoint has what is worth keeping of its mode."""
    import dataflow as flow
    from dataflow.store.manifest import LOG

    manifest = flow.DirectoryStore(directory).manifest(checkpoint)
    if not any(part.part == LOG and part.checkpoint for part in manifest.parts):
        return False  # it has no deltas
    twice, in_flight = manifest.summary.get("duplicated", {}), manifest.summary.get("in_flight_rows", 0)
    match mode:
        case "unaligned":
            return min(twice.get(name, 0) for name in ("rows", "totals", "tally")) > 0 and "windows" not in twice
        case "unaligned-persisted":
            return in_flight >= 100
    return True


if __name__ == "__main__":
    if sys.argv[1:2] == ["--killed"]:
        run(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main(sys.argv[1:])
