"""Commits of two-phase sinks: once a checkpoint is durable its transactions become visible, and failure means retry.

A job that another one has replaced in the sink's directory (``DirectoryInUse``) can never commit again, so it fails.

Bookkeeping around the sinks: what is to be committed, what failed and when to try again. The sinks' ``commit`` runs in
the background, one after the other, oldest checkpoint first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dataflow.errors import DirectoryInUse
from dataflow.operator import Handle, TwoPhaseSink
from dataflow.runtime.messages import Crashed
from dataflow.runtime.points import Point, Probe, no_probe

__all__ = ["Committer", "SinkCommitted", "SinkFailed"]

_FIRST_RETRY, _LAST_RETRY = 100_000, 5_000_000


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
        """A commit failed: it is tried again after a pause that doubles. Answers how often it has failed."""
        owed = self._owed.get(failure.sink)
        if owed is None or owed.checkpoint != failure.checkpoint:
            return 0
        owed.attempts += 1
        owed.retry_at = now + min(_FIRST_RETRY << (owed.attempts - 1), _LAST_RETRY)
        return owed.attempts

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
