"""Measurements of two checkouts in turns: each runs the same task in a process of its own, with its own library."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.children import ROOT as HERE
from benchmarks.children import run_program
from benchmarks.deltas import child as deltas
from benchmarks.growth import child as growth
from benchmarks.growth.families import OURS as GROWN
from benchmarks.jobs import child as jobs
from benchmarks.jobs.bids import Bids
from benchmarks.jobs.ours import JOBS, Input

__all__ = ["LATE", "SNAPSHOTS", "Case", "Pair", "family_case", "job_case", "late_case", "measure", "snapshot_case"]

LATE = ("windows", "sessions", "join")
"""The jobs with late rows."""
SNAPSHOTS = (deltas.BASE, deltas.DELTA)
"""The steps of a snapshot: all keys, or those that changed."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """One thing that is measured.

    Attributes:
        name: its name in reports.
        program: what a child runs: ``-m module``, which is each checkout's own, or the path of a file here.
        task: returns the task, as JSON values, given an empty folder.
        seconds: returns the CPU seconds that count, given what the child printed.
    """

    name: str
    program: Sequence[str]
    task: Callable[[Path], Mapping[str, Any]]
    seconds: Callable[[Mapping[str, Any]], float]


@dataclass(frozen=True)
class Pair:
    """CPU seconds of the other checkout and of this one, one run after the other."""

    other: float
    this: float

    @property
    def ratio(self) -> float:
        """This one's over the other's: below 1, this one is faster."""
        return self.this / self.other


def job_case(name: str, bids: Bids, warm_up: Bids) -> Case:
    """Return the case of a job of `benchmarks.jobs`, by default settings."""

    def files(some: Bids) -> list[str]:
        made = some.later_and_later(1) if JOBS[name].input is Input.LATER else some.files(1)
        return [str(file) for file in made]

    def task(folder: Path) -> Mapping[str, Any]:
        return asdict(jobs.Task(jobs.OURS, name, files(bids), files(warm_up), str(folder)))

    return Case(f"{name}: {JOBS[name].title}", ("-m", "benchmarks.jobs.child"), task, _cpu)


def family_case(name: str, size: int, inputs: Path) -> Case:
    """Return the case of one size of a family of `benchmarks.growth`."""

    def task(folder: Path) -> Mapping[str, Any]:
        return asdict(growth.Task(GROWN, name, size, str(inputs), str(folder)))

    return Case(f"growth, {name}: {size:,}", ("-m", "benchmarks.growth.child"), task, _cpu)


def snapshot_case(kind: str, keys: int) -> Case:
    """Return the case of a snapshot of an aggregate with ``keys`` keys: its step, and the work of its writer."""

    def task(folder: Path) -> Mapping[str, Any]:
        return asdict(deltas.Task(kind, keys, str(folder), percent=1.0, repeats=7))

    def seconds(printed: Mapping[str, Any]) -> float:
        taken = sorted(each["freeze_cpu"] + each["write_cpu"] for each in printed["taken"])
        return float(taken[len(taken) // 2])

    return Case(f"snapshot, {kind} of {keys:,} keys", ("-m", "benchmarks.deltas.child"), task, seconds)


def late_case(kind: str, rows: int, percent: float) -> Case:
    """Return the case of a job in which ``percent`` of the rows are late."""

    def task(_: Path) -> Mapping[str, Any]:
        return {"kind": kind, "rows": rows, "percent": percent}

    return Case(f"late rows, {kind}: {percent:g} %", (str(HERE / "benchmarks/versions/late_rows.py"),), task, _cpu)


def _cpu(printed: Mapping[str, Any]) -> float:
    return float(printed["cpu"])


def measure(case: Case, other: Path, pairs: int, say: Say) -> list[Pair]:
    """Return ``pairs`` runs of both checkouts, the order turned around every time, after one of each that is not kept.

    Raises: RuntimeError with the standard error of a child that failed.
    """
    found, trees = [], {"other": other, "this": HERE}
    for number in range(pairs + 1):
        order = trees if number % 2 else reversed(trees)
        times = {which: case.seconds(_child(case, trees[which])) for which in order}
        if number:
            found.append(Pair(**times))
            say(f"{case.name}: pair {number} of {pairs}: {found[-1].other:.3f} s and {found[-1].this:.3f} s")
    return found


def _child(case: Case, tree: Path) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory(prefix="barrierflow-versions-") as folder:
        return run_program(case.program, case.task(Path(folder)), f"{case.name} failed in {tree}", tree)
