"""The facts of ``coordinator_cases.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, assert_never

import pytest

from dataflow.errors import ConfigurationError
from dataflow.protocol.actions import AbortReason
from dataflow.protocol.checkpoint_policy import CheckpointPolicy
from dataflow.protocol.coordination import Coordinator
from dataflow.protocol.coordinator_actions import (
    AbortTasks,
    CoordinatorAction,
    Discard,
    Failed,
    FailureReason,
    Inject,
    Notify,
    Persist,
    Release,
    RequestCompleted,
    RequestFailed,
    Retire,
)
from dataflow.protocol.events import BarrierKind
from dataflow.protocol.roster import Roster

CASES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("coordinator_cases.toml").read_text())["case"]


def play(coordinator: Coordinator, event: str, now: int) -> list[CoordinatorAction]:
    """Give one event to the coordinator."""
    match event.split():
        case ["checkpoint" | "savepoint" as kind, *request]:
            return coordinator.trigger(BarrierKind(kind), now, int(request[0]) if request else None)
        case ["tick"]:
            return coordinator.tick(now)
        case ["ack", task, checkpoint]:
            return coordinator.acknowledge(task, int(checkpoint), f"{task}/{checkpoint}", now)
        case ["decline", task, checkpoint, why]:
            return coordinator.decline(task, int(checkpoint), FailureReason(why), now)
        case ["finish", task]:
            return coordinator.finish(task, now)
        case ["persisted", checkpoint]:
            return coordinator.persisted(int(checkpoint), now)
        case ["refused", checkpoint]:
            return coordinator.persist_failed(int(checkpoint), "disk full", now)
        case ["withdraw", request]:
            return coordinator.withdraw(int(request), now)
        case ["drain", request]:
            return coordinator.trigger_last(now, int(request))
        case ["resume"]:
            return coordinator.resume(now)
        case ["stop", "at", request]:
            coordinator.only_on_request(now)
            return coordinator.trigger(BarrierKind.SAVEPOINT, now, int(request))
        case ["stop", request]:
            coordinator.only_on_request(now)
            return coordinator.trigger(BarrierKind.CHECKPOINT, now, int(request))
        case ["committed", checkpoint]:
            return coordinator.committed(int(checkpoint), now)
        case _:
            raise ValueError(f"no such event: {event!r}")


def words(action: CoordinatorAction) -> str:
    """One action as words."""
    match action:
        case Inject(checkpoint, kind, _, running, finished, _):
            tail = f" finished {commas(finished)}" if finished else ""
            return f"inject {checkpoint} {kind.value} {commas(running)}{tail}"
        case AbortTasks(checkpoint, reason):
            return f"abort {checkpoint} {reason.value}"
        case Persist(checkpoint, _, parts):
            return f"persist {checkpoint} {commas(parts.values())}"
        case Notify(checkpoint):
            return f"notify {checkpoint}"
        case Discard(checkpoint, parts):
            return f"discard {checkpoint} {commas(parts)}"
        case Retire(checkpoint):
            return f"retire {checkpoint}"
        case RequestCompleted(requests, checkpoint):
            return f"answer {commas(requests)} with {checkpoint}"
        case RequestFailed(requests, reason):
            return f"refuse {commas(requests)} {reason.value}"
        case Failed(reason):
            return f"fail {reason.value}"
        case Release():
            return "release"
        case _:
            assert_never(action)


def commas(items: Iterable[object]) -> str:
    return ",".join(map(str, items)) or "-"


def chain(tasks: list[str]) -> dict[str, list[str]]:
    return {task: tasks[index - 1 : index] if index else [] for index, task in enumerate(tasks)}


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_the_coordinator_decides_as_the_case_says(case: dict[str, Any]) -> None:
    coordinator = Coordinator(
        case.get("topology", chain(case.get("tasks", ["s", "m", "k"]))),
        CheckpointPolicy(**case.get("policy", {})),
        next_id=case.get("next_id", 1),
        now=0,
        completed=case.get("completed", ()),
        finished=case.get("finished", ()),
    )
    now = 0
    for step in case["steps"]:
        event, expected = (side.strip() for side in step.split("=>"))
        if event.startswith("@"):
            time, event = event[1:].split(maxsplit=1)
            now = int(time)
        actions = play(coordinator, event, now)
        coordinator.validate()
        assert "; ".join(map(words, actions)) == expected, step
    if "kept" in case:
        assert list(coordinator.completed) == case["kept"]


def test_a_checkpoint_builds_on_the_newest_durable_one_which_is_kept_meanwhile() -> None:
    policy = CheckpointPolicy(max_concurrent=3, keep=1)
    coordinator = Coordinator(chain(["s"]), policy, next_id=8, now=0, completed=[7])
    since = {}
    for event in ["checkpoint", "checkpoint", "savepoint", "ack s 8", "persisted 8", "checkpoint"]:
        actions = play(coordinator, event, now=0)
        since.update({action.checkpoint: action.since for action in actions if isinstance(action, Inject)})
        assert Retire(7) not in actions  # 9 still builds on it
    assert since == {8: 7, 9: 7, 10: 0, 11: 8}
    assert Retire(7) in play(coordinator, "decline s 9 io", now=0)
    assert Retire(8) not in play(coordinator, "decline s 11 io", now=0)  # the newest


def deadlines(coordinator: Coordinator, *events: tuple[int, str]) -> list[int | None]:
    """The deadline at first, and after each event."""
    found = [coordinator.deadline]
    for now, event in events:
        play(coordinator, event, now)
        found.append(coordinator.deadline)
    return found


def test_the_deadline_is_the_next_thing_that_time_decides() -> None:
    coordinator = Coordinator(chain(["s"]), CheckpointPolicy(interval=100, timeout=30), next_id=1, now=0)
    events = [(100, "tick"), (110, "ack s 1"), (120, "persisted 1"), (150, "finish s"), (180, "tick")]
    assert deadlines(coordinator, *events) == [100, 130, None, 200, 180, 210]


def test_the_deadline_is_the_first_of_the_next_trigger_and_all_timeouts() -> None:
    policy = CheckpointPolicy(interval=100, timeout=150, max_concurrent=3)
    events = [(100, "tick"), (120, "checkpoint"), (220, "tick"), (250, "tick")]
    assert deadlines(Coordinator(chain(["s", "k"]), policy, next_id=1, now=0), *events) == [100, 200, 220, 250, None]


def test_without_an_interval_the_deadline_is_that_of_what_is_under_way() -> None:
    policy = CheckpointPolicy(timeout=30, max_concurrent=2)
    assert deadlines(Coordinator(chain(["s"]), policy, next_id=1, now=0), (5, "checkpoint")) == [None, 35]


def test_nothing_is_left_for_time_to_decide_behind_the_last_checkpoint() -> None:
    coordinator = Coordinator(chain(["s"]), CheckpointPolicy(interval=100), next_id=1, now=0, finished=["s"])
    events = [(0, "tick"), (1, "ack s 1"), (2, "persisted 1"), (3, "committed 1")]
    assert deadlines(coordinator, *events)[2:] == [None, None, None]


def test_nothing_is_left_for_time_to_decide_where_the_job_failed() -> None:
    coordinator = Coordinator(chain(["s"]), CheckpointPolicy(interval=100), next_id=1, now=0)
    assert deadlines(coordinator, (10, "checkpoint"), (20, "decline s 1 io")) == [100, 600_000_010, None]


def test_nothing_is_left_for_time_to_decide_where_the_last_checkpoint_failed() -> None:
    policy = CheckpointPolicy(final_attempts=1)
    coordinator = Coordinator(chain(["s"]), policy, next_id=1, now=0, finished=["s"])
    assert deadlines(coordinator, (0, "tick"), (1, "decline s 1 io"))[-1] is None


def test_a_finished_job_restored_wants_its_tick_at_once() -> None:
    coordinator = Coordinator(chain(["s"]), CheckpointPolicy(), next_id=1, now=50, finished=["s"])
    assert coordinator.deadline == 0


def test_an_injection_carries_the_requests_it_serves() -> None:
    coordinator = Coordinator(chain(["s"]), CheckpointPolicy(), next_id=1, now=0)
    injections = [play(coordinator, event, 0) for event in ["checkpoint 7", "ack s 1", "checkpoint 8", "checkpoint 9"]]
    injections.append(play(coordinator, "persisted 1", 5))
    served = [action.requests for actions in injections for action in actions if isinstance(action, Inject)]
    assert served == [(7,), (8, 9)]


def test_each_reason_of_a_handler_has_its_word_at_the_coordinator() -> None:
    assert [FailureReason.of(reason).at_tasks for reason in AbortReason] == list(AbortReason)
    assert FailureReason.IO.at_tasks is AbortReason.CANCEL


@pytest.mark.parametrize("setting", ["interval", "timeout", "max_concurrent", "keep", "final_attempts"])
def test_a_policy_refuses_values_below_one(setting: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{setting} must be at least 1, got 0"):
        CheckpointPolicy(**{setting: 0})
    assert getattr(CheckpointPolicy(**{setting: 1}), setting) == 1


@pytest.mark.parametrize("setting", ["min_pause", "tolerable_failures", "final_pause"])
def test_a_policy_refuses_values_below_zero(setting: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{setting} must be at least 0, got -1"):
        CheckpointPolicy(**{setting: -1})
    assert getattr(CheckpointPolicy(**{setting: 0}), setting) == 0


def test_a_policy_names_the_first_setting_that_is_out_of_range() -> None:
    with pytest.raises(ConfigurationError, match="interval must be"):
        CheckpointPolicy(interval=0, keep=0)


def test_a_policy_of_defaults_triggers_nothing_tolerates_no_failure_and_keeps_one() -> None:
    assert CheckpointPolicy() == CheckpointPolicy(
        interval=None,
        min_pause=0,
        timeout=600_000_000,
        max_concurrent=1,
        tolerable_failures=0,
        keep=1,
        final_attempts=3,
        final_pause=0,
    )


def test_the_checkpoints_of_the_store_may_be_named_in_any_order() -> None:
    coordinator = Coordinator(chain(["s"]), CheckpointPolicy(keep=3), next_id=4, now=0, completed=[3, 1, 2])
    assert coordinator.completed == (1, 2, 3)


def test_what_is_under_way_is_neither_durable_nor_given_up() -> None:
    coordinator = Coordinator(chain(["s", "k"]), CheckpointPolicy(max_concurrent=2), next_id=1, now=0)
    for event in ["checkpoint", "checkpoint", "decline s 1 cancel"]:
        play(coordinator, event, 0)
    assert coordinator.under_way == (2,)


@pytest.mark.parametrize("answer", ["persisted 1", "refused 1"])
def test_the_store_answers_only_for_what_it_was_given(answer: str) -> None:
    coordinator = Coordinator(chain(["s", "k"]), CheckpointPolicy(), next_id=1, now=0)
    play(coordinator, "checkpoint", 0)
    with pytest.raises(AssertionError, match=r"the store reported on 1, but only \[\] acknowledged"):
        play(coordinator, answer, 0)


def test_the_parts_of_a_checkpoint_given_up_are_named_for_good() -> None:
    coordinator = Coordinator(chain(["s", "k"]), CheckpointPolicy(), next_id=1, now=0)
    for event in ["checkpoint", "ack s 1"]:
        play(coordinator, event, 0)
    given_up = coordinator.decline("k", 1, FailureReason.CANCEL, 0)
    assert given_up == [AbortTasks(1, FailureReason.CANCEL), Discard(1, ("s/1",))]


def test_a_roster_keeps_its_own_tasks() -> None:
    topology: dict[str, list[str]] = {"s": [], "k": ["s"]}
    roster = Roster(topology, [])
    topology["k"].clear()
    topology["late"] = []
    assert (roster.tasks, roster.starters) == (("s", "k"), ("s",))


def test_tasks_that_had_finished_start_nothing() -> None:
    roster = Roster(TWO_SOURCES, ["t", "s"])
    assert (roster.finished, roster.starters, roster.all_finished) == (("s", "t"), ("k",), False)


def test_a_predecessor_must_be_a_task() -> None:
    with pytest.raises(AssertionError, match=r"k has unknown predecessors: \['x'\]"):
        Roster({"s": [], "k": ["s", "x"]}, [])


TWO_SOURCES = {"s": [], "t": [], "k": ["s", "t"]}


def test_nothing_is_triggered_while_a_savepoint_collects_where_it_blocks_others() -> None:
    policy = CheckpointPolicy(interval=100, timeout=500, max_concurrent=3, savepoint_blocks_others=True)
    coordinator = Coordinator(chain(["s"]), policy, next_id=1, now=0)
    events = [(50, "savepoint"), (100, "tick"), (120, "savepoint"), (130, "ack s 1"), (131, "tick")]
    actions = [[words(action) for action in play(coordinator, event, now)] for now, event in events]
    assert actions == [["inject 1 savepoint s"], [], [], ["persist 1 s/1"], ["inject 2 savepoint s"]]


def test_a_trigger_that_a_savepoint_blocks_is_nothing_to_wait_for() -> None:
    policy = CheckpointPolicy(interval=100, timeout=500, max_concurrent=3, savepoint_blocks_others=True)
    coordinator = Coordinator(chain(["s"]), policy, next_id=1, now=0)
    assert deadlines(coordinator, (50, "savepoint"), (130, "ack s 1")) == [100, None, 150]
