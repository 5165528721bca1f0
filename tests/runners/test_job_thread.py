"""The thread of a job is over when those who wait for it go on."""

from __future__ import annotations

import threading

from dataflow.runners.job_thread import JobThread


class SlowToFree:
    """An object whose thread frees it slowly."""

    def __init__(self, freed: list[bool]) -> None:
        self._freed = freed
        self._delay = threading.Event()

    def __del__(self) -> None:
        self._delay.wait(0.05)
        self._freed.append(True)


class Job:
    def __init__(self, freed: list[bool]) -> None:
        self._held = SlowToFree(freed)

    def run(self) -> None:
        assert self._held is not None


def test_the_objects_of_the_job_are_freed_when_wait_returns() -> None:
    freed: list[bool] = []
    thread = JobThread(Job(freed).run, "freed")  # only the thread refers to the job
    thread.start()
    assert thread.wait()
    assert freed == [True]


def test_the_wait_is_limited_while_the_function_runs() -> None:
    go_on = threading.Event()
    thread = JobThread(lambda: go_on.wait(60) and None, "limited")
    thread.start()
    assert not thread.wait(0.001)
    assert not thread.is_set()
    go_on.set()
    assert thread.wait(60)
    assert thread.is_set()
