"""Savepoints: requests for checkpoints that are copied to a directory of the user's when all sinks have committed them.

Life of a savepoint::

    reserved (by the caller) -> requested -> checkpoint n is durable: held -> all sinks have committed n: copied -> done
                                    |                           |                                          |
                                    +-- failed, or overdue -----+------------------------------------------+

The job's thread decides, and a background queue copies. While n is held, it is not retired. A savepoint that is to end
early is told to stop: the copy ends before its next step, unless the manifest is being written, after which it is done.

Invariant: the future of a savepoint is completed when nothing more will be written to its directory, and not before.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from dataflow.background import Submit
from dataflow.clock import duration_text
from dataflow.protocol.events import BarrierKind
from dataflow.runtime.job.checkpoint_requests import CheckpointRequest
from dataflow.runtime.task.crash_points import Point, Probe
from dataflow.store.base import CheckpointStore
from dataflow.store.export import Export

__all__ = ["QUEUE", "Copied", "Savepoint", "SavepointRequest", "Savepoints", "WithdrawSavepoint"]

QUEUE = "savepoints"
"""The background queue that copies checkpoints."""


class Savepoint:
    """One requested savepoint. ``future`` gets the id of the checkpoint, when it is copied to the directory ``export``.

    ``timeout`` is in microseconds from ``now``; None: no limit.
    """

    def __init__(self, export: Export, now: int, timeout: int | None = None) -> None:
        self.export = export
        self.timeout = timeout
        self.future: Future[int] = Future()
        self.request = CheckpointRequest(BarrierKind.SAVEPOINT)
        self.deadline = None if timeout is None else now + timeout
        #: The checkpoint, once it is durable; 0: not yet.
        self.checkpoint = 0
        self._lock = threading.Lock()  # guards the two below: the job stops, the background claims
        self._stopped: BaseException | None = None
        self._claimed = False

    @property
    def path(self) -> str:
        """The directory, as an absolute path."""
        return str(self.export.path)

    def stop(self, error: BaseException) -> None:
        """End the copy with ``error`` before its next step, unless its manifest is being written already."""
        with self._lock:
            if not self._claimed and self._stopped is None:
                self._stopped = error

    def check(self) -> None:
        """Raise the error with which the copy was stopped, if it was."""
        if self._stopped is not None:
            raise self._stopped

    def claim(self) -> None:
        """Begin to write the manifest, after which ``stop`` does nothing. Raises: the error of an earlier ``stop``."""
        with self._lock:
            self.check()
            self._claimed = True


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """Request a savepoint whose directory is reserved."""

    savepoint: Savepoint


@dataclass(frozen=True, slots=True)
class WithdrawSavepoint:
    """Request to end a savepoint for which no caller waits any more; ``error`` completes it."""

    savepoint: Savepoint
    error: BaseException


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy ended: the savepoint exists, or ``error`` says why not."""

    savepoint: Savepoint
    error: BaseException | None = None


