"""The committer alone: what each sink owes, what a failure means, and when it is tried again."""

from __future__ import annotations

from collections.abc import Sequence

from dataflow.contracts.operator import OperatorContext
from dataflow.contracts.sink import Handle, TwoPhaseSink, TwoPhaseWriter
from dataflow.errors import DirectoryInUse, StoreError
from dataflow.runtime.job.committer import Committer, SinkCommitted, SinkFailed, WaitingCommit
from dataflow.runtime.task.crash_points import Point
from dataflow.runtime.task.messages import Crashed


class Target(TwoPhaseSink):
    """Remembers what it committed; while ``closed`` it raises ``refusal``."""

    def __init__(self) -> None:
        self.closed = False
        self.refusal: Exception = StoreError("not now")
        self.seen: list[tuple[int, list[Handle]]] = []

    def writer(self, context: OperatorContext) -> TwoPhaseWriter:
        raise NotImplementedError("nothing is written here")

    def begin(self) -> None: ...

    def commit(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        if self.closed:
            raise self.refusal
        self.seen.append((checkpoint, list(handles)))

    def recover(self, checkpoint: int, handles: Sequence[Handle]) -> None: ...


class Rig:
    """A committer over real sinks, whose background runs when it is told to and whose reports it hears at ``now``."""

    def __init__(self, *names: str) -> None:
        self.sinks = {name: Target() for name in names}
        self.jobs: list[object] = []
        self.reports: list[SinkCommitted | SinkFailed | Crashed] = []
        self.points: list[Point] = []
        self.committer = Committer(
            self.sinks, lambda lane, job: self.jobs.append(job), self.reports.append, self.points.append
        )

    def commit(self, checkpoint: int, **handles: Sequence[Handle]) -> Rig:
        self.committer.commit(checkpoint, handles, {}, now=0)
        return self

    def background(self) -> list[SinkCommitted | SinkFailed | Crashed]:
        """Run what was submitted; answers the reports, which nobody has heard yet."""
        jobs, self.jobs[:] = list(self.jobs), []
        for job in jobs:
            job()  # type: ignore[operator]
        said, self.reports[:] = list(self.reports), []
        return said

    def heard(self, now: int = 0) -> list[int]:
        """The committer's answers to all reports of the background."""
        committer = self.committer
        return [
            committer.committed(one) if isinstance(one, SinkCommitted) else committer.failed(one, now)
            for one in self.background()
        ]


def failed(checkpoint: int) -> SinkFailed:
    return SinkFailed(checkpoint, "a", StoreError("not now"))


def closed(*names: str) -> Rig:
    rig = Rig(*names)
    for sink in rig.sinks.values():
        sink.closed = True
    return rig


def test_a_sink_is_given_the_handles_that_name_it() -> None:
    rig = Rig("a", "b").commit(1, a=[{"file": 1}])
    assert rig.background() == [SinkCommitted(1, "a"), SinkCommitted(1, "b")]
    assert (rig.sinks["a"].seen, rig.sinks["b"].seen) == ([(1, [{"file": 1}])], [(1, [])])


def test_a_retry_commits_the_newest_checkpoint_with_all_its_handles_and_no_older_one() -> None:
    rig = closed("a").commit(1, a=[{"file": 1}])
    rig.heard()
    rig.commit(2, a=[{"file": 1}, {"file": 2}]).heard()
    rig.sinks["a"].closed = False
    assert rig.committer.tick(now=10_000_000)
    assert rig.heard() == [2]
    assert rig.sinks["a"].seen == [(2, [{"file": 1}, {"file": 2}])]


def test_nothing_is_owed_once_the_newest_checkpoint_is_committed() -> None:
    rig = Rig("a").commit(1)
    rig.heard()
    assert rig.committer.failed(failed(1), now=0) == 0
    assert not rig.committer.tick(now=10_000_000)


def test_the_commit_of_an_older_checkpoint_leaves_the_newer_one_owed() -> None:
    rig = Rig("a").commit(1).commit(2)
    assert rig.committer.committed(SinkCommitted(1, "a")) == 1
    assert rig.committer.failed(failed(2), now=0) == 1


def test_the_failure_of_an_older_commit_does_not_count_against_the_newer_one() -> None:
    rig = Rig("a").commit(1).commit(2)
    assert rig.committer.failed(failed(1), now=0) == 0
    assert not rig.committer.tick(now=10_000_000), "the newer commit has not failed and is under way"
    assert rig.committer.failed(failed(2), now=0) == 1


def test_a_newer_commit_starts_with_the_shortest_pause_again() -> None:
    rig = closed("a").commit(1)
    for _ in range(3):
        rig.heard()
        rig.committer.tick(now=10_000_000)
    rig.background()
    assert rig.commit(2).heard() == [1]
    assert rig.committer.tick(now=100_000)


def test_the_pause_before_a_retry_doubles_up_to_five_seconds() -> None:
    rig, pauses = closed("a").commit(1), []
    for attempt in range(1, 9):
        assert rig.heard(now=0) == [attempt]
        candidates = [min(100_000 << n, 5_000_000) for n in range(8)]
        pauses.append(next(pause for pause in candidates if rig.committer.tick(pause)))
        assert not rig.committer.tick(10_000_000), "it is under way, not waiting for a retry"
    assert pauses == [100_000, 200_000, 400_000, 800_000, 1_600_000, 3_200_000, 5_000_000, 5_000_000]


def test_the_longest_pause_is_not_a_microsecond_shorter() -> None:
    rig = closed("a").commit(1)
    for _ in range(8):
        rig.heard(now=0)
        assert not rig.committer.tick(99_999)
        rig.committer.tick(10_000_000)
    rig.heard(now=0)
    assert [rig.committer.tick(4_999_999), rig.committer.tick(5_000_000)] == [False, True]


def test_a_retry_is_not_a_microsecond_early() -> None:
    rig = closed("a").commit(1)
    rig.heard(now=7)
    assert not rig.committer.tick(100_006)
    assert rig.committer.tick(100_007)


def test_everything_that_is_due_is_tried_again_at_once() -> None:
    rig = closed("a", "b").commit(1)
    rig.heard()
    rig.committer.tick(now=100_000)
    assert [report.sink for report in rig.background()] == ["a", "b"]


def test_the_horizon_is_what_every_sink_has_committed() -> None:
    rig = Rig("a", "b")
    rig.sinks["b"].closed = True
    assert rig.commit(1).heard() == [0, 1], "a: horizon 0; b: failed once"
    rig.sinks["b"].closed = False
    assert rig.commit(2).heard() == [0, 2]
    assert rig.committer.horizon == 2


def test_a_commit_heard_late_does_not_take_the_horizon_back() -> None:
    rig = Rig("a").commit(2)
    rig.heard()
    assert rig.committer.committed(SinkCommitted(1, "a")) == 2


def test_without_sinks_nothing_is_owed() -> None:
    rig = Rig().commit(1)
    assert (rig.background(), rig.committer.tick(now=10_000_000)) == ([], False)
    assert rig.committer.horizon == 0


BETWEEN = Point.BETWEEN_COMMITS


def test_between_two_commits_is_behind_the_first_and_before_the_last() -> None:
    rig = Rig("a", "b").commit(1)
    rig.heard()
    assert rig.points == [Point.COMMIT, BETWEEN, Point.COMMITTED, Point.COMMIT, Point.COMMITTED]


def test_a_single_sink_has_nothing_between_its_commits() -> None:
    rig = Rig("a").commit(1).commit(2)
    rig.heard()
    assert BETWEEN not in rig.points


def test_while_one_sink_fails_the_other_ones_commit_is_between() -> None:
    rig = Rig("a", "b")
    rig.sinks["a"].closed = True
    rig.commit(1).heard()
    assert rig.points == [Point.COMMIT, Point.COMMIT, BETWEEN, Point.COMMITTED]


def test_the_retry_that_ends_a_checkpoint_is_not_between() -> None:
    rig = Rig("a", "b")
    rig.sinks["a"].closed = True
    rig.commit(1).heard()
    rig.sinks["a"].closed = False
    assert rig.committer.tick(now=10_000_000)
    assert (rig.heard(), rig.points.count(BETWEEN)) == ([1], 1)


def test_a_new_checkpoint_is_between_again_though_the_sinks_committed_the_last_one() -> None:
    rig = Rig("a", "b").commit(1).commit(2)
    rig.heard()
    assert rig.points.count(BETWEEN) == 2


def test_one_sink_that_fails_k_times_commits_in_the_end_and_the_other_only_once() -> None:
    rig = Rig("a", "b")
    rig.sinks["a"].closed = True
    rig.commit(1, a=[{"file": 1}], b=[{"file": 2}]).heard()
    for _ in range(5):
        rig.committer.tick(now=10_000_000)
        rig.heard()
    rig.sinks["a"].closed = False
    assert rig.committer.tick(now=10_000_000)
    assert rig.heard() == [1]
    assert [sink.seen for sink in rig.sinks.values()] == [[(1, [{"file": 1}])], [(1, [{"file": 2}])]]


def test_a_sink_whose_directory_another_job_took_over_ends_the_job_and_is_not_tried_again() -> None:
    rig = closed("a").commit(3)
    rig.sinks["a"].refusal = DirectoryInUse("taken over")
    assert rig.background() == [Crashed("coordinator", rig.sinks["a"].refusal)]
    assert rig.sinks["a"].refusal.__notes__ == ["raised while sink 'a' committed checkpoint 3"]
    assert not rig.committer.tick(now=10_000_000)


def test_rows_that_wait_are_counted_since_the_oldest_checkpoint_that_has_not_been_committed() -> None:
    rig = closed("a")
    committer = rig.committer
    rig.sinks["a"].refusal = StoreError("no route to host")
    committer.commit(1, {}, {"a": 100}, now=1_000_000)
    assert committer.waiting(3_000_000) == [WaitingCommit("a", 1, 100, 2_000_000)]
    rig.heard(3_000_000)
    committer.commit(2, {}, {"a": 130}, now=5_000_000)
    assert committer.waiting(5_000_000) == [WaitingCommit("a", 2, 130, 4_000_000, "no route to host")]
    rig.sinks["a"].closed = False
    rig.heard()
    assert committer.waiting(6_000_000) == []
    committer.commit(3, {}, {"a": 150}, now=7_000_000)
    assert committer.waiting(7_500_000) == [WaitingCommit("a", 3, 20, 500_000)]


def test_a_commit_that_came_late_leaves_the_rows_of_later_checkpoints_waiting() -> None:
    rig = Rig("a")
    for checkpoint, rows in ((1, 10), (2, 25)):
        rig.committer.commit(checkpoint, {}, {"a": rows}, now=checkpoint)
    rig.committer.committed(SinkCommitted(1, "a", 10))
    assert rig.committer.waiting(9) == [WaitingCommit("a", 2, 15, 7)]


def test_a_wait_of_a_minute_is_overdue_once_whether_commits_fail_or_do_not_return() -> None:
    rig = closed("a", "b")
    minute = 60_000_000
    rig.committer.commit(1, {}, {"a": 3, "b": 4}, now=0)
    assert rig.committer.overdue(minute - 1) == []
    assert [(one.sink, one.rows, one.age) for one in rig.committer.overdue(minute)] == [
        ("a", 3, minute),
        ("b", 4, minute),
    ]
    rig.committer.commit(2, {}, {"a": 5, "b": 6}, now=minute)
    assert rig.committer.overdue(3 * minute) == []
    rig.committer.committed(SinkCommitted(2, "a", 5))
    rig.committer.commit(3, {}, {"a": 9, "b": 9}, now=3 * minute)
    assert [one.sink for one in rig.committer.overdue(4 * minute)] == ["a"]
