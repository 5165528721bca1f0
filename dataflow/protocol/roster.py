"""The tasks of a job, and which have finished: some start a checkpoint, finished ones repeat their last snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Roster"]


class Roster:
    """The tasks of a job, each with its predecessors; a finished task stays finished.

    >>> roster = Roster({"s1": (), "s2": (), "sink": ("s1", "s2"), "log": ("s1",)}, finished=["s1"])
    >>> roster.starters, roster.finished
    (('s2', 'log'), ('s1',))
    """

    __slots__ = ("_finished", "_predecessors")

    def __init__(self, topology: Mapping[str, Sequence[str]], finished: Iterable[str]) -> None:
        assert topology, "a job has at least one task"
        self._predecessors = {task: tuple(predecessors) for task, predecessors in topology.items()}
        for task, predecessors in self._predecessors.items():
            unknown = [name for name in predecessors if name not in topology]
            assert not unknown, f"{task} has unknown predecessors: {unknown}"
        self._finished: set[str] = set()
        for task in finished:
            self.finish(task)

    def __contains__(self, task: str) -> bool:
        return task in self._predecessors

    def __len__(self) -> int:
        return len(self._predecessors)

    @property
    def tasks(self) -> tuple[str, ...]:
        """All tasks, in the planner's order."""
        return tuple(self._predecessors)

    @property
    def finished(self) -> tuple[str, ...]:
        """The tasks that finished, in the planner's order."""
        return tuple(task for task in self._predecessors if task in self._finished)

    @property
    def starters(self) -> tuple[str, ...]:
        """The running tasks with no running predecessor: no barrier will reach them in-band."""
        return tuple(
            task
            for task, predecessors in self._predecessors.items()
            if task not in self._finished and self._finished.issuperset(predecessors)
        )

    @property
    def all_finished(self) -> bool:
        """Whether no task is running."""
        return len(self._finished) == len(self._predecessors)

    def finish(self, task: str) -> None:
        """Record that ``task`` has finished."""
        assert task in self, f"unknown task {task!r} finished; tasks: {list(self._predecessors)}"
        self._finished.add(task)
