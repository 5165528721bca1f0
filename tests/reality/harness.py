"""Kills real processes at seeded moments, says where each kill landed, and reads what is left with three readers.

Where a kill landed is read off the disk afterwards: the process gets no chance to say so.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

from dataflow.store.directory import DirectoryStore
from dataflow.store.manifest import Manifest
from operators.sinks.parquet import committed_files

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("child.py")
SINKS = {"rows": "rows", "changelog": "totals"}


class Landing(Enum):
    """Where a kill found the process."""

    BEFORE_FIRST = "before the first checkpoint"
    IN_PROGRESS = "during a checkpoint in progress"
    UNCOMMITTED = "between manifest and commit"
    BETWEEN = "between two checkpoints"
    AFTER_END = "after the end"


class Aim(Enum):
    """What the killer waits for before it draws its delay."""

    START = "the process exists"
    RUNNING = "the job runs"
    PARTS = "parts without a manifest appear"
    MANIFEST = "a new manifest appears"


@dataclass
class Story:
    """One job through all its lives."""

    work: Path
    landings: Counter[Landing] = field(default_factory=Counter)

    @property
    def restores(self) -> list[dict[str, Any]]:
        """What was restored, each checkpoint once: restoring it twice delivers the same rows to the same snapshot."""
        path = self.work / "restores.jsonl"
        if not path.exists():
            return []
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}}")]
        return list({line["checkpoint"]: line for line in lines}.values())

    def reported(self, operator: str) -> dict[str, list[Any]]:
        """The rows reported at ``operator`` over all restores, by column."""
        columns: dict[str, list[Any]] = {}
        for restore in self.restores:
            for name, values in restore["rows"].get(operator, {}).items():
                columns.setdefault(name, []).extend(values)
        return columns


def environment() -> dict[str, str]:
    """The environment of a child: this checkout first."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def spawn(*arguments: object, script: Path = CHILD, **variables: str) -> subprocess.Popen[str]:
    """A child process of this interpreter, with ``variables`` in its environment."""
    command = [sys.executable, "-W", "error", str(script), *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment() | variables, cwd=ROOT
    )


def survive(input: Path, work: Path, mode: str, *, seed: int, kills: int, options: tuple[object, ...] = ()) -> Story:
    """Kill the job ``kills`` times at moments drawn from ``seed``, then let it finish.

    After each kill nothing may be visible that is not committed, or named by a durable checkpoint.
    """
    story, dice = Story(work), random.Random(seed)
    work.mkdir(parents=True, exist_ok=True)
    for _ in range(kills):
        process = spawn(input, work, mode, *options)
        with process:
            _wait_for(dice.choice(_AIMS), process, work, dice)
            process.send_signal(signal.SIGKILL)
            errors = process.communicate()[1]
        assert process.returncode in (-signal.SIGKILL, 0), errors
        story.landings[landing(work)] += 1
        check_visible(work)
    process = spawn(input, work, mode, *options)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert out.endswith("done\n"), out
    check_finished(work)
    return story


_AIMS = (*[Aim.RUNNING] * 4, Aim.PARTS, *[Aim.MANIFEST] * 2, Aim.START)


def _wait_for(aim: Aim, process: subprocess.Popen[str], work: Path, dice: random.Random) -> None:
    if aim is Aim.START:
        _pause(process, dice.uniform(0, 1.5))
        return
    assert process.stdout is not None
    process.stdout.readline()
    _pause(process, dice.uniform(0, 0.9))
    before = set(_folders(work))
    while aim is not Aim.RUNNING and process.poll() is None:
        new = {name: whole for name, whole in _folders(work).items() if name not in before}
        if any(whole is (aim is Aim.MANIFEST) for whole in new.values()):
            return
        _pause(process, 0.0005)


def _pause(process: subprocess.Popen[str], seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def _folders(work: Path) -> dict[str, bool]:
    """The checkpoint folders there are, and whether each has its manifest."""
    ckpt = work / "ckpt"
    names = [name for name in os.listdir(ckpt) if name.startswith("chk-")] if ckpt.exists() else []
    return {name: (ckpt / name / "manifest.json").exists() for name in names}


# --- what is on the disk


def manifests(work: Path) -> Iterator[Manifest]:
    """The manifests of existing checkpoints, oldest first."""
    store = DirectoryStore(work / "ckpt")
    return (store.manifest(n) for n in store.checkpoints())


def landing(work: Path) -> Landing:
    """Where the kill found the process, by what it left."""
    existing = list(manifests(work))
    if existing and not _committed(work, existing[-1]):
        return Landing.UNCOMMITTED
    if existing and existing[-1].finished:
        return Landing.AFTER_END
    if not all(_folders(work).values()):
        return Landing.IN_PROGRESS
    return Landing.BETWEEN if existing else Landing.BEFORE_FIRST


def _committed(work: Path, manifest: Manifest) -> bool:
    return all(
        (work / SINKS[sink] / "_commits" / f"{manifest.checkpoint}.json").exists()
        for sink, handles in manifest.transactions.items()
        if handles
    )


def check_visible(work: Path) -> None:
    """Every final file is whole, and is in a commit list or in a durable checkpoint that the restart commits."""
    for sink, folder in SINKS.items():
        directory = work / folder
        listed = {path.name for path in committed_files(directory)}
        durable = {str(handle["file"]) for m in manifests(work) for handle in m.transactions.get(sink, ())}
        for path in directory.glob("**/*.parquet"):
            pq.ParquetFile(path).read()
            assert path.name in listed | durable, f"{path} holds rows that no checkpoint committed"


def check_finished(work: Path) -> None:
    """Nothing is staged any more, and the commit lists name exactly the files there are."""
    for folder in SINKS.values():
        directory = work / folder
        assert not list((directory / "_staging").glob("*.staged*"))
        assert sorted(committed_files(directory)) == sorted(directory.glob("**/*.parquet"))


# --- reading it back


def read_with_each(directory: Path) -> Iterator[tuple[str, pa.Table]]:
    """The rows below ``directory``, as pyarrow, DuckDB and polars see them."""
    yield "pyarrow", pq.read_table([str(path) for path in sorted(directory.glob("**/*.parquet"))])
    yield "duckdb", duckdb.read_parquet(f"{directory}/**/*.parquet").to_arrow_table()
    yield "polars", polars.read_parquet(f"{directory}/**/*.parquet").to_arrow()


def last_per_key(changelog: pa.Table) -> dict[int, tuple[int, int]]:
    """Of each key its count and total in the row with the highest count, which is the last."""
    last = duckdb.execute("select key, max(n), arg_max(total, n) from changelog group by key").fetchall()
    return {key: (n, total) for key, n, total in last}


def row_multiset(table: pa.Table) -> list[tuple[int, int]]:
    """Rows with their multiplicity, in a canonical order."""
    return sorted(zip(table["id"].to_pylist(), table["amount"].to_pylist(), strict=True))
