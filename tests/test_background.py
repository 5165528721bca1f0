"""Work off the steps."""

from __future__ import annotations

import threading
import weakref

from dataflow.background import Background


class State:
    """What a job writes; while it is there, it costs its operator something."""

    def write(self) -> None:
        pass


def test_a_job_that_ran_is_let_go_while_its_thread_waits_for_more() -> None:
    background, gone = Background(), threading.Event()
    state = State()
    weakref.finalize(state, gone.set)
    background.submit("lane", state.write)
    del state
    assert gone.wait(30)
    background.close()


def test_a_lane_apart_does_not_wait_for_the_others() -> None:
    background = Background(threads=1, apart=["commit"])
    stuck, done = threading.Event(), threading.Event()
    background.submit("part", lambda: print(stuck.wait(30)))
    background.submit("commit", done.set)
    assert done.wait(30)
    stuck.set()
    background.close()


def test_what_escapes_from_a_lane_apart_is_told_too() -> None:
    background = Background(apart=["commit"])
    told: list[BaseException] = []
    heard = threading.Event()
    background.on_error = lambda error: (told.append(error), heard.set())[0]

    def leave() -> None:
        raise SystemExit(3)

    background.submit("commit", leave)
    assert heard.wait(30)
    background.close()
    assert isinstance(told[0], SystemExit)
