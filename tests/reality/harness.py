"""Kills real processes at seeded moments, restarts them until they finish, and reads the output with three readers."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

from tests.reality.remains import Landing, Remains, check_finished, check_visible, folders, manifests, parts, remains

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Program:
    """A process that runs a job, called with input, directory of work, checkpoint mode and ``options``.

    It prints what ``child.run`` prints. ``sinks`` has the folder of each sink's files, ``at_full_speed`` the options of
    the last life.
    """

    script: Path
    sinks: Mapping[str, str]
    options: tuple[object, ...] = ()
    at_full_speed: tuple[object, ...] = ()


CHILD = Path(__file__).with_name("child.py")
ORDERS = Program(
    CHILD, {"rows": "rows", "changelog": "totals"}, at_full_speed=("--cost", 0, "--rate", 1e9, "--batch", 65_536)
)
CHECKED = Path(__file__).with_name("checked.py")


class Aim(Enum):
    """What the killer waits for before it draws its delay."""

    START = "the process exists"
    RESTORE = "the job is built"
    RUNNING = "the job runs"
    PARTS = "so many parts without a manifest appear"
    MANIFEST = "a new manifest appears"


@dataclass
class Story:
    """One job through all its lives. ``kills`` is what each of them left; ``tasks`` how many parts a checkpoint has."""

    work: Path
    kills: list[Remains] = field(default_factory=list)
    tasks: int = 0

    @property
    def restores(self) -> list[dict[str, Any]]:
        """What was restored, life by life, as the child wrote it down."""
        path = self.work / "restores.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}}")]

    def reported(self, operator: str) -> pa.Table:
        """Return the rows reported at ``operator`` over all restores; without any, a table without columns.

        Each checkpoint counts once: restoring it twice delivers the same rows to the same snapshot.
        """
        restores = {line["checkpoint"]: line for line in self.restores}.values()
        texts = [restore["rows"][operator] for restore in restores if operator in restore["rows"]]
        tables = [pa.ipc.open_stream(base64.b64decode(text)).read_all() for text in texts]
        return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})


def environment() -> dict[str, str]:
    """The environment of a child: this checkout first."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def spawn(*arguments: object, script: Path = CHILD, **variables: str) -> subprocess.Popen[str]:
    """Start a child process with ``variables`` in its environment; its jobs are checked for liveness."""
    command = [sys.executable, "-W", "error", str(CHECKED), str(script), *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment() | variables, cwd=ROOT
    )


def survive(
    input: Path,
    work: Path,
    mode: str,
    *,
    seed: int,
    kills: int,
    aims: tuple[Aim, ...] | None = None,
    program: Program = ORDERS,
) -> Story:
    """Kill the job up to ``kills`` times at moments drawn from ``seed``, then let it finish at full speed.

    There are fewer kills where the job ends before. After each nothing may be visible that is not committed, or named
    by a durable checkpoint.
    """
    story, dice = Story(work), random.Random(seed)
    arguments = (input, work, mode, *program.options)
    work.mkdir(parents=True, exist_ok=True)
    while len(story.kills) < kills and not _ended(story):
        aim = dice.choice(aims or _AIMS)
        with spawn(*arguments, script=program.script) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            said = wait_for(aim, process, work, dice)
            process.send_signal(signal.SIGKILL)
            said += process.stdout.read()
            errors = process.stderr.read()
        assert process.returncode in (-signal.SIGKILL, 0), errors
        check_visible(work, program.sinks)
        if process.returncode == 0:  # it was faster than the killer
            break
        story.kills.append(_left_by(said, work, program))
    with spawn(*arguments, *program.at_full_speed, script=program.script) as process:
        try:
            out, errors = process.communicate(timeout=120)
        finally:
            process.kill()  # a job that hangs must not take the test with it
    assert process.returncode == 0, errors
    assert out.endswith("done\n"), out
    check_finished(work, program.sinks)
    story.tasks = len(list(manifests(work))[-1].parts)
    return story


_AIMS = (*[Aim.RUNNING] * 7, *[Aim.PARTS] * 6, *[Aim.MANIFEST] * 4, *[Aim.RESTORE] * 2, Aim.START)
_PARTS = 8
"""Parts of the first checkpoint of a job: not more than it has."""
_LOOKS = 10_000
"""At a directory that does not change, half a millisecond apart: then the job is killed where it stands."""


def _ended(story: Story) -> bool:
    return bool(story.kills) and story.kills[-1].landing is Landing.AFTER_END


def _left_by(said: str, work: Path, program: Program) -> Remains:
    """What the kill found. Before the job runs, what lies there is what the life before has left."""
    if "starting" not in said:
        return Remains(Landing.UNSTARTED)
    return remains(work, program.sinks) if "running" in said else Remains(Landing.RESTORING)


def wait_for(aim: Aim, process: subprocess.Popen[str], work: Path, dice: random.Random) -> str:
    """Wait for the moment to kill, and return what the process has printed until then, as far as it was read.

    Of a checkpoint in progress, some number of parts is waited for, up to all that the newest one has written.
    """
    assert process.stdout is not None
    if aim is Aim.START:
        _pause(process, dice.uniform(0, 0.5))
        return ""
    said = process.stdout.readline()
    if aim is Aim.RESTORE:
        _pause(process, dice.uniform(0, 0.6))
        return said
    said += process.stdout.readline()
    # A first life is short, or hardly any kill would come before the first checkpoint.
    _pause(process, dice.uniform(0, 0.7 if folders(work) else 0.08))
    if aim is not Aim.RUNNING:
        _wait_for_files(aim, process, work, dice)
    return said


def _wait_for_files(aim: Aim, process: subprocess.Popen[str], work: Path, dice: random.Random) -> None:
    before = folders(work)
    written = [parts(work, name) for name, whole in before.items() if whole]
    least = dice.randrange((written[-1] if written else _PARTS) + 1)
    for _ in range(_LOOKS):
        new = {name: whole for name, whole in folders(work).items() if name not in before}
        if aim is Aim.MANIFEST and any(new.values()):
            _pause(process, dice.choice((0, 0.002, 0.005, 0.01)))
            return
        if aim is Aim.PARTS and any(not whole and parts(work, name) >= least for name, whole in new.items()):
            return
        if process.poll() is not None:
            return
        _pause(process, 0.0005)


def _pause(process: subprocess.Popen[str], seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


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
