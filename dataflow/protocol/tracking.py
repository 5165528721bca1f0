"""Unaligned barriers without channel state: nothing is ever blocked. At least once, and the duplicates are known.

The alignment of Algorithm 1 (Carbone et al. 2015) is skipped: rows after a barrier are taken while other barriers are
missing. They are red messages accepted by a white machine (EWD 864a), and ``RedLog`` keeps them for the report.

1. The first barrier of an id above every id seen opens a checkpoint; several may be open, at most the newest 50.
2. When the barriers of all live channels have arrived, take the snapshot; all lower ids are dropped: passed over.
3. A second barrier of the same channel, or of an id that is neither open nor new, is ignored; if its checkpoint is not
   settled here (see ``settled``), because a higher one came first, it is passed over.
4. A cancel of n aborts n if it is pending, or if n is new; older pending ones are *superseded*, and no longer open,
   unless their barrier is still queued on that channel. Any other cancel changes nothing.
5. A cancelled id stays open, so that its barriers cause no actions, until every live channel reported for it (by a
   barrier or a cancel), a higher id completes, or a higher one is cancelled.
6. An ended channel has reported for every id. The snapshots that its end completes are taken in ascending order.

Duplicates: a row taken from a channel after its highest barrier m is red for every checkpoint up to m. The duplicates
of n are the rows taken after the channel's own barrier n (an end counts as one) and before snapshot n, and those that
were already red upstream.

Invariant: the open ids ascend and are at most the highest id seen; no open one has the reports of all live channels.
Invariant: every checkpoint of which a barrier came is open or settled: taken, aborted, passed over or withdrawn.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from dataflow.protocol.actions import Abort, AbortReason, Action, Complete, Ignore, PassOver, TakeSnapshot
from dataflow.protocol.events import Barrier, Data, Element
from dataflow.protocol.handler import Received
from dataflow.protocol.newest import is_queued
from dataflow.protocol.red_log import RedLog
from dataflow.protocol.settled import Settled

__all__ = ["Tracker"]

LIMIT = 50
NOTHING: frozenset[int] = frozenset()


@dataclass(slots=True)
class _Open:
    """A checkpoint for which some channels reported. ``barrier`` is None after an abort."""

    barrier: Barrier | None
    reported: set[int] = field(default_factory=set)
    ahead: dict[int, int] = field(default_factory=dict)
    """Per channel, the number of batches that are red by a higher barrier but precede this one's barrier."""


