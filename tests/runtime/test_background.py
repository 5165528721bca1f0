"""Work off the steps."""

from __future__ import annotations

import threading
import weakref

from dataflow.runtime.background import Background


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
