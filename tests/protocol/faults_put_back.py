"""Faults that once were in the engine, put back: a check of liveness must find them, or it has lost its power."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dataflow.protocol.actions import Action, PassOver
from dataflow.protocol.events import Barrier
from dataflow.runtime.task.input_gate import InputGate

__all__ = ["pass_over_in_silence", "start_ahead_of_barriers"]


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
            for action in gate._barrier(index, barrier, now, gate._channels[index].queued)
        ]

    monkeypatch.setattr(InputGate, "start", start)
