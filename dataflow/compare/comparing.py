"""The comparison: for each mode an undisturbed run, a process that is killed, its restore, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, assert_never

from dataflow.clock import Clock, SystemClock
from dataflow.compare.claims import Claim, LastRows, Unsettled, claims
from dataflow.compare.killing import Moment, kill_at, moment
from dataflow.compare.options import KillPoint, Options, RunnerName, Scene
from dataflow.compare.report import CompareReport, Cost, ModeReport, Restoration
from dataflow.compare.spark_trial import SparkTrial
from dataflow.compare.subject import Subject, redirected
from dataflow.compare.trial import LocalTrial, Trial
from dataflow.compare.verdict import Verdict, equal, judge
from dataflow.compare.warnings_by_run import WarningsByRun
from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.sink import Guarantee
from dataflow.errors import ConfigurationError
from dataflow.protocol.events import BarrierKind
from dataflow.runners.run_warnings import raise_warnings

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.runners.run_result import RunResult

__all__ = ["Say", "claim_folder", "compare"]

Say = Callable[[str], None]


def compare(
    subject: Subject,
    folder: Path,
    options: Options,
    *,
    say: Say = lambda _: None,
    clock: Clock | None = None,
) -> CompareReport:
    """Run ``subject`` with each mode in a folder of its own below ``folder``.

    Args:
        say: is told what is being done, a few words at a time.

    Warnings of the runs are given at the end, with the names of the runs, also if one of them fails.

    Raises: ConfigurationError for a subject that cannot be found or compared; what its operators raise.
    """
    clock = clock or SystemClock()
    started = clock.now()
    pipeline = redirected(subject.pipeline(), folder)
    found = claims(pipeline.graph)
    sinks = {node.name: (found[node.name], node.schema) for node in pipeline.graph if node.name in found}
    say("warming up")
    _trial(subject, folder / "warm-up", Mode.ALIGNED, options).warm_up()
    comparison = _Comparison(subject, folder, options, sinks, say)
    try:
        modes = [comparison.mode(mode) for mode in options.modes]
    except BaseException as error:
        raise_warnings(comparison.warnings.warnings(), error=error)
        raise
    raise_warnings(comparison.warnings.warnings())
    return CompareReport(pipeline.name, str(folder), modes, clock.now() - started)


def claim_folder(folder: Path) -> None:
    """Make ``folder``, or see that it is empty. Raises: ConfigurationError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        inside = sorted(path.name for path in folder.iterdir())
        if not inside:
            (folder / ".writable").touch()
            (folder / ".writable").unlink()
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be used: {error}; choose another --directory") from error
    if inside:
        more = f" and {len(inside) - 1} more" if inside[1:] else ""
        raise ConfigurationError(f"an empty directory is needed, and {folder} holds {inside[0]!r}{more}")


