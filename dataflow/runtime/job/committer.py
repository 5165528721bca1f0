"""Commit the transactions of two-phase sinks when their checkpoint is durable, and retry failed commits.

A job whose sink directory another job has taken over (``DirectoryInUse``) can never commit again, so it fails.

The committer keeps the pending commit of each sink, the failures, and when to retry. Calls of ``commit`` run in the
background, one after the other, oldest checkpoint first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dataflow.contracts.sink import Handle, TwoPhaseSink
from dataflow.errors import DirectoryInUse
from dataflow.runtime.task.crash_points import Point, Probe, no_probe
from dataflow.runtime.task.messages import Crashed

__all__ = ["LAST_ATTEMPTS", "Committer", "SinkCommitted", "SinkFailed"]

LAST_ATTEMPTS = 8
"""Failed commits of the *last* checkpoint before the job fails; earlier ones are retried for as long as it runs."""

_FIRST_RETRY, _LAST_RETRY = 100_000, 5_000_000

log = logging.getLogger("dataflow.job")


@dataclass(frozen=True, slots=True)
class SinkCommitted:
    """All transactions of ``sink`` up to ``checkpoint`` are visible."""

    checkpoint: int
    sink: str


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


@dataclass(slots=True)
class _Commit:
    """The newest checkpoint that a sink must commit. Its handles include all older ones that may be uncommitted.

    ``missing`` is shared by the commits of one checkpoint: the sinks that have not committed it. Once the commits have
    started, only their background queue uses it.
    """

    checkpoint: int
    handles: Sequence[Handle]
    missing: set[str]
    attempts: int = 0
    retry_at: int | None = None


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
        self.failures: dict[str, tuple[int, SinkFailed]] = {}
        """The number of failed commits by sink, and the last failure."""

    def commit(self, checkpoint: int, transactions: Mapping[str, Sequence[Handle]]) -> None:
        """Start to commit every sink's transactions up to ``checkpoint``."""
        missing = set(self._sinks)
        for name in self._sinks:
            self._pending[name] = _Commit(checkpoint, transactions.get(name, ()), missing)
            self._start(name)

    def committed(self, done: SinkCommitted) -> int:
        """Record a commit; return the checkpoint up to which *all* sinks have committed."""
        pending = self._pending.get(done.sink)
        if pending is not None and pending.checkpoint <= done.checkpoint:
            del self._pending[done.sink]
        self._committed[done.sink] = max(self._committed[done.sink], done.checkpoint)
        return self.horizon

    def failed(self, failure: SinkFailed, now: int) -> int:
        """Record a failed commit, to be retried after a pause that doubles; return the number of failed attempts."""
        times, _ = self.failures.get(failure.sink, (0, None))
        self.failures[failure.sink] = times + 1, failure
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
                self._report(SinkCommitted(checkpoint, name))

        self._submit("commit", run)
