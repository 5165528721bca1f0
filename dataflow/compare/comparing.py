"""The comparison: for each mode a run without a kill, a process that is killed, its restore, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, assert_never

from dataflow.clock import SystemClock
from dataflow.compare.claims import Claim, LastRowsOfKeys, Unsettled, claims
from dataflow.compare.killing import Moment, kill_at, kill_moment
from dataflow.compare.mode_report import Cost, ModeReport, Restoration
from dataflow.compare.options import KillPoint, Options, RunnerName, Scene
from dataflow.compare.phases import (
    BARRIER,
    describe_kill,
    describe_mode,
    describe_restore,
    describe_undisturbed_run,
    describe_warm_up,
)
from dataflow.compare.report import CompareReport
from dataflow.compare.spark_trial import SparkTrial
from dataflow.compare.subject import Subject, replace_sinks
from dataflow.compare.trial import LocalTrial, Trial
from dataflow.compare.verdict import Verdict, compare_outputs, judge
from dataflow.compare.warnings_by_run import WarningsByRun
from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.sink import Guarantee
from dataflow.errors import ConfigurationError
from dataflow.planning.graph import Node
from dataflow.protocol.events import BarrierKind
from dataflow.runners.run_warnings import raise_warnings
from operators.sinks.net import left_rows, net_rows

if TYPE_CHECKING:
    from dataflow.runners.run_result import RunResult

__all__ = ["Say", "claim_folder", "compare"]

Say = Callable[[str], None]


def compare(
    subject: Subject,
    folder: Path,
    options: Options,
    *,
    say: Say = lambda _: None,
) -> CompareReport:
    """Run ``subject`` with each mode, without a kill and with one, and compare the outputs.

    Warnings of the runs are raised at the end, with the names of the runs, also if one of them fails.

    Args:
        subject: the pipeline, by name.
        folder: an empty directory; each run gets a folder in it.
        options: the modes, and how they are run and killed.
        say: is called with one sentence before each phase.

    Returns: the report. A mode that did not keep its guarantee is in its ``problems``, and raises nothing.

    Raises:
        ConfigurationError: the subject cannot be imported or compared.
        PipelineFailed: the pipeline itself failed, before anything was killed or after its restore.

    Example: ``barrierflow compare MODULE:PIPELINE`` calls
    ``compare(Subject("jobs.orders:pipeline"), Path("runs"), Options(every="50ms"), say=print).tables``.
    """
    clock = SystemClock()
    started = clock.now()
    pipeline = replace_sinks(subject.pipeline(), folder)
    claim_of = claims(pipeline.graph)
    sinks = {node.name: (claim_of[node.name], node) for node in pipeline.graph if node.name in claim_of}
    if options.runner is RunnerName.LOCAL:
        say(BARRIER)
        say(describe_warm_up())
    _trial(subject, folder / "warm-up", Mode.ALIGNED, options).warm_up()
    comparison = _Comparison(subject, folder, options, sinks, say)
    try:
        modes = [comparison.try_mode(mode) for mode in options.modes]
    except BaseException as error:
        raise_warnings(comparison.warnings.warnings(), error=error)
        raise
    raise_warnings(comparison.warnings.warnings())
    return CompareReport(pipeline.name, str(folder), modes, clock.now() - started, sinks=tuple(sinks))


def claim_folder(folder: Path) -> None:
    """Create ``folder``, or check that it is empty and can be written to.

    Raises: ConfigurationError, because files of an earlier run would be taken for the results of this one.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted(path.name for path in folder.iterdir())
        if not names:
            (folder / ".writable").touch()
            (folder / ".writable").unlink()
    except OSError as error:
        raise ConfigurationError(f"directory {folder} cannot be used: {error}; choose another --directory") from error
    if names:
        more = f" and {len(names) - 1} more" if names[1:] else ""
        raise ConfigurationError(
            f"--directory must be empty or missing, but {folder} holds {names[0]!r}{more}; choose another directory"
        )


