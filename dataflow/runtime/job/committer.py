"""Commit the transactions of two-phase sinks when their checkpoint is durable, and retry failed commits.

A job whose sink directory another job has taken over (``DirectoryInUse``) can never commit again, so it fails. Any
other failure is retried for as long as the job runs, so `WaitingCommit` says which rows wait, and for how long.

The committer keeps the pending commit of each sink, the failures, and when to retry. Calls of ``commit`` run in the
background, one after the other, oldest checkpoint first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dataflow.clock import duration_text
from dataflow.contracts.sink import Handle, TwoPhaseSink
from dataflow.errors import DirectoryInUse
from dataflow.runtime.task.crash_points import Point, Probe, no_probe
from dataflow.runtime.task.messages import Crashed

__all__ = ["LAST_ATTEMPTS", "Committer", "SinkCommitted", "SinkFailed", "WaitingCommit"]

LAST_ATTEMPTS = 8
"""Failed commits of the *last* checkpoint before the job fails; earlier ones are retried for as long as it runs."""

_FIRST_RETRY, _LAST_RETRY = 100_000, 5_000_000
_LONG_WAIT = 60_000_000
"""Microseconds after which a wait is one that the user should know of."""

log = logging.getLogger("dataflow.job")


@dataclass(frozen=True, slots=True)
class SinkCommitted:
    """All transactions of ``sink`` up to ``checkpoint`` are visible: ``rows`` rows of this run."""

    checkpoint: int
    sink: str
    rows: int = 0


@dataclass(frozen=True, slots=True)
class SinkFailed:
    """The commit failed; it will be retried."""

    checkpoint: int
    sink: str
    error: Exception

    def of_last_checkpoint(self, attempts: int) -> Exception:
        """Return the error for a job that cannot commit its last checkpoint, with advice as a note."""
        self.error.add_note(
            f"sink {self.sink!r} could not commit the last checkpoint {self.checkpoint} in {attempts} attempts; its "
            "rows are staged and durable: fix the problem and run again with restore='auto' to commit them"
        )
        return self.error


@dataclass(frozen=True, slots=True)
class WaitingCommit:
    """The rows of a sink that are durable in a checkpoint and that the sink has not committed yet.

    Attributes:
        sink: the name of the sink.
        checkpoint: the newest checkpoint that it has to commit.
        rows: the number of rows that wait, of this checkpoint and older ones.
        age: microseconds since the oldest of these checkpoints became durable.
        failure: the last error of a commit in this time; "": none failed, but a commit has not returned yet.

    >>> str(WaitingCommit("db", 7, 1_200, 65_000_000, "no route to host"))
    "1,200 rows have waited 1.1 min for sink 'db' (no route to host)"
    """

    sink: str
    checkpoint: int
    rows: int
    age: int
    failure: str = ""

    @property
    def advice(self) -> str:
        """A sentence for the user: what waits, why, and what to do."""
        problem = "each attempt failed, and the job tries again" if self.failure else "the commit has not returned"
        return (
            f"{self}: {problem}. The rows are durable up to checkpoint {self.checkpoint} and become visible with the "
            "next commit; fix the problem, or stop the job and run it again later with restore='auto'"
        )

    def __str__(self) -> str:
        rows = "1 row has" if self.rows == 1 else f"{self.rows:,} rows have"
        reason = f" ({self.failure})" if self.failure else ""
        return f"{rows} waited {duration_text(self.age)} for sink {self.sink!r}{reason}"


@dataclass(slots=True)
class _Commit:
    """The newest checkpoint that a sink must commit. Its handles include all older ones that may be uncommitted.

    ``rows`` are all rows that the sink staged in this run up to the checkpoint, which became durable at ``durable_at``.
    ``missing`` is shared by the commits of one checkpoint: the sinks that have not committed it. Once the commits have
    started, only their background queue uses it.
    """

    checkpoint: int
    handles: Sequence[Handle]
    missing: set[str]
    rows: int
    durable_at: int
    attempts: int = 0
    retry_at: int | None = None


@dataclass(slots=True)
class _Wait:
    """The time since which a sink has had something to commit, the last failure, and whether the user knows."""

    since: int
    failure: str = ""
    is_known: bool = False


class Committer:
    """Keeps the pending commit of each two-phase sink.

    Invariant: a sink has at most one pending commit, of the newest durable checkpoint, because handles are cumulative.
    """

    def __init__(
        self,
        sinks: Mapping[str, TwoPhaseSink],
        submit: Callable[[str, Callable[[], None]], None],
        report: Callable[[SinkCommitted | SinkFailed | Crashed], None],
        probe: Probe = no_probe,
    ) -> None:
        self._sinks = sinks
        self._submit = submit
        self._report = report
        self._probe = probe
        self._pending: dict[str, _Commit] = {}
        self._committed = dict.fromkeys(sinks, 0)
        #: Has the sinks of ``_pending``, and no others.
        self._waits: dict[str, _Wait] = {}
        self._visible = dict.fromkeys(sinks, 0)  # rows of this run that are committed
        self.failures: dict[str, tuple[int, SinkFailed]] = {}
        """The number of failed commits by sink, and the last failure."""

    def commit(
        self, checkpoint: int, transactions: Mapping[str, Sequence[Handle]], staged: Mapping[str, int], now: int
    ) -> None:
        """Start to commit every sink's transactions up to ``checkpoint``.

        ``staged`` has the rows that each sink staged in this run up to the checkpoint, committed ones included.
        """
        missing = set(self._sinks)
        for name in self._sinks:
            handles, rows = transactions.get(name, ()), staged.get(name, 0)
            self._pending[name] = _Commit(checkpoint, handles, missing, rows, now)
            self._waits.setdefault(name, _Wait(now))
            self._start(name)

    def committed(self, done: SinkCommitted) -> int:
        """Record a commit; return the checkpoint up to which *all* sinks have committed."""
        pending = self._pending.get(done.sink)
        self._visible[done.sink] = max(self._visible[done.sink], done.rows)
        if pending is not None and pending.checkpoint <= done.checkpoint:
            del self._pending[done.sink], self._waits[done.sink]
        elif pending is not None:
            self._waits[done.sink] = _Wait(pending.durable_at)
        self._committed[done.sink] = max(self._committed[done.sink], done.checkpoint)
        return self.horizon

    def failed(self, failure: SinkFailed, now: int) -> int:
        """Record a failed commit, to be retried after a pause that doubles; return the number of failed attempts."""
        times, _ = self.failures.get(failure.sink, (0, None))
        self.failures[failure.sink] = times + 1, failure
        if failure.sink in self._waits:
            self._waits[failure.sink].failure = str(failure.error) or type(failure.error).__name__
        pending = self._pending.get(failure.sink)
        attempts = 0
        if pending is not None and pending.checkpoint == failure.checkpoint:
            attempts = pending.attempts = pending.attempts + 1
            pending.retry_at = now + min(_FIRST_RETRY << (attempts - 1), _LAST_RETRY)
        log.warning(
            "commit of checkpoint %d by sink %r failed, attempt %d: %s",
            failure.checkpoint, failure.sink, attempts, failure.error,
        )  # fmt: skip
        return attempts

    def tick(self, now: int) -> bool:
        """Retry the commits that are due; return whether there were any."""
        due = [
            name for name, pending in self._pending.items() if pending.retry_at is not None and pending.retry_at <= now
        ]
        for name in due:
            self._start(name)
        return bool(due)

    def waiting(self, now: int) -> list[WaitingCommit]:
        """Return for each sink that has something to commit what waits. Any thread may call it."""
        waits = dict(self._waits)
        return [
            WaitingCommit(name, commit.checkpoint, commit.rows - self._visible[name], now - wait.since, wait.failure)
            for name, commit in list(self._pending.items())
            if (wait := waits.get(name)) is not None
        ]

    def overdue(self, now: int) -> list[WaitingCommit]:
        """Return what has waited for a minute, each wait once."""
        if all([wait.is_known or now - wait.since < _LONG_WAIT for wait in self._waits.values()]):
            return []
        late = [each for each in self.waiting(now) if each.rows > 0 and each.age >= _LONG_WAIT]
        new = [each for each in late if not self._waits[each.sink].is_known]
        for each in new:
            self._waits[each.sink].is_known = True
        return new

    @property
    def deadline(self) -> int | None:
        """The time of the next retry; None: no commit failed."""
        return min([p.retry_at for p in self._pending.values() if p.retry_at is not None], default=None)

    @property
    def horizon(self) -> int:
        """The checkpoint up to which every sink has committed."""
        return min(self._committed.values(), default=0)

    @property
    def sinks(self) -> Mapping[str, TwoPhaseSink]:
        return self._sinks

    def _start(self, name: str) -> None:
        pending = self._pending[name]
        pending.retry_at = None
        sink, checkpoint, handles, missing = self._sinks[name], pending.checkpoint, pending.handles, pending.missing
        rows = pending.rows

        def run() -> None:
            try:
                self._probe(Point.COMMIT)
                sink.commit(checkpoint, handles)
                missing.discard(name)
                if missing:
                    self._probe(Point.BETWEEN_COMMITS)
                self._probe(Point.COMMITTED)
            except DirectoryInUse as error:
                error.add_note(f"raised while sink {name!r} committed checkpoint {checkpoint}")
                self._report(Crashed("coordinator", error))
            except Exception as error:
                self._report(SinkFailed(checkpoint, name, error))
            else:
                self._report(SinkCommitted(checkpoint, name, rows))

        self._submit("commit", run)
