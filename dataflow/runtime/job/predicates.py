"""Evaluate predicates on completed checkpoints, in the background, one at a time, in the order of checkpoints.

A checkpoint is read back from the store, so a predicate sees the state that a restore would see. Nothing in the job
waits for it: tasks and writers of state continue, and sinks commit meanwhile.

Bounds: one state is in memory at a time. A checkpoint that waits for its evaluation is kept in the store, even if newer
ones replace it; if more than ``WAITING`` wait, the oldest is skipped.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dataflow.background import Submit
from dataflow.errors import CheckpointError, PredicateSkippedWarning, UnstablePredicateWarning
from dataflow.runtime.job.checkpoint_history import KEPT
from dataflow.runtime.task.messages import Crashed
from dataflow.runtime.task.notices import Notices

if TYPE_CHECKING:
    from dataflow.runtime.job.checkpoint_state import CheckpointState

__all__ = ["QUEUE", "WAITING", "Answers", "AddPredicate", "PredicatesEvaluated", "Predicate", "Predicates"]

log = logging.getLogger("dataflow.job")

Predicate = Callable[["CheckpointState"], bool]

QUEUE: Final = "predicates"
"""The name of the background queue that calls predicates."""
WAITING: Final = 8
"""Limit for the checkpoints that wait for predicates."""


class Answers(Mapping[int, bool]):
    """The results of a predicate at the last 1,000 checkpoints: a mapping from checkpoints, in their order.

    Attributes:
        name: the name of the predicate.
        earlier: results that are not in the mapping any more, because newer ones took their place.
        held: the number of checkpoints at which it held, earlier ones included.
        skipped: the last checkpoints, at most 1,000, at which it was not evaluated, because it was too slow or they
            could not be read.
        error: the error it raised, if any; it is not evaluated again.

    >>> answers = Answers(lambda state: state > 3, "enough")
    >>> [answers.judge(n, n) for n in (2, 4, 5)], answers.first, dict(answers)
    ([False, True, True], 4, {2: False, 4: True, 5: True})
    """

    def __init__(self, predicate: Predicate, name: str) -> None:
        self.name = name
        self.earlier = 0
        self.held = 0
        self.skipped: deque[int] = deque(maxlen=KEPT)
        self.error: Exception | None = None
        self._predicate = predicate
        self._results: dict[int, bool] = {}
        self._first: int | None = None
        self._lapsed: int | None = None

    def __getitem__(self, checkpoint: int) -> bool:
        return self._results[checkpoint]

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._results))  # a copy, because results may be added meanwhile

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        return f"Answers({self.name}: {dict(self)})"

    @property
    def first(self) -> int | None:
        """The first checkpoint at which the predicate held; None: it has not held yet."""
        return self._first

    @property
    def lapsed(self) -> int | None:
        """The first checkpoint at which it no longer held after it had held (not stable); None: there is none."""
        return self._lapsed

    def judge(self, checkpoint: int, state: CheckpointState) -> bool:
        """Evaluate the predicate. Raises: its errors; TypeError for a result that is neither True nor False."""
        try:
            answer: object = self._predicate(state)
            if not isinstance(answer, bool | np.bool_):
                raise TypeError(
                    f"expected True or False, got {answer!r} ({type(answer).__name__}); convert an Arrow value with "
                    ".as_py()"
                )
        except Exception as error:
            error.add_note(f"raised by the predicate {self.name!r} on the state of checkpoint {checkpoint}")
            self.error = error
            raise
        held = self._results[checkpoint] = bool(answer)
        self.held += held
        if len(self._results) > KEPT:
            del self._results[next(iter(self._results))]
            self.earlier += 1
        if held and self._first is None:
            self._first = checkpoint
        if not held and self._first is not None and self._lapsed is None:
            self._lapsed = checkpoint
        return held


@dataclass(frozen=True, slots=True)
class AddPredicate:
    """Request to add a predicate. ``then``, if given, is called whenever it holds, on the thread that evaluates."""

    answers: Answers
    then: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class PredicatesEvaluated:
    """An evaluation of predicates at ``checkpoint`` is complete."""

    checkpoint: int


class Predicates:
    """The predicates of one job. The job's thread calls all methods but ``_evaluate``; after the job, any thread may.

    ``read`` returns the state at a checkpoint and ``retire`` deletes one. ``report`` gets each complete evaluation, and
    the error of a predicate. ``notices`` gets checkpoints that cannot be read, and predicates with a ``then`` that are
    not stable.
    """

    def __init__(
        self,
        read: Callable[[int], CheckpointState],
        retire: Callable[[int], None],
        submit: Submit,
        report: Callable[[PredicatesEvaluated | Crashed], None],
        notices: Notices | None = None,
    ) -> None:
        self._read = read
        self._retire = retire
        self._submit = submit
        self._report = report
        self._notices = notices or Notices()
        self._added: list[AddPredicate] = []
        self._waiting: deque[tuple[int, tuple[AddPredicate, ...]]] = deque()  # append and popleft are atomic
        self._under_way: Counter[int] = Counter()
        self._replaced: set[int] = set()
        self._thread: int | None = None
        self._at: tuple[str, int] | None = None

    @property
    def evaluating_here(self) -> bool:
        """Whether the calling thread is evaluating a predicate."""
        return self._thread == threading.get_ident()

    @property
    def at_work(self) -> list[str]:
        """A line on the predicate that is being evaluated, if any, for reports on what a job waits for."""
        at = self._at
        return [] if at is None else [f"predicate {at[0]!r} is being evaluated at checkpoint {at[1]}"]

    def add(self, added: AddPredicate, newest: int | None) -> None:
        """Evaluate a predicate at ``newest``, the last checkpoint so far, and at all later ones."""
        self._added.append(added)
        if newest is not None:
            self._enqueue(newest, (added,))

    def evaluate_late(self, added: AddPredicate, newest: int | None) -> None:
        """Evaluate a predicate at the last checkpoint of a job that has ended, on this thread."""
        if newest is not None:
            self._judge(newest, (added,))

    def completed(self, checkpoint: int) -> None:
        """Queue a completed checkpoint for evaluation."""
        if self._added:
            self._enqueue(checkpoint, tuple(self._added))
            self._skip_beyond(WAITING)

    def evaluated(self, checkpoint: int) -> None:
        """Record that one evaluation at ``checkpoint`` is complete; delete the checkpoint if it was replaced."""
        self._under_way[checkpoint] -= 1
        if self._under_way[checkpoint] == 0:
            del self._under_way[checkpoint]
            if checkpoint in self._replaced:
                self._replaced.remove(checkpoint)
                self._retire(checkpoint)

    def retire(self, checkpoint: int) -> None:
        """Delete a checkpoint that newer ones replace, when no evaluation needs it any more."""
        if checkpoint in self._under_way:
            self._replaced.add(checkpoint)
        else:
            self._retire(checkpoint)

    def done(self, up_to: int | None = None) -> bool:
        """Return whether all evaluations are complete, at checkpoints up to ``up_to`` (None: at all)."""
        return not [n for n in self._under_way if up_to is None or n <= up_to]

    def _enqueue(self, checkpoint: int, asked: tuple[AddPredicate, ...]) -> None:
        self._under_way[checkpoint] += 1
        self._waiting.append((checkpoint, asked))
        self._submit(QUEUE, self._evaluate)

    def _skip_beyond(self, most: int) -> None:
        while len(self._waiting) > most:
            try:
                checkpoint, asked = self._waiting.popleft()
            except IndexError:  # the other thread was faster
                return
            self._skip(checkpoint, asked, f"{most} newer ones wait, because the predicates are slow")
            self.evaluated(checkpoint)

    def _evaluate(self) -> None:
        """Evaluate at the oldest checkpoint that waits, unless it was skipped. Runs in the background."""
        try:
            checkpoint, asked = self._waiting.popleft()
        except IndexError:
            return
        self._judge(checkpoint, asked)

    def _judge(self, checkpoint: int, asked: tuple[AddPredicate, ...]) -> None:
        try:
            state = self._read(checkpoint)
        except (CheckpointError, OSError) as error:
            self._skip(checkpoint, asked, str(error))
            for one in asked:
                self._notices.add(
                    PredicateSkippedWarning,
                    f"predicate {one.answers.name!r} was not evaluated at checkpoint {checkpoint}, which cannot be "
                    f"read: {error}",
                )
            self._report(PredicatesEvaluated(checkpoint))
            return
        for one in asked:
            if one.answers.error is None:
                self._ask(one, checkpoint, state)
        self._report(PredicatesEvaluated(checkpoint))

    def _ask(self, one: AddPredicate, checkpoint: int, state: CheckpointState) -> None:
        self._at, self._thread = (one.answers.name, checkpoint), threading.get_ident()
        try:
            held = one.answers.judge(checkpoint, state)
        except Exception as error:
            log.warning("predicate %r raised at checkpoint %d: %r", one.answers.name, checkpoint, error)
            self._report(Crashed(one.answers.name, error))
            return
        finally:
            self._at = self._thread = None
        if held and one.then is not None:
            one.then()
        elif one.then is None and one.answers.lapsed == checkpoint:
            log.warning("predicate %r is not stable: it no longer held at checkpoint %d", one.answers.name, checkpoint)
        elif one.answers.lapsed == checkpoint:
            self._notices.add(
                UnstablePredicateWarning,
                f"predicate {one.answers.name!r} is not stable: it held at checkpoint {one.answers.first}, where it "
                f"stopped the job, but not at checkpoint {checkpoint}",
            )

    def _skip(self, checkpoint: int, asked: tuple[AddPredicate, ...], why: str) -> None:
        for one in asked:
            one.answers.skipped.append(checkpoint)
            log.warning("predicate %r is not evaluated at checkpoint %d: %s", one.answers.name, checkpoint, why)
