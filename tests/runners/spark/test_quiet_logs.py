"""Standard error while a session starts: what others write there comes through, and all is put back. Without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from dataflow.runners.spark.quiet_logs import suppress_noise

NOISY = "import sys; sys.stderr.write('Setting default log level to WARN\\n' + 'mine\\n' * 1_000)"


def place() -> tuple[int, int]:
    """What descriptor 2 is."""
    found = os.fstat(2)
    return found.st_dev, found.st_ino


def test_what_a_process_says_that_was_started_inside_comes_through_without_the_noise() -> None:
    found, reading, writing = os.dup(2), *os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    try:
        with suppress_noise():
            started = subprocess.Popen([sys.executable, "-c", NOISY])
    finally:
        os.dup2(found, 2)
        os.close(found)
    assert started.wait(60) == 0
    with open(reading) as told:
        assert told.readlines() == ["mine\n"] * 1_000


def test_of_two_that_start_sessions_at_a_time_none_leaves_its_pipe_in_the_place_of_standard_error() -> None:
    before, inside, on, last = place(), threading.Event(), threading.Event(), threading.Event()

    def hush(came: threading.Event, until: threading.Event) -> None:
        with suppress_noise():
            came.set()
            until.wait(60)

    first = threading.Thread(target=hush, args=(inside, on))
    second = threading.Thread(target=hush, args=(threading.Event(), last))
    first.start()
    assert inside.wait(60)
    second.start()
    on.set()
    first.join()
    last.set()
    second.join()
    assert place() == before


def test_a_process_without_a_standard_error_of_pythons_can_start_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    before = place()
    monkeypatch.setattr(sys, "stderr", None)
    with suppress_noise():
        assert place() != before
    assert place() == before
