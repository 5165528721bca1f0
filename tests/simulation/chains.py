"""Chains of deltas on a disk that fails: every seed draws a job, its settings and what goes wrong with its directory.

python -m tests.simulation.chains --seed 17        replay one seed and print its processes
python -m tests.simulation.chains --seeds 0:500    run many, print how often each kind of fault was reached

A process runs a job on the seeded scheduler until it ends or its disk kills it; some crashes also lose what was not
synced. The next process opens the same directory. Checked after each crash: every checkpoint that was promised exists,
and each one that exists can be read whole. Checked at the end: the rows, and that no file is left that nothing names.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.checkpointing import Mode
from dataflow.errors import CheckpointError
from dataflow.protocol.events import BarrierKind
from dataflow.runners.attempts import Attempt
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from dataflow.runtime.job.job import Job
from dataflow.store.directory import DirectoryStore
from dataflow.store.manifest import LOG, Manifest
from dataflow.testing import Ledger, delivered_again, ledger_sink
from dataflow.testing.faulty_files import Crash, FaultyFileSystem
from dataflow.testing.ledger import ContractBroken
from tests.checkpoints import task_states

__all__ = ["KINDS", "Chains", "Run", "run"]

ROWS = 96
TABLE = pa.table({"x": range(ROWS), "text": [f"a row of many bytes, {x} " * 8 for x in range(ROWS)]})

KINDS = (
    "crash", "crash in recovery", "crash in clean-up", "torn write", "power failure", "lost write", "failed operation",
    "failed checkpoint", "pending checkpoint", "failed job", "chain", "object of a deleted checkpoint", "compaction",
    "savepoint", "restore",
)  # fmt: skip
"""What a campaign counts; a long one has to reach each."""

TARGETS = ("any", "any", "any", "recovery", "recovery", "clean-up", "clean-up", "write")
"""Of which operations a crash is one."""

REACH = {"any": (40, 150, 500), "recovery": (12, 40), "clean-up": (3, 12, 40), "write": (10, 40)}
"""How many operations of that kind may pass before the crash, at most."""


@dataclass(slots=True)
class Disk:
    """What goes wrong with the file operations of one process; ``seen`` counts it."""

    draw: random.Random
    seen: Counter[str]
    target: str | None = None
    left: int = 0
    failing: float = 0.0
    recovering: bool = True
    checkpoint_hurt: set[str] = field(default_factory=set)

    def __call__(self, number: int, name: str, path: Path) -> None:
        self._crash(name, path)
        writes = name in ("make_directory", "create", "write", "sync", "rename", "remove", "sync_directory")
        if writes and self.draw.random() < self.failing:
            self.seen["failed operation"] += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def _crash(self, name: str, path: Path) -> None:
        kinds = {"any"}
        if self.recovering:
            kinds.add("recovery")
        if name in ("remove", "remove_directory") and path.suffix != ".tmp":
            kinds.add("clean-up")
        if name == "write":
            kinds.add("write")
        if self.target not in kinds:
            return
        self.left -= 1
        if self.left >= 0:
            return
        self.target = None
        self.seen["crash"] += 1
        names = {"recovery": "crash in recovery", "clean-up": "crash in clean-up", "write": "torn write"}
        self.seen.update(names[kind] for kind in kinds if kind in names)
        raise Crash(f"{name} {path.name}")


class Store(DirectoryStore):
    """A directory that notes what it promised, and what its chains look like."""

    def __init__(self, path: Path, files: FaultyFileSystem, run: Run) -> None:
        super().__init__(path, files=files)
        self._run = run
        self._lengths: dict[str, int] = {}

    def commit(self, manifest: Manifest) -> None:
        super().commit(manifest)
        run = self._run
        run.promised.add(manifest.checkpoint)
        logs = Counter(part.task for part in manifest.parts if part.part == LOG)
        older = {part.checkpoint for part in manifest.parts if part.checkpoint}
        run.seen["chain"] += max(logs.values(), default=0) > 1
        run.seen["object of a deleted checkpoint"] += not older <= set(self.checkpoints())
        run.seen["compaction"] += any(n == 1 and self._lengths.get(task, 0) > 1 for task, n in logs.items())
        self._lengths = dict(logs)

    def retire(self, checkpoint: int) -> None:
        self._run.doomed.add(checkpoint)
        super().retire(checkpoint)


@dataclass(slots=True)
class Run:
    """What a seed did. ``promised`` are the checkpoints whose manifest was durable, ``doomed`` those being deleted."""

    seed: int
    mode: Mode
    seen: Counter[str] = field(default_factory=Counter)
    attempts: list[Attempt] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    promised: set[int] = field(default_factory=set)
    doomed: set[int] = field(default_factory=set)

    def __str__(self) -> str:
        return "\n  ".join([f"seed {self.seed}, {self.mode.value}:", *self.story, f"seen: {dict(self.seen)}"])


def run(seed: int) -> Run:
    """Run one seed. Raises AssertionError if anything is lost, repeated without a report, or left behind."""
    made = Run(seed, list(Mode)[seed % len(Mode)])
    with tempfile.TemporaryDirectory(prefix="chains-") as folder:
        try:
            _Processes(made, Path(folder)).run()
        except BaseException as error:
            error.add_note(str(made))
            error.add_note(f"replay with: python -m tests.simulation.chains --seed {seed}")
            raise
    return made


class _Processes:
    """The processes of one seed, one after the other, in one directory."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run_ = run
        self.path = folder / "ckpt"
        self.draw = draw = random.Random(f"chains {run.seed}")
        self.files = FaultyFileSystem()
        self.world = Ledger(durable=lambda: DirectoryStore(self.path).checkpoints())
        self.parallelism = draw.choice((1, 1, 2))
        self.batch_rows = draw.choice((1, 2, 3))
        self.crashes = draw.choice((1, 2, 3, 4, 5, 6))
        self.power = draw.choice((0.0, 0.5, 1.0))
        self.failing = draw.choice((0.0, 0.0, 0.002, 0.01, 0.03))
        self.savepoints = draw.random() < 0.3
        self.settings: dict[str, Any] = {
            "every": draw.choice(("400us", "1ms", "2ms")),
            "keep": draw.choice((1, 1, 2, 3)),
            "max_concurrent": draw.choice((1, 2, 3)),
        }

    def run(self) -> None:
        for number in range(200):
            if (result := self._process(number)) is not None:
                self._check_result(result)
                self._check_tidy()
                return
        raise AssertionError("the job did not end in 200 processes")

    def _process(self, number: int) -> flow.RunResult | None:
        """Run one process; None: it crashed, or its job failed."""
        run, draw = self.run_, self.draw
        disk = Disk(draw, run.seen, failing=self.failing if number < 50 else 0.0)
        if self.crashes:
            disk.target = draw.choice(TARGETS)
            disk.left = draw.randrange(draw.choice(REACH[disk.target]))
            self.crashes -= 1
        self.files.fault = disk
        existing = DirectoryStore(self.path).checkpoints()
        store = Store(self.path, self.files, run)
        faults = Faults(
            skew=draw.choice((0.0, 0.3)), stall=draw.choice((0.0, 0.005)), slow=draw.choice((0.1, 0.5)),
            joins=draw.choice((0.0, 0.5)),
        )  # fmt: skip
        runner = SimulatedRunner(run.seed * 1_000 + number, faults, max_turns=200_000)
        checkpoint = flow.Checkpointing(
            store, mode=run.mode, tolerable_failures=None, duplicates="rows",
            alignment_timeout="200us" if run.mode is Mode.ALIGNED_TIMEOUT else None, **self.settings,
        )  # fmt: skip
        pipeline = _pipeline(self.batch_rows, ledger_sink(self.world))
        job = pipeline.start(runner, parallelism=self.parallelism, checkpoint=checkpoint)
        end = "its end"
        try:
            with _watched(disk, savepoints=self.savepoints):
                return job.wait()
        except Crash as crash:
            end = f"a crash at {crash}"
            self._after_crash(number, existing)
        except CheckpointError as error:
            if not self.failing:
                raise
            run.seen["failed job"] += 1
            end = f"{type(error).__name__}: {str(error).replace(str(self.path), '')[:120]}"
        finally:
            self.files.fault = _no_fault
            self._note(job.attempts, end, existing)
        return None

    def _note(self, attempts: Sequence[Attempt], end: str, existing: Sequence[int]) -> None:
        run = self.run_
        run.attempts += attempts
        for attempt in attempts:
            restored = attempt.restored
            if restored is not None:
                run.seen["restore"] += 1
            start = "not restored" if restored is None else f"from {restored.checkpoint}"
            run.story.append(f"{start} of {list(existing)}, checkpoints {attempt.checkpoints}, to {end}")

    def _after_crash(self, number: int, existing: Sequence[int]) -> None:
        run = self.run_
        folders = {int(folder.name[4:]) for folder in self.path.glob("chk-*")}
        newest = max(run.promised, default=0)
        run.seen["pending checkpoint"] += any(n > newest for n in folders)
        if self.draw.random() < self.power:
            before = _content(self.path)
            self.files.lose_power(self.path, self.draw.randrange(10_000))
            run.seen["power failure"] += 1
            run.seen["lost write"] += _content(self.path) != before
        store = DirectoryStore(self.path)
        found = store.checkpoints()
        lost = run.promised - run.doomed - set(found)
        assert not lost, f"process {number}: the promised checkpoints {lost} are lost; there are {found}"
        for checkpoint in found:
            states = task_states(store, checkpoint)
            assert states, f"checkpoint {checkpoint} has no states"
        run.promised &= set(found)

    def _check_result(self, result: flow.RunResult) -> None:
        run = self.run_
        again = {name: delivered_again(run.attempts, name) for name in ("out", "sums", "world")}
        assert run.mode is Mode.UNALIGNED or not any(again.values()), f"reported as duplicates: {again}"
        for name, found in (("out", Counter(result.table("out")["x"].to_pylist())), ("world", self._visible())):
            expected = Counter(range(ROWS)) + Counter(x for x, *_ in again[name].elements())
            assert found == expected, f"{name}: lost {expected - found}, too many {found - expected}"
        totals: Counter[int] = Counter()
        counts: Counter[int] = Counter()
        for x in [*range(ROWS), *(row[0] for row in again["sums"].elements())]:
            totals[x % 40] += x
            counts[x % 40] += 1
        rows = {row["k"]: (row["n"], row["s"]) for row in result.table("totals").to_pylist()}
        assert rows == {k: (counts[k], totals[k]) for k in counts}, f"totals: {rows}"

    def _visible(self) -> Counter[int]:
        return Counter(row[0] for row in self.world.rows().elements())

    def _check_tidy(self) -> None:
        """Check that a clean-up on a sound disk leaves the manifests, the objects that they name, and nothing else."""
        with DirectoryStore(self.path, files=self.files) as store:
            store.remove_orphans()
            named = {
                f"chk-{part.checkpoint or n:08d}/{part.file}"
                for n in store.checkpoints()
                for part in store.manifest(n).parts
            }
            named |= {f"chk-{n:08d}/manifest.json" for n in store.checkpoints()}
            for checkpoint in store.checkpoints():
                task_states(store, checkpoint)
        found = {str(file.relative_to(self.path)) for file in self.path.glob("chk-*/*")}
        assert found == named, f"left over {sorted(found - named)}, missing {sorted(named - found)}"


