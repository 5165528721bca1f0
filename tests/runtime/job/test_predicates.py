"""The predicates of a job, their queue stepped by hand: order of calls, waiting checkpoints, and limits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from dataflow.errors import CheckpointDamaged, PredicateSkippedWarning
from dataflow.runtime.job.predicates import QUEUE, WAITING, AddPredicate, Answers, Predicates, PredicatesEvaluated
from dataflow.runtime.task.messages import Crashed
from dataflow.runtime.task.notices import Notices


class Rig:
    """Predicates of a job whose states are the numbers of its checkpoints; checkpoint 13 cannot be read."""

    def __init__(self) -> None:
        self.queue: deque[Callable[[], None]] = deque()
        self.retired: list[int] = []
        self.reports: list[Any] = []
        self.asked: list[int] = []
        self.notices = Notices()
        self.predicates = Predicates(self._read, self.retired.append, self._submit, self.reports.append, self.notices)
        self.answers = self.joins(lambda state: self.asked.append(state) is None)

    def joins(self, predicate: Callable[[Any], bool], newest: int | None = None) -> Answers:
        answers = Answers(predicate, "rig")
        self.predicates.add(AddPredicate(answers, lambda: self.reports.append("held")), newest)
        return answers

    def _read(self, checkpoint: int) -> Any:
        if checkpoint == 13:
            raise CheckpointDamaged("checkpoint 13 is damaged")
        return checkpoint

    def _submit(self, queue: str, job: Callable[[], None]) -> None:
        assert queue == QUEUE
        self.queue.append(job)

    def completed(self, *checkpoints: int) -> None:
        for checkpoint in checkpoints:
            self.predicates.completed(checkpoint)

    def evaluate(self) -> None:
        """All that waits; the job hears of it."""
        while self.queue:
            self.queue.popleft()()
        for report in self.reports:
            if isinstance(report, PredicatesEvaluated):
                self.predicates.evaluated(report.checkpoint)


def test_checkpoints_are_judged_in_their_order_and_each_is_reported() -> None:
    rig = Rig()
    rig.completed(1, 2, 3)
    assert not rig.predicates.done()
    rig.evaluate()
    assert rig.asked == [1, 2, 3]
    assert dict(rig.answers) == {1: True, 2: True, 3: True}
    assert rig.predicates.done()


def test_nothing_is_submitted_for_jobs_without_predicates() -> None:
    queue: list[Any] = []
    idle = Predicates(lambda n: n, queue.append, lambda name, job: queue.append(job), queue.append)  # type: ignore[arg-type, return-value]
    idle.completed(1)
    assert (queue, idle.done()) == ([], True)


def test_a_checkpoint_that_waits_is_deleted_when_it_was_judged_and_not_before() -> None:
    rig = Rig()
    rig.completed(1, 2)
    rig.predicates.retire(1)
    assert rig.retired == []
    rig.evaluate()
    assert rig.retired == [1]
    rig.predicates.retire(2)
    assert rig.retired == [1, 2]


def test_a_checkpoint_that_two_wait_for_is_kept_for_both() -> None:
    rig = Rig()
    rig.completed(1)
    rig.joins(lambda state: True, newest=1)
    rig.predicates.retire(1)
    rig.predicates.evaluated(1)
    assert rig.retired == []
    rig.predicates.evaluated(1)
    assert rig.retired == [1]


def test_of_too_many_that_wait_the_oldest_are_skipped_and_go(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    for checkpoint in range(1, WAITING + 3):
        rig.completed(checkpoint)
        rig.predicates.retire(checkpoint)
    assert list(rig.answers.skipped) == [1, 2]
    assert "'rig' is not evaluated at checkpoint 2: 8 newer ones wait" in caplog.text
    rig.evaluate()
    assert list(rig.answers) == list(range(3, WAITING + 3))
    assert sorted(rig.retired) == list(range(1, WAITING + 3))


def test_a_checkpoint_that_cannot_be_read_is_skipped() -> None:
    rig = Rig()
    rig.completed(12, 13, 14)
    rig.evaluate()
    assert (list(rig.answers), list(rig.answers.skipped)) == ([12, 14], [13])
    (warning,) = rig.notices.warnings()
    assert isinstance(warning, PredicateSkippedWarning)
    assert str(warning).startswith("predicate 'rig' was not evaluated at checkpoint 13, which cannot be read: ")
    assert rig.predicates.done()


def test_waiting_can_be_for_the_checkpoints_up_to_one() -> None:
    rig = Rig()
    rig.completed(4, 5)
    rig.predicates.evaluated(4)
    assert rig.predicates.done(4)
    assert not rig.predicates.done(5)


def test_one_that_raised_is_reported_once_and_not_asked_again() -> None:
    rig = Rig()
    bad = rig.joins(lambda state: 1 // 0 > 0)
    rig.completed(1, 2)
    rig.evaluate()
    (crashed,) = [report for report in rig.reports if isinstance(report, Crashed)]
    assert crashed.error is bad.error
    assert list(rig.answers) == [1, 2]


def test_what_is_to_be_done_where_it_holds_is_done_there_and_by_the_one_that_holds() -> None:
    rig = Rig()
    rig.joins(lambda state: state == 2)
    rig.answers.error = ValueError("out of the way")
    rig.completed(1, 2)
    rig.evaluate()
    assert rig.reports == [PredicatesEvaluated(1), "held", PredicatesEvaluated(2)]


def test_one_that_comes_when_the_job_is_over_is_asked_at_once() -> None:
    rig = Rig()
    late = Answers(lambda state: state == 7, "late")
    rig.predicates.evaluate_late(AddPredicate(late, lambda: None), 7)
    assert dict(late) == {7: True}
    assert rig.predicates.done()


def test_the_results_at_the_last_1000_checkpoints_are_kept() -> None:
    answers = Answers(lambda state: state % 3 == 0, "third")
    for checkpoint in range(1, 2_501):
        answers.judge(checkpoint, checkpoint)  # type: ignore[arg-type]
        answers.skipped.append(checkpoint)
    assert list(answers) == list(range(1_501, 2_501)) == list(answers.skipped)
    assert (answers.earlier, answers.held, answers.first, answers.lapsed) == (1_500, 833, 3, 4)