class Tracker:
    """The handler of ``unaligned`` checkpoints over the channels 0 .. ``channels`` - 1. See the module's rules.

    With a ``sample``, only about that many duplicated rows are kept for each channel; all are counted.

    >>> tracker = Tracker(2)
    >>> tracker.barrier(0, Barrier(1), now=0)
    []
    >>> tracker.element(0, Data(["x"]))
    Data(rows=['x'], epoch=1)
    >>> tracker.barrier(1, Barrier(1), now=0)[-1].duplicated
    {0: (Data(rows=['x'], epoch=1),)}
    """

    __slots__ = ("_colours", "_latest", "_live", "_open", "_red", "_settled")

    def __init__(self, channels: int, *, sample: int | None = None) -> None:
        assert channels > 0, f"a gate has at least one channel, got {channels}"
        self._live = set(range(channels))
        self._open: dict[int, _Open] = {}
        self._latest = 0
        self._settled = Settled()
        self._colours = [0] * channels
        self._red: RedLog[int] = RedLog(sample)

    @property
    def blocked(self) -> Set[int]:
        """The empty set: no channel is ever blocked."""
        return NOTHING

    @property
    def deadline(self) -> int | None:
        """None: nothing here depends on time."""
        return None

    @property
    def floor(self) -> int:
        """The lowest checkpoint id of which a snapshot may still be taken."""
        return self._red.floor

    def overtakes_from(self, barrier: Barrier) -> int | None:
        """Return None: a barrier never overtakes."""
        return None

    def element(self, channel: int, element: Received) -> Received:
        """Return rows in the colour they have after the channel's barriers; the same object if it has it already."""
        if not isinstance(element, Data):
            return element
        data, colour = element, self._colours[channel]
        if data.epoch < colour:
            data = Data(data.rows, colour)
        self._red.record(channel, data)
        return data

    def barrier(self, channel: int, barrier: Barrier, now: int, overtaken: Sequence[Element] = ()) -> list[Action]:
        """Count the barrier; return the snapshot's actions if this was the last missing one."""
        checkpoint = barrier.checkpoint
        entry = self._open.get(checkpoint)
        actions: list[Action] = []
        if checkpoint > self._latest:
            entry = self._add(checkpoint, None if checkpoint in self._settled else barrier, actions)
        elif entry is None:
            actions += self._pass_over(checkpoint)
        counted = entry is not None and (entry.barrier is None or channel not in entry.reported)
        if entry is not None and channel not in entry.reported:
            self._report(channel, checkpoint, entry)
        self._colours[channel] = max(self._colours[channel], checkpoint)
        return [*actions, *(self._settle() if counted else [Ignore(checkpoint)])]

    def cancel(self, channel: int, checkpoint: int, now: int, overtaken: Sequence[Element] = ()) -> list[Action]:
        """Abort ``checkpoint`` if pending or new; see rule 4 for older pending ones."""
        entry = self._open.get(checkpoint)
        is_news = self._settled.add(checkpoint) and (entry is None or entry.barrier is not None)
        if entry is None and checkpoint <= self._latest:
            return []
        actions: list[Action] = []
        if is_news:
            for older, other in list(self._open.items()):
                if older < checkpoint and not is_queued(older, overtaken):
                    del self._open[older]
                    if other.barrier is not None:
                        self._settled.add(older)
                        actions.append(Abort(older, AbortReason.SUPERSEDED))
            actions.append(Abort(checkpoint, AbortReason.CANCEL))
        entry = entry or self._add(checkpoint, None, actions)
        entry.barrier = None
        entry.reported.add(channel)
        return actions + self._settle()

    def end(self, channel: int, now: int) -> list[Action]:
        """Stop waiting for ``channel``, which ended; snapshots that waited only for it are taken, in order."""
        for checkpoint, entry in self._open.items():
            if channel not in entry.reported:
                self._report(channel, checkpoint, entry)
        self._live.discard(channel)
        return self._settle()

    def abort(self, checkpoint: int, reason: AbortReason, now: int) -> list[Action]:
        """Abort a pending ``checkpoint``; remember one whose barriers have not arrived yet."""
        entry = self._open.get(checkpoint)
        self._settled.add(checkpoint)
        if entry is None or entry.barrier is None:
            return []
        entry.barrier = None
        return [Abort(checkpoint, reason), *self._settle()]

    def tick(self, now: int) -> list[Action]:
        """Return no actions: nothing here depends on time."""
        return []

    def validate(self) -> None:
        """Assert the invariants."""
        assert list(self._open) == sorted(self._open), f"open checkpoints out of order: {list(self._open)}"
        assert len(self._open) <= LIMIT, f"{len(self._open)} checkpoints are open, at most {LIMIT} may be"
        for checkpoint, entry in self._open.items():
            assert checkpoint <= self._latest, f"{checkpoint} is open above the highest id {self._latest}"
            assert not self._live <= entry.reported, f"{checkpoint} is open, but {self._live} all reported"
            assert entry.barrier is None or entry.barrier.checkpoint == checkpoint, f"{entry.barrier} as {checkpoint}"
            assert entry.barrier is None or checkpoint not in self._settled, f"{checkpoint} is open, but settled"
        self._red.validate()

    def _add(self, checkpoint: int, barrier: Barrier | None, actions: list[Action]) -> _Open:
        """Open ``checkpoint``, the highest so far; without a barrier it counts as aborted.

        If too many are open, passes over the lowest, and adds that to ``actions``.
        """
        self._latest = checkpoint
        self._open[checkpoint] = entry = _Open(barrier)
        if len(self._open) > LIMIT:
            lowest = next(iter(self._open))
            del self._open[lowest]
            actions += self._pass_over(lowest)
        return entry

    def _pass_over(self, checkpoint: int) -> list[Action]:
        """Settle a checkpoint that will never be taken here."""
        return [PassOver(checkpoint)] if self._settled.add(checkpoint) else []

    def _report(self, channel: int, checkpoint: int, entry: _Open) -> None:
        """Record the channel's barrier (or end): the rows delivered so far precede it."""
        entry.reported.add(channel)
        if self._colours[channel] > checkpoint:
            entry.ahead[channel] = self._red.red(channel, checkpoint)

    def _settle(self) -> list[Action]:
        """Close, in ascending order, every open checkpoint that all live channels reported for."""
        actions: list[Action] = []
        for checkpoint, entry in list(self._open.items()):
            if not self._live <= entry.reported:
                continue
            if entry.barrier is None:
                del self._open[checkpoint]
            else:
                self._settled.add(checkpoint)
                for other in [other for other in self._open if other <= checkpoint]:
                    del self._open[other]
                    actions += self._pass_over(other)
                actions += [TakeSnapshot(entry.barrier), Complete(checkpoint, duplicated=self._take(checkpoint, entry))]
        # Only a pending or a new id is ever taken, so no later report needs rows of a lower epoch.
        pending = (checkpoint for checkpoint, entry in self._open.items() if entry.barrier is not None)
        self._red.forget(next(pending, self._latest + 1))
        return actions

    def _take(self, checkpoint: int, entry: _Open) -> dict[int, tuple[Data, ...]]:
        red = self._red.take(checkpoint)
        after = {channel: rows[entry.ahead.get(channel, 0) :] for channel, rows in red.items()}
        return {channel: rows for channel, rows in after.items() if rows}