def _no_fault(number: int, name: str, path: Path) -> None: ...


def _content(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() if file.is_file() else b"" for file in path.rglob("*")}


@contextmanager
def _watched(disk: Disk, *, savepoints: bool) -> Iterator[None]:
    """Note when a job has been built; ask each for a savepoint after its second checkpoint."""
    step, asked = Job.step, list[Job]()

    def watched(job: Job) -> bool:
        disk.recovering = False
        if savepoints and len(job.history.checkpoints) == 2 and job not in asked:
            asked.append(job)
            taken = job.checkpoint(BarrierKind.SAVEPOINT)
            taken.add_done_callback(lambda done: disk.seen.update(savepoint=done.exception() is None))
        failures = len(job.history.failures)
        moved = step(job)
        disk.seen["failed checkpoint"] += len(job.history.failures) > failures
        return moved

    with mock.patch.object(Job, "step", watched):
        yield


def _pipeline(batch_rows: int, sink: flow.Sink) -> flow.Pipeline:
    with flow.Pipeline("chains") as p:
        rows = p.source(op.from_arrow(TABLE, batch_rows=batch_rows, splits=2), name="in")
        rows.rebalance().sink(op.collect(), name="out", parallelism=1)
        keyed = rows.select("x", k=col("x") % 40, name="keys").key_by("k")
        keyed.agg(n=op.count(), s=col("x").sum(), emit="final", name="sums").sink(op.collect(), name="totals")
        rows.select("x", name="numbers").rebalance().sink(sink, name="world")
    return p


@dataclass(slots=True)
class Chains:
    """What a number of runs covered."""

    runs: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    def add(self, seeds: Iterable[int]) -> Chains:
        """Run ``seeds``; raises at the first that fails."""
        for seed in seeds:
            self.seen += run(seed).seen
            self.runs += 1
        return self

    def missing(self) -> list[str]:
        """The kinds that no run reached."""
        return [kind for kind in KINDS if not self.seen[kind]]

    def __str__(self) -> str:
        return f"{self.runs} runs: " + ", ".join(f"{kind} {self.seen[kind]}" for kind in KINDS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="replay this seed")
    parser.add_argument("--seeds", default="0:200", help="first:last, the last not included")
    given = parser.parse_args()
    if given.seed is not None:
        print(run(given.seed))
        return 0
    first, _, last = given.seeds.partition(":")
    chains, failed = Chains(), list[int]()
    for seed in range(int(first), int(last)):
        try:
            chains.add([seed])
        except (Exception, ContractBroken) as error:
            failed.append(seed)
            print(f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()), sep="\n")
    print(chains, f"never reached: {chains.missing()}", f"failed: {failed}", sep="\n")
    return 1 if failed or chains.missing() else 0


if __name__ == "__main__":
    sys.exit(main())