class _Comparison:
    """The state that modes share: the output of the first run without a kill, which all others must equal."""

    def __init__(
        self,
        subject: Subject,
        folder: Path,
        options: Options,
        sinks: Mapping[str, tuple[Claim, Node]],
        say: Say,
    ) -> None:
        self._subject = subject
        self._folder = folder
        self._options = options
        self._sinks = sinks
        self._say = say
        self._first: Trial | None = None
        self._tried = 0
        self._late: dict[str, int] = {}  # by operator, the largest number of late rows of a run
        self.warnings = WarningsByRun()

    def try_mode(self, mode: Mode) -> ModeReport:
        """Run ``mode`` without a kill, then kill and restore it, and return its report."""
        options = self._options
        self._tried += 1
        self._say(describe_mode(mode, self._tried, len(options.modes), options.runner))
        folder = self._folder / mode.value / "undisturbed"
        undisturbed = _trial(self._subject, folder, mode, options)
        self._say(describe_undisturbed_run(mode))
        result = self._record(undisturbed.run("never"), f"{mode}, without a kill")
        report = ModeReport(mode, folder, _cost(result))
        differences = self._differences_from_first(undisturbed)
        if differences:
            failures = [
                "without a kill its output differs from the output of the first mode, so its restore cannot be "
                f"compared with anything: {sentence}; make the pipeline write the same rows in each run"
                for sentence in differences
            ]
            return replace(report, failures=failures)
        if options.kill is KillPoint.NONE:
            return replace(report, result="not killed")
        return self._kill_and_restore(report, undisturbed, result)

    def _record(self, result: RunResult, run: str) -> RunResult:
        """Record the late rows and the warnings of the run with the name ``run``, and return ``result``."""
        self._late = most_late(self._late, result)
        self.warnings.add(run, result.warnings)
        return result

    def _claims(self) -> Iterator[tuple[str, tuple[Claim, Node]]]:
        """Yield the claim and the writing node of each sink. Windows have none once rows were late."""
        late = ", ".join(f"{rows:,} for {operator!r}" for operator, rows in self._late.items())
        for sink, (claim, writer) in self._sinks.items():
            if late and isinstance(claim, LastRowsOfKeys) and claim.windowed:
                claim = Unsettled(f"rows came too late (at most {late}), and other rows may be late in the next run")
            yield sink, (claim, writer)

    def _differences_from_first(self, trial: Trial) -> list[str]:
        """Return one sentence for each sink whose rows differ from the rows of the first trial."""
        if self._first is None:
            self._first = trial
            return []
        verdicts = {
            sink: compare_outputs(claim, trial.rows(writer), self._first.rows(writer))
            for sink, (claim, writer) in self._claims()
        }
        return list(Verdict.of(verdicts).failures)

    def _kill_and_restore(self, report: ModeReport, undisturbed: Trial, result: RunResult) -> ModeReport:
        options, missed = self._options, dict[str, None]()
        mode = report.mode
        is_telling = partial(options.is_telling, mode) if options.is_telling else _telling_scenes(mode, result)
        for attempt in range(1, options.attempts + 1):
            self._say(describe_kill(mode, options, attempt, list(missed)[-1] if missed else ""))
            folder = self._folder / mode.value / f"killed-{attempt}"
            report = replace(report, attempts=attempt, killed=folder)
            trial = replace(undisturbed, folder=str(folder))
            accepts = is_telling if attempt < options.attempts else _any_scene
            scene = kill_at(trial, partial(self._moment, accepts))
            if isinstance(scene, Scene):
                self._say(describe_restore(mode, scene))
                return self._restore(report, scene, trial, undisturbed)
            missed[scene.reason] = None
        failure = (
            f"in {options.attempts} attempts no process could be killed at the point --kill {options.kill.value}: "
            f"{'; '.join(missed)}; make the run longer (--slow OPERATOR=DURATION) or "
            "checkpoints more frequent (--every)"
        )
        return replace(report, failures=[failure])

    def _moment(self, accepts: Callable[[Scene], bool], scene: Scene) -> Moment:
        moment = kill_moment(self._options.kill, scene, self._options.patience)
        return Moment.NOT_YET if moment is Moment.RIGHT and scene.complete and not accepts(scene) else moment

    def _restore(self, report: ModeReport, scene: Scene, trial: Trial, undisturbed: Trial) -> ModeReport:
        result = self._record(trial.run("auto"), f"{report.mode}, restored")
        restored = result.restore_report
        failures = []
        number = restored.checkpoint if restored else 0
        if number != scene.complete:
            failures.append(
                f"expected the newest complete checkpoint, {scene.complete}, to be restored, found checkpoint {number}"
            )
        exactly = report.mode.guarantee is Guarantee.EXACTLY_ONCE
        if exactly and restored and restored.duplicated():
            failures.append(f"expected no repeated delivery, the restore reported {restored.duplicated():,}")
        repeats = None if exactly else restored
        net = net_rows if repeats is None else left_rows
        verdicts = {
            sink: judge(sink, claim, trial.rows(writer, net), undisturbed.rows(writer), repeats)
            for sink, (claim, writer) in self._claims()
        }
        verdict = Verdict.of(verdicts)
        return replace(
            report,
            restoration=Restoration(scene.in_progress, restored, result.totals.completed),
            result=verdict.result,
            failures=[*failures, *verdict.failures],
            checked=verdict.checked,
        )


def most_late(late: Mapping[str, int], result: RunResult) -> dict[str, int]:
    """Return for each operator the larger number of late rows and split sessions of ``late`` and ``result``."""
    others = {o.operator: o.late + o.partly_late + o.split_sessions for o in result.operators}
    others = {name: count for name, count in others.items() if count}
    return {name: max(late.get(name, 0), others.get(name, 0)) for name in {**late, **others}}


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


def _any_scene(_: Scene) -> bool:
    return True


def _telling_scenes(mode: Mode, undisturbed: RunResult) -> Callable[[Scene], bool]:
    """Return a predicate for scenes with what is typical of ``mode``, if the run without a kill had that too.

    Typical are repeated deliveries of mode unaligned, else stored in-flight rows.
    """
    if any(record.duplicated for record in undisturbed.checkpoints) and mode is Mode.UNALIGNED:
        return lambda scene: any(scene.duplicated.values())
    if any(record.in_flight_rows for record in undisturbed.checkpoints):
        return lambda scene: scene.in_flight > 0
    return _any_scene


def _cost(result: RunResult) -> Cost:
    periodic = [record.duration for record in result.checkpoints if record.kind is BarrierKind.CHECKPOINT]
    parts = [record for record in result.checkpoints if record.tasks]  # a micro-batch on Spark has no parts
    names = dict.fromkeys(operator.operator for task in result.metrics for operator in task.operators)
    operators = {name: result.operator(name) for name in names}
    return Cost(
        completed=result.totals.completed,
        failed=result.totals.failed,
        median=round(median(periodic)) if periodic else None,
        worst=max(periodic, default=None),
        blocked=result.blocked if parts else None,
        in_flight=max((record.in_flight_rows for record in parts), default=None),
        state_bytes=max((record.size for record in parts), default=None),
        duration=result.duration,
        rows={name: (counters.rows_in, counters.rows_out) for name, counters in operators.items()},
    )
