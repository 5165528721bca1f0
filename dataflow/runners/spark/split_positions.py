"""How far the splits of a source task were read, in a form whose size does not depend on the splits that have ended.

The splits themselves are in a file of their own, which is written once (``JobDirectory.write_listed``). The state
before each micro-batch refers to them by their numbers there: which have ended, as ranges; the position in those that
were begun; and what ended in the micro-batch before, because the report of a restore counts its rows.

The state before the first micro-batch has the splits as a checkpoint of the local runner has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from dataflow.contracts.source import Json, Split
from dataflow.errors import CheckpointDamaged
from dataflow.runners.spark.job_directory import JobDirectory
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.task_input import SplitState
from dataflow.untrusted import Count, parsed

__all__ = ["SplitPositions", "listed_splits"]

_ENTRY = "read"
"""The name of the positions among the values of a source task's state."""


class _Stored(msgspec.Struct):
    ended: list[tuple[Count, Count]]
    begun: list[tuple[Count, Any, Count]]
    just_ended: list[tuple[Count, Any, Count]]
    rows: Count
    turn: Count


@dataclass(frozen=True, slots=True)
class SplitPositions:
    """The positions in the splits ``listed`` of a source task, by their numbers.

    Attributes:
        listed: all its splits.
        ended: the ranges of splits that have ended, ascending, each with the number after its last.
        begun: offset and rows of splits that were begun and have not ended.
        just_ended: the same of those that ended in the micro-batch before.
        rows: the rows read of all splits.
        turn: the split whose turn it is.
    """

    listed: Sequence[Split]
    ended: Sequence[tuple[int, int]] = ()
    begun: Mapping[int, tuple[Json, int]] = field(default_factory=dict)
    just_ended: Mapping[int, tuple[Json, int]] = field(default_factory=dict)
    rows: int = 0
    turn: int = 0

    @staticmethod
    def of(listed: Sequence[Split], state: TaskState) -> SplitPositions:
        """Return what a state says of the splits. Raises: CheckpointDamaged."""
        what = f"the positions of {state.task}"
        if "splits" in state.inlet:
            return _of_checkpoint(listed, state, what)
        stored: _Stored = parsed(_Stored, state.inlet.get(_ENTRY), what)
        begun = {number: (offset, rows) for number, offset, rows in stored.begun}
        just_ended = {number: (offset, rows) for number, offset, rows in stored.just_ended}
        highest = max([0, *[end for _, end in stored.ended], *[number + 1 for number in [*begun, *just_ended]]])
        if highest > len(listed):
            raise CheckpointDamaged(f"{what} name split number {highest - 1}, but there are {len(listed)}")
        return SplitPositions(listed, stored.ended, begun, just_ended, stored.rows, stored.turn)

    @property
    def live(self) -> list[int]:
        """The numbers of the splits that have not ended."""
        numbers: list[int] = []
        after = 0
        for start, end in [*self.ended, (len(self.listed), len(self.listed))]:
            numbers += range(after, start)
            after = end
        return numbers

    def states(self) -> list[SplitState]:
        """Return the splits that have not ended, in the order of ``live``."""
        return [self._state(number) for number in self.live]

    def all(self) -> list[SplitState]:
        """Return all splits. Of those that ended earlier the rows are what the split says it has."""
        going_on = set(self.live)
        return [self._state(number, done=number not in going_on) for number in range(len(self.listed))]

    def _state(self, number: int, *, done: bool = False) -> SplitState:
        split = self.listed[number]
        known = (self.just_ended if done else self.begun).get(number)
        if known is None:
            rows = split.info.get("rows") if done else 0
            known = None, rows if isinstance(rows, int) else 0
        return SplitState(split, known[0], done, known[1])

    def after(self, states: Sequence[SplitState], turn: int) -> SplitPositions:
        """Return the positions after a micro-batch.

        Args:
            states: what ``states`` returned, as the micro-batch left them.
            turn: the place in ``states`` of the split whose turn it is.
        """
        live = self.live
        begun: dict[int, tuple[Json, int]] = {}
        just_ended: dict[int, tuple[Json, int]] = {}
        for number, state in zip(live, states, strict=True):
            if state.done:
                just_ended[number] = state.offset, state.rows
            elif state.offset is not None or state.rows != 0:
                begun[number] = state.offset, state.rows
        read = sum([rows for _, rows in [*begun.values(), *just_ended.values()]])
        total = self.rows + read - sum([rows for _, rows in self.begun.values()])
        ended = _joined([*self.ended, *[(number, number + 1) for number in just_ended]])
        return SplitPositions(self.listed, ended, begun, just_ended, total, live[turn] if live else 0)

    def place_of(self, turn: int) -> int:
        """Return the place of a split, or of the next one, among those that have not ended."""
        return next((place for place, number in enumerate(self.live) if number >= turn), 0)

    def read_of(self, numbers: Sequence[int]) -> list[SplitState]:
        """Return splits by their numbers: begun, or ended in the micro-batch before."""
        return [self._state(number, done=number in self.just_ended) for number in numbers]

    def stored(self) -> Mapping[str, Json]:
        """Return the values that ``of`` reads again."""
        begun: Json = [[number, offset, rows] for number, (offset, rows) in self.begun.items()]
        just_ended: Json = [[number, offset, rows] for number, (offset, rows) in self.just_ended.items()]
        ended: Json = [list(pair) for pair in self.ended]
        values: Json = {"ended": ended, "begun": begun, "just_ended": just_ended, "rows": self.rows, "turn": self.turn}
        return {_ENTRY: values}


def _of_checkpoint(listed: Sequence[Split], state: TaskState, what: str) -> SplitPositions:
    """Return the positions in a state that has all splits itself."""
    entries: Any = state.inlet["splits"]
    numbers = {split.id: number for number, split in enumerate(listed)}
    if [numbers.get(entry["id"]) for entry in entries] != list(range(len(listed))):
        raise CheckpointDamaged(f"{what} are of {len(entries)} splits, but the job has {len(listed)} others")
    begun = {
        number: (entry["offset"], entry["rows"])
        for number, entry in enumerate(entries)
        if not entry["done"] and (entry["offset"] is not None or entry["rows"])
    }
    ended = _joined([(number, number + 1) for number, entry in enumerate(entries) if entry["done"]])
    return SplitPositions(listed, ended, begun, {}, sum([entry["rows"] for entry in entries]))


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same numbers as few ranges, ascending."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and joined[-1][1] >= start:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


@lru_cache(maxsize=256)
def listed_splits(directory: JobDirectory, task: str, run_id: str) -> Sequence[Split]:
    """Return all splits of a source task. They are read once in each process and run.

    The run only tells jobs apart that were started in the same directory, one after the other.

    Raises: CheckpointDamaged if the file is missing or damaged.
    """
    return [Split(entry["id"], entry["info"]) for entry in directory.read_listed(task)]
