"""Policies of restarts, as pure functions of the failures of a run, and which errors may be restarted."""

from __future__ import annotations

from typing import Any

import pytest

from dataflow.contracts.restarts import AttemptFailure, GiveUp, RestartAfter, Restarts, may_restart
from dataflow.errors import (
    CheckpointDamaged,
    CheckpointError,
    CheckpointMismatch,
    ConfigurationError,
    ContractViolation,
    DirectoryInUse,
    GraphError,
    InputChanged,
    JobTimeout,
    OutputExists,
    SchemaMismatch,
    SinkBroken,
    StoreError,
)

SECOND = 1_000_000


def failures(*times: tuple[int, int]) -> list[AttemptFailure]:
    """Failures, given as the seconds at which the attempts began and failed."""
    return [AttemptFailure(n, began * SECOND, at * SECOND) for n, (began, at) in enumerate(times, 1)]


def decisions(policy: Restarts, *times: tuple[int, int]) -> list[float | str]:
    """The delay in seconds after each failure, or "give up"."""
    history, decided = failures(*times), list[float | str]()
    for n in range(1, len(history) + 1):
        remembered = history[max(0, n - policy.remembered) : n]
        decision = policy.decide(remembered, now=remembered[-1].at)
        decided.append(decision.delay / SECOND if isinstance(decision, RestartAfter) else "give up")
    return decided


def test_by_default_a_job_never_restarts() -> None:
    assert decisions(Restarts.none(), (0, 1)) == ["give up"]
    assert not Restarts.none().restarts


def test_fixed_restarts_so_often_and_then_gives_up() -> None:
    assert decisions(Restarts.fixed(2, "3s"), (0, 1), (4, 5), (8, 9)) == [3, 3, "give up"]


def test_exponential_doubles_the_delay_up_to_the_longest_one() -> None:
    policy = Restarts.exponential("1s", "5s", "1min")
    assert decisions(policy, *[(0, 1)] * 5) == [1, 2, 4, 5, 5]
    assert decisions(policy, *[(0, 1)] * 200)[-1] == 5


def test_exponential_begins_again_after_an_attempt_that_ran_long_enough() -> None:
    policy = Restarts.exponential("1s", "1min", "10s")
    assert decisions(policy, (0, 1), (2, 11), (13, 23), (24, 25)) == [1, 2, 1, 2]


def test_failure_rate_gives_up_if_more_failures_come_within_the_time() -> None:
    policy = Restarts.failure_rate(2, "10s", "1s")
    assert decisions(policy, (0, 1), (2, 3), (4, 11), (12, 13)) == [1, 1, 1, 1]
    assert decisions(policy, (0, 1), (2, 3), (4, 10)) == [1, 1, "give up"]


def test_the_reason_to_give_up_names_the_policy() -> None:
    decision = Restarts.failure_rate(1, "1h", "1s").decide(failures((0, 1), (2, 4)), now=4 * SECOND)
    expected = "it failed 2 times within 3.00 s, and restarts=Restarts.failure_rate(1, '1h', '1s') allows 1"
    assert decision == GiveUp(expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Restarts.fixed(0, "1s"), r"fixed\(attempts=\) must be a whole number of at least 1, got 0; .*none\("),
        (lambda: Restarts.fixed(1, 5), r"fixed\(delay=\) must be a timedelta or text"),
        (lambda: Restarts.exponential("0s", "1s", "1s"), r"first=\) must be above zero"),
        (lambda: Restarts.exponential("2s", "1s", "1s"), r"at most most=, got first='2s' and most='1s'"),
        (lambda: Restarts.exponential("1s", "1s", "0s"), r"reset_after=\) must be above zero"),
        (lambda: Restarts.failure_rate(1.5, "1s", "1s"), r"failures=\) must be a whole number"),
        (lambda: Restarts.failure_rate(1, "0s", "1s"), r"per=\) must be above zero"),
        (lambda: Restarts.failure_rate(1, "1s", "-1s"), r"delay=\) cannot be negative"),
    ],
)
def test_values_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_policies_are_values() -> None:
    for make in (
        lambda: Restarts.none(),
        lambda: Restarts.fixed(2, "1min"),
        lambda: Restarts.exponential("1s", "1min", "1h"),
        lambda: Restarts.failure_rate(2, "1h", "1s"),
    ):
        assert make() == make() == eval(repr(make()))
        assert hash(make()) == hash(make())


def test_errors_that_would_come_again_are_never_restarted() -> None:
    never = [
        *(ConfigurationError, GraphError, SchemaMismatch, ContractViolation, CheckpointMismatch, CheckpointDamaged),
        *(InputChanged, OutputExists, DirectoryInUse, JobTimeout, MemoryError, KeyboardInterrupt, SystemExit),
    ]
    assert [kind for kind in never if may_restart(kind("x"))] == []
    others = [CheckpointError, StoreError, SinkBroken, OSError, ValueError, AssertionError, TimeoutError]
    assert [kind for kind in others if not may_restart(kind("x"))] == []
