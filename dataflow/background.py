"""Work off the steps, on threads that are made when they are first needed. Jobs of a lane run in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection

__all__ = ["Background", "Submit"]

Submit = Callable[[str, Callable[[], None]], None]
"""``submit(lane, job)`` runs ``job`` later, on another thread; jobs of one lane run one after the other, in order."""


class Background:
    """Runs jobs on daemon threads; ``close`` waits for what is running and drops what is not.

    A lane's name stands for an order, not for a thread: lanes share ``threads`` threads, and a lane is served by one
    thread at a time. A lane ``apart`` has a thread of its own and never waits for other lanes: what makes rows visible
    must not queue behind the parts of large state. Guarantees: jobs of one lane run in the order in which they were
    submitted.
    """

    def __init__(self, threads: int = 2, apart: Collection[str] = ()) -> None:
        self._apart = {lane: Background(1) for lane in apart}
        self._threads = threads
        self._workers: list[threading.Thread] = []
        self._ready = threading.Condition()  # guards all below
        self._lanes: dict[str, deque[Callable[[], None]]] = {}
        self._runnable: deque[str] = deque()
        self._idle = 0
        self._closed = False
        self._on_error: Callable[[BaseException], None] = lambda error: None

    @property
    def on_error(self) -> Callable[[BaseException], None]:
        """Told, on the thread where it happened, what escaped from a job: jobs handle ordinary errors themselves."""
        return self._on_error

    @on_error.setter
    def on_error(self, told: Callable[[BaseException], None]) -> None:
        self._on_error = told
        for lane in self._apart.values():
            lane.on_error = told

    def submit(self, lane: str, job: Callable[[], None]) -> None:
        """Run ``job`` behind the earlier jobs of ``lane``. Jobs handle their own errors. Dropped after ``close``."""
        if lane in self._apart:
            self._apart[lane].submit(lane, job)
            return
        with self._ready:
            if self._closed:
                return
            jobs = self._lanes.get(lane)
            if jobs is None:
                self._lanes[lane] = deque([job])
                self._runnable.append(lane)
                if self._idle < len(self._runnable) and len(self._workers) < self._threads:
                    worker = threading.Thread(
                        target=self._work, name=f"dataflow-background-{len(self._workers)}", daemon=True
                    )
                    self._workers.append(worker)
                    worker.start()
                self._ready.notify()
            else:
                jobs.append(job)

    def _work(self) -> None:
        while True:
            with self._ready:
                while not self._runnable and not self._closed:
                    self._idle += 1
                    self._ready.wait()
                    self._idle -= 1
                if self._closed:
                    return
                lane = self._runnable.popleft()
                job = self._lanes[lane][0]
            try:
                job()
            except BaseException as error:  # a SystemExit must not end the lane silently, for somebody waits for it
                self.on_error(error)
            del job  # with the state it held, which may cost its operator something while it is there
            with self._ready:
                jobs = self._lanes[lane]
                jobs.popleft()
                if jobs:
                    self._runnable.append(lane)
                    self._ready.notify()
                else:
                    del self._lanes[lane]

    def close(self) -> None:
        """Wait for running jobs, drop waiting ones, end the threads."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()
        for worker in self._workers:
            worker.join()
        for lane in self._apart.values():
            lane.close()
