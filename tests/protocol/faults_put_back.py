"""Faults of the engine, put back: a check of liveness or of invariants must find them, or it has lost its power."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dataflow.events.kinds import Arrival, Unblocked
from dataflow.protocol.actions import Action, Complete, PassOver, TakeSnapshot
from dataflow.protocol.coordinator_actions import Inject
from dataflow.protocol.events import Barrier
from dataflow.runtime.job.checkpoint_history import CheckpointHistory
from dataflow.runtime.job.job import Job
from dataflow.runtime.task.input_gate import InputGate
from dataflow.runtime.task.task import Task

__all__ = [
    "align_for_withdrawn_checkpoints",
    "commit_before_the_manifest",
    "keep_aborted_snapshots",
    "keep_durable_attempts",
    "pass_over_in_silence",
    "start_ahead_of_barriers",
]


def pass_over_in_silence(monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    """Let tasks of ``kind`` that went on to a higher checkpoint ignore the barriers of a lower one."""
    act: Callable[..., None] = getattr(kind, "_act")  # noqa: B009

    def in_silence(task: Any, actions: Sequence[Action], *now: int) -> None:
        act(task, [action for action in actions if not isinstance(action, PassOver)], *now)

    monkeypatch.setattr(kind, "_act", in_silence)


def start_ahead_of_barriers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a trigger at the end of input overtake barriers that overtake as well."""

    def start(gate: InputGate, barrier: Barrier, now: int) -> list[Action] | None:
        at = gate.starts_at(barrier)
        if at is None or now < at:
            return None
        return [
            action
            for index in gate._open_channels
            for action in gate._barrier(index, barrier, now, Arrival.STARTED_HERE, gate._channels[index].queued)
        ]

    monkeypatch.setattr(InputGate, "start", start)


def align_for_withdrawn_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let gates wait for the barriers of a checkpoint that was given up before its first barrier came."""
    meter = InputGate._meter

    def forget_what_was_taken(gate: InputGate, actions: list[Action], now: int, cause: Unblocked) -> list[Action]:
        before = dict(gate._first_barrier)
        taken = max((action.barrier.checkpoint for action in actions if isinstance(action, TakeSnapshot)), default=0)
        meter(gate, actions, now, cause)
        gate._first_barrier = {n: since for n, since in before.items() if n > taken}
        return actions

    monkeypatch.setattr(InputGate, "_meter", forget_what_was_taken)


def keep_aborted_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks keep the copied state of checkpoints that were given up before their channel state was complete."""
    act = Task._act

    def and_keep(task: Task, actions: Sequence[Action], now: int) -> None:
        before = dict(task._snapshots)
        act(task, actions, now)
        if not any(isinstance(action, Complete) for action in actions):
            task._snapshots = {**before, **task._snapshots}

    monkeypatch.setattr(Task, "_act", and_keep)


def keep_durable_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs keep the bookkeeping of every checkpoint that is durable."""
    monkeypatch.setattr(CheckpointHistory, "forget", lambda history, checkpoint: None)


def commit_before_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs tell tasks that a checkpoint is committed when it is triggered."""
    inject = Job._inject

    def and_commit(job: Job, action: Inject) -> None:
        inject(job, action)
        job._committed(action.checkpoint, action.triggered_at)

    monkeypatch.setattr(Job, "_inject", and_commit)
