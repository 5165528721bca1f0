"""Commits of two-phase sinks: once a checkpoint is durable its transactions become visible, and failure means retry.

A job that another one has replaced in the sink's directory (``DirectoryInUse``) can never commit again, so it fails.

Bookkeeping around the sinks: what is to be committed, what failed and when to try again. The sinks' ``commit`` runs in
the background, one after the other, oldest checkpoint first.
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
    """The commit did not go through; it will be tried again."""

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
    """The newest checkpoint a sink has to commit. Its handles include all older ones that may be uncommitted.

    ``missing`` is shared by the commits of one checkpoint: the sinks that have not committed it. Once these have
    started it belongs to the lane they run in.
    """

    checkpoint: int
    handles: Sequence[Handle]
    missing: set[str]
    attempts: int = 0
    retry_at: int | None = None


class Committer:
    """Keeps, for each two-phase sink, the commit it still owes.

    Invariant: a sink owes at most one commit, that of the newest durable checkpoint, because handles are cumulative.
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
        self._owed: dict[str, _Commit] = {}
        self._committed = dict.fromkeys(sinks, 0)
        self.failures: dict[str, tuple[int, SinkFailed]] = {}
        """The number of failed commits by sink, and the last failure."""

    def commit(self, checkpoint: int, transactions: Mapping[str, Sequence[Handle]]) -> None:
        """Start to commit every sink's transactions up to ``checkpoint``."""
        missing = set(self._sinks)
        for name in self._sinks:
            self._owed[name] = _Commit(checkpoint, transactions.get(name, ()), missing)
            self._start(name)

    def committed(self, done: SinkCommitted) -> int:
        """A commit went through; answers the checkpoint up to which *all* sinks have committed."""
        owed = self._owed.get(done.sink)
        if owed is not None and owed.checkpoint <= done.checkpoint:
            del self._owed[done.sink]
        self._committed[done.sink] = max(self._committed[done.sink], done.checkpoint)
        return self.horizon

    def failed(self, failure: SinkFailed, now: int) -> int:
        """Note a failed commit, to be tried again after a pause that doubles; return how often it has failed."""
        times, _ = self.failures.get(failure.sink, (0, None))
        self.failures[failure.sink] = times + 1, failure
        owed = self._owed.get(failure.sink)
        attempts = 0
        if owed is not None and owed.checkpoint == failure.checkpoint:
            attempts = owed.attempts = owed.attempts + 1
            owed.retry_at = now + min(_FIRST_RETRY << (attempts - 1), _LAST_RETRY)
        log.warning(
            "commit of checkpoint %d by sink %r failed, attempt %d: %s",
            failure.checkpoint, failure.sink, attempts, failure.error,
        )  # fmt: skip
        return attempts

    def tick(self, now: int) -> bool:
        """Try again what is due; False: nothing was."""
        due = [name for name, owed in self._owed.items() if owed.retry_at is not None and owed.retry_at <= now]
        for name in due:
            self._start(name)
        return bool(due)

    @property
    def horizon(self) -> int:
        """The checkpoint up to which every sink has committed."""
        return min(self._committed.values(), default=0)

    @property
    def sinks(self) -> Mapping[str, TwoPhaseSink]:
        return self._sinks

    def _start(self, name: str) -> None:
        owed = self._owed[name]
        owed.retry_at = None
        sink, checkpoint, handles, missing = self._sinks[name], owed.checkpoint, owed.handles, owed.missing

        def run() -> None:
            try:
                self._probe(Point.COMMIT)
                sink.commit(checkpoint, handles)
                missing.discard(name)
                if missing:
                    self._probe(Point.BETWEEN_COMMITS)
                self._probe(Point.COMMITTED)
            except DirectoryInUse as error:
                error.add_note(f"raised when sink {name!r} was to commit checkpoint {checkpoint}")
                self._report(Crashed("coordinator", error))
            except Exception as error:
                self._report(SinkFailed(checkpoint, name, error))
            else:
                self._report(SinkCommitted(checkpoint, name))

        self._submit("commit", run)
