"""Background threads for work that must not delay the steps of a job, such as writing checkpoints.

>>> from threading import Event
>>> background, written, done = Background(threads=2), [], Event()
>>> background.submit("parts", lambda: written.append(1))
>>> background.submit("parts", lambda: written.append(2))
>>> background.submit("parts", done.set)
>>> done.wait(60), written
(True, [1, 2])
>>> background.close()
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection

__all__ = ["Background", "Submit"]

Submit = Callable[[str, Callable[[], None]], None]
"""``submit(queue, job)`` runs ``job`` later on another thread; jobs of one queue run one after the other, in order."""


class Background:
    """Runs jobs of named queues on daemon threads, which start when they are first needed.

    A queue defines an order, not a thread: queues share the threads, and at most one thread serves a queue at a time.

    Guarantees: jobs of one queue run in the order of submission. After ``close``, no job is running and none starts.

    Args:
        threads: the maximum number of shared threads.
        apart: queues with a thread of their own, which never wait for other queues. Commits, which make rows visible,
            must not wait for large parts of checkpoints.
    """

    def __init__(self, threads: int = 2, apart: Collection[str] = ()) -> None:
        self._apart = {queue: Background(1) for queue in apart}
        self._threads = threads
        self._workers: list[threading.Thread] = []
        self._ready = threading.Condition()  # guards all below
        self._jobs: dict[str, deque[Callable[[], None]]] = {}
        """The unfinished jobs of each queue, the running one first. Queues without jobs are absent."""
        self._runnable: deque[str] = deque()
        """Queues with jobs of which none is running."""
        self._idle = 0
        self._closed = False
        self._on_error: Callable[[BaseException], None] = lambda error: None

    @property
    def on_error(self) -> Callable[[BaseException], None]:
        """The function called, on the job's thread, with an exception that a job did not handle."""
        return self._on_error

    @on_error.setter
    def on_error(self, function: Callable[[BaseException], None]) -> None:
        self._on_error = function
        for background in self._apart.values():
            background.on_error = function

    def submit(self, queue: str, job: Callable[[], None]) -> None:
        """Run ``job`` after the earlier jobs of ``queue``. After ``close``, the job is dropped.

        Args:
            queue: the name of the queue, new or existing.
            job: the work, which should handle its own exceptions; see ``on_error`` for others.
        """
        if queue in self._apart:
            self._apart[queue].submit(queue, job)
            return
        with self._ready:
            if self._closed:
                return
            jobs = self._jobs.get(queue)
            if jobs is None:
                self._jobs[queue] = deque([job])
                self._runnable.append(queue)
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
                queue = self._runnable.popleft()
                job = self._jobs[queue][0]
            try:
                job()
            except BaseException as error:  # also a SystemExit, because other threads wait for the result
                self.on_error(error)
            del job  # and with it the state it refers to, which may cost its operator memory or copies
            with self._ready:
                jobs = self._jobs[queue]
                jobs.popleft()
                if jobs:
                    self._runnable.append(queue)
                    self._ready.notify()
                else:
                    del self._jobs[queue]

    def close(self) -> None:
        """Wait for running jobs, drop waiting jobs, and end the threads."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()
        for worker in self._workers:
            worker.join()
        self._jobs.clear()  # they refer to states that were to be written
        self._runnable.clear()
        for background in self._apart.values():
            background.close()