class _Comparison:
    """The state that modes share: the output of the first undisturbed run, which all others must equal."""

    def __init__(
        self,
        subject: Subject,
        folder: Path,
        options: Options,
        sinks: Mapping[str, tuple[Claim, pa.Schema]],
        say: Say,
    ) -> None:
        self._subject = subject
        self._folder = folder
        self._options = options
        self._sinks = sinks
        self._say = say
        self._first: Trial | None = None
        self._late: dict[str, int] = {}  # by operator, the largest number of late rows of a run
        self.warnings = WarningsByRun()

    def mode(self, mode: Mode) -> ModeReport:
        """Everything about one mode."""
        options = self._options
        folder = self._folder / mode.value / "undisturbed"
        undisturbed = _trial(self._subject, folder, mode, options)
        self._say(f"{mode}: running undisturbed")
        result = self._noted(undisturbed.run("never"), f"{mode}, undisturbed")
        report = ModeReport(mode, folder, _cost(result))
        unlike = self._unlike_the_first(undisturbed)
        if unlike:
            failures = [
                f"its undisturbed output differs from that of the first mode, so no restore can be judged: {sentence}"
                for sentence in unlike
            ]
            return replace(report, failures=failures)
        if options.kill is KillPoint.NONE:
            return replace(report, result="not killed")
        return self._kill_and_restore(report, undisturbed, result)

    def _noted(self, result: RunResult, run: str) -> RunResult:
        """Take the late rows and the warnings of the run with the name ``run``."""
        self._late = most_late(self._late, result)
        self.warnings.add(run, result.warnings)
        return result

    def _settled(self) -> Iterator[tuple[str, tuple[Claim, pa.Schema]]]:
        """Yield the claim of each sink: none for windows once rows were late, because which ones are may differ."""
        late = ", ".join(f"{rows:,} for {operator!r}" for operator, rows in self._late.items())
        for sink, (claim, schema) in self._sinks.items():
            if late and isinstance(claim, LastRows) and claim.windowed:
                claim = Unsettled(f"rows of a run came too late (at most {late}), and which do may differ")
            yield sink, (claim, schema)

    def _unlike_the_first(self, trial: Trial) -> list[str]:
        if self._first is None:
            self._first = trial
            return []
        verdicts = {
            sink: equal(claim, trial.rows(sink, schema), self._first.rows(sink, schema))
            for sink, (claim, schema) in self._settled()
        }
        return list(Verdict.of(verdicts).failures)

    def _kill_and_restore(self, report: ModeReport, undisturbed: Trial, result: RunResult) -> ModeReport:
        options, missed = self._options, dict[str, None]()
        mode = report.mode
        shows = partial(options.shows, mode) if options.shows else _what_shows(mode, result)
        for attempt in range(1, options.attempts + 1):
            self._say(f"{mode}: killing it" + (f", attempt {attempt}" if missed else ""))
            folder = self._folder / mode.value / f"killed-{attempt}"
            report = replace(report, attempts=attempt, killed=folder)
            trial = replace(undisturbed, folder=str(folder))
            wanted = shows if attempt < options.attempts else _anything
            scene = kill_at(trial, partial(self._moment, wanted))
            if isinstance(scene, Scene):
                self._say(f"{mode}: restoring it")
                return self._restore(report, scene, trial, undisturbed)
            missed[scene.reason] = None
        failure = (
            f"in {options.attempts} attempts no process could be killed at the point {options.kill.value!r}: "
            f"{'; '.join(missed)}; make the run longer (--slow OPERATOR=DURATION) or "
            "checkpoints more frequent (--every)"
        )
        return replace(report, failures=[failure])

    def _moment(self, shows: Callable[[Scene], bool], scene: Scene) -> Moment:
        found = moment(self._options.kill, scene, self._options.patience)
        return Moment.NOT_YET if found is Moment.RIGHT and scene.complete and not shows(scene) else found

    def _restore(self, report: ModeReport, scene: Scene, trial: Trial, undisturbed: Trial) -> ModeReport:
        result = self._noted(trial.run("auto"), f"{report.mode}, restored")
        restored = result.restore_report
        failures = []
        number = restored.checkpoint if restored else 0
        if number != scene.complete:
            failures.append(f"checkpoint {scene.complete} was the newest complete one, {number} was restored")
        exactly = report.mode.guarantee is Guarantee.EXACTLY_ONCE
        if exactly and restored and restored.duplicated():
            failures.append(f"expected no row to be delivered twice, the restore reported {restored.duplicated():,}")
        twice = None if exactly else restored
        verdicts = {
            sink: judge(sink, claim, trial.rows(sink, schema), undisturbed.rows(sink, schema), twice)
            for sink, (claim, schema) in self._settled()
        }
        verdict = Verdict.of(verdicts)
        return replace(
            report,
            restoration=Restoration(scene.in_progress, restored, len(result.checkpoints)),
            result=verdict.result,
            failures=[*failures, *verdict.failures],
        )


def most_late(late: Mapping[str, int], result: RunResult) -> dict[str, int]:
    """Return ``late``, the number of late rows by operator, with larger numbers of ``result`` in place of its own."""
    found = {operator.operator: operator.late for operator in result.operators if operator.late}
    return {name: max(late.get(name, 0), found.get(name, 0)) for name in {**late, **found}}


def _trial(subject: Subject, folder: Path, mode: Mode, options: Options) -> Trial:
    match options.runner:
        case RunnerName.LOCAL:
            return LocalTrial(
                subject=subject,
                folder=str(folder),
                mode=mode.value,
                every=options.every,
                parallelism=options.parallelism,
                credit=options.credit,
                slow=options.slow,
                alignment_timeout=options.alignment_timeout,
            )
        case RunnerName.SPARK:
            return SparkTrial(
                subject=subject,
                folder=str(folder),
                parallelism=options.parallelism,
                rows_per_trigger=options.rows_per_trigger,
            )
        case never:
            assert_never(never)


def _anything(_: Scene) -> bool:
    return True


def _what_shows(mode: Mode, undisturbed: RunResult) -> Callable[[Scene], bool]:
    """What the newest complete checkpoint must have for the mode to show: only what an undisturbed run had, too."""
    if any(record.duplicated for record in undisturbed.checkpoints) and mode is Mode.UNALIGNED:
        return lambda scene: any(scene.duplicated.values())
    if any(record.in_flight_rows for record in undisturbed.checkpoints):
        return lambda scene: scene.in_flight > 0
    return _anything


def _cost(result: RunResult) -> Cost:
    periodic = [record.duration for record in result.checkpoints if record.kind is BarrierKind.CHECKPOINT]
    parts = [record for record in result.checkpoints if record.tasks]  # a micro-batch of Spark's has no tasks' parts
    names = dict.fromkeys(operator.operator for task in result.metrics for operator in task.operators)
    operators = {name: result.operator(name) for name in names}
    return Cost(
        completed=len(result.checkpoints),
        failed=len(result.failures),
        median=round(median(periodic)) if periodic else None,
        worst=max(periodic, default=None),
        blocked=result.blocked if parts else None,
        in_flight=max((record.in_flight_rows for record in parts), default=None),
        state_bytes=max((record.size for record in parts), default=None),
        duration=result.duration,
        rows={name: (found.rows_in, found.rows_out) for name, found in operators.items()},
    )