class Savepoints:
    """The savepoints of one job that are not done. The job's thread calls all methods but ``_copy``.

    ``retire`` deletes a checkpoint; ``report`` gets each copy that ended.
    """

    def __init__(
        self,
        store: CheckpointStore,
        retire: Callable[[int], None],
        submit: Submit,
        report: Callable[[Copied], None],
        probe: Probe,
    ) -> None:
        self._store = store
        self._retire = retire
        self._submit = submit
        self._report = report
        self._probe = probe
        #: Has every savepoint that was added and is not done.
        self._open: list[Savepoint] = []
        #: The savepoints of ``_open`` that are being copied, or wait for that.
        self._copying: list[Savepoint] = []
        #: By checkpoint, the number of savepoints that need it. It is durable.
        self._held: Counter[int] = Counter()
        #: The checkpoints of ``_held`` that are to be deleted afterwards.
        self._replaced: set[int] = set()

    @property
    def idle(self) -> bool:
        """Whether all savepoints are done."""
        return not self._open

    @property
    def at_work(self) -> list[str]:
        """A line for each savepoint that is being copied, for reports on what a job waits for."""
        return [f"checkpoint {each.checkpoint} is being copied to {each.path}" for each in list(self._copying)]

    def validate(self) -> None:
        """Assert the invariants."""
        assert all(each in self._open for each in self._copying), "a savepoint is copied that is done"
        needed = Counter(each.checkpoint for each in self._open if each.checkpoint)
        assert self._held == needed, f"{self._held} are held, but {needed} are needed"
        assert self._replaced <= self._held.keys(), f"{self._replaced} wait to be deleted, but not all are held"
        done = [each.path for each in self._open if each.future.done()]
        assert not done, f"{done} are done, but still open"

    # --- from the request to the copy

    def is_open(self, savepoint: Savepoint) -> bool:
        """Return whether a savepoint was added and is not done."""
        return savepoint in self._open

    def add(self, savepoint: Savepoint) -> None:
        """Add a savepoint, whose request is to go to the coordinator."""
        self._open.append(savepoint)
        savepoint.request.future.add_done_callback(partial(self._requested, savepoint))

    def durable(self, request: CheckpointRequest, checkpoint: int) -> None:
        """Hold ``checkpoint``, which serves ``request``, if that is for a savepoint."""
        for savepoint in self._open:
            if savepoint.request is request:
                savepoint.checkpoint = checkpoint
                self._held[checkpoint] += 1

    def _requested(self, savepoint: Savepoint, outcome: Future[int]) -> None:
        """Copy the checkpoint, which all sinks have committed, or fail."""
        if savepoint not in self._open:
            return
        error = outcome.exception()
        if error is not None:
            self._give_up(savepoint, error)
        else:
            self._copying.append(savepoint)
            self._submit(QUEUE, partial(self._copy, savepoint, outcome.result()))

    def _copy(self, savepoint: Savepoint, checkpoint: int) -> None:
        """Copy one checkpoint; runs in the background."""

        def step() -> None:
            self._probe(Point.EXPORT)
            savepoint.check()

        try:
            savepoint.export.copy(self._store, checkpoint, step, savepoint.claim)
        except Exception as error:
            self._report(Copied(savepoint, error))
        else:
            self._report(Copied(savepoint))

    # --- the end

    def copied(self, message: Copied) -> None:
        """Complete a savepoint whose copy ended."""
        if message.savepoint in self._open:
            self._close(message.savepoint)
            if message.error is None:
                message.savepoint.future.set_result(message.savepoint.checkpoint)
            else:
                message.savepoint.future.set_exception(message.error)

    @property
    def deadline(self) -> int | None:
        """The time when the next savepoint is overdue; None: never."""
        times = [each.deadline for each in self._open if each.deadline is not None]
        return min(times, default=None)

    def overdue(self, now: int) -> list[tuple[Savepoint, TimeoutError]]:
        """Return the savepoints whose time is up, once, each with its error; ``end`` is to end them."""
        late = [each for each in self._open if each.deadline is not None and each.deadline <= now]
        for savepoint in late:
            savepoint.deadline = None
        return [(savepoint, _late(savepoint)) for savepoint in late]

    def end(self, savepoint: Savepoint, error: BaseException) -> bool:
        """End a savepoint early; return whether its request has to be withdrawn. One that is copied ends soon."""
        if savepoint not in self._open:
            return False
        if savepoint in self._copying:
            savepoint.stop(error)
            return False
        return True

    def give_up(self, savepoint: Savepoint, error: BaseException) -> None:
        """Complete a savepoint that is not copied, with ``error``."""
        if savepoint in self._open:
            self._give_up(savepoint, error)

    def stop_all(self, error: BaseException) -> None:
        """End all copies before their next step, because the job has ended."""
        for savepoint in self._copying:
            savepoint.stop(error)

    def close(self, error: BaseException) -> None:
        """Complete what is left with ``error``. Call it when the background has ended."""
        for savepoint in list(self._open):
            self._give_up(savepoint, error)

    def release(self) -> None:
        """Unlock the directories, as the kernel does for a dead process."""
        for savepoint in self._open:
            savepoint.export.release()

    def retire(self, checkpoint: int) -> None:
        """Delete a checkpoint that newer ones replace, when no savepoint needs it any more."""
        if checkpoint in self._held:
            self._replaced.add(checkpoint)
        else:
            self._retire(checkpoint)

    def _give_up(self, savepoint: Savepoint, error: BaseException) -> None:
        savepoint.export.abandon()
        self._close(savepoint)
        savepoint.future.set_exception(error)

    def _close(self, savepoint: Savepoint) -> None:
        """Unlock the directory, and let the checkpoint be deleted."""
        self._open.remove(savepoint)
        if savepoint in self._copying:
            self._copying.remove(savepoint)
        savepoint.export.release()
        if savepoint.checkpoint:
            self._held[savepoint.checkpoint] -= 1
            if not self._held[savepoint.checkpoint]:
                del self._held[savepoint.checkpoint]
                if savepoint.checkpoint in self._replaced:
                    self._replaced.remove(savepoint.checkpoint)
                    self._retire(savepoint.checkpoint)


def _late(savepoint: Savepoint) -> TimeoutError:
    assert savepoint.timeout is not None, "only a savepoint with a timeout can be overdue"
    reached = "the checkpoint was not complete"
    if savepoint.checkpoint:
        reached = f"checkpoint {savepoint.checkpoint} was not committed by all sinks and copied"
    return TimeoutError(f"no savepoint in {savepoint.path}: {reached} within {duration_text(savepoint.timeout)}")
