"""While a job runs, garbage collection leaves out older objects, unless a user has frozen objects."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from dataflow.runners.old_objects import left_out


def is_frozen(one: object) -> bool:
    return not any(each is one for each in gc.get_objects())


def test_objects_that_the_interpreter_has_frozen_are_none_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    count: Callable[[], int] = gc.get_freeze_count
    monkeypatch.setattr(gc, "get_freeze_count", lambda: max(count(), 375))  # as Python 3.12 does
    old: list[int] = []
    with left_out():
        assert is_frozen(old)
    assert not is_frozen(old)


def test_what_a_user_has_frozen_stays_frozen() -> None:
    frozen: list[int] = []
    gc.freeze()
    try:
        with left_out():
            later: list[int] = []
        assert is_frozen(frozen)
        assert not is_frozen(later)
    finally:
        gc.unfreeze()
