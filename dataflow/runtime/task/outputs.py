"""The outputs of a task: one per link, which distributes batches over channels.

Rows need credit, which is checked once before work begins (``has_credit``). Control elements need none, and go to every
channel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from dataflow.planning.graph import Partitioning
from dataflow.protocol.events import Data, Element, EndOfInput
from dataflow.runtime.task.channel import Channel

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BroadcastOutput", "ForwardOutput", "HashOutput", "Output", "RebalanceOutput", "output_for"]


class Output(ABC):
    """The channels of one link that begin at one subtask."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        assert channels, "an output without channels"
        self.channels = tuple(channels)
        self.rows = 0

    def has_credit(self) -> bool:
        """Return whether one more batch may be emitted, to any of the channels."""
        return all([channel.has_credit for channel in self.channels])

    def emit(self, batch: pa.RecordBatch, epoch: int) -> None:
        """Send a non-empty batch."""
        self.rows += batch.num_rows
        self._distribute(batch, epoch)

    def send(self, control: Element) -> None:
        """Send a control element to every channel, in-band (a ``Cancel`` overtakes queued elements)."""
        assert not isinstance(control, Data), "rows are sent with emit()"
        for channel in self.channels:
            channel.put(control)

    def end(self) -> None:
        """Send the end of input to every channel that does not have it yet: restored channel state may hold it."""
        for channel in self.channels:
            if not channel.ended:
                channel.put(EndOfInput())

    @abstractmethod
    def _distribute(self, batch: pa.RecordBatch, epoch: int) -> None: ...


class ForwardOutput(Output):
    """Sends rows on one channel, to the subtask of the same index."""

    def _distribute(self, batch: pa.RecordBatch, epoch: int) -> None:
        self.channels[0].put(Data(batch, epoch))


class BroadcastOutput(Output):
    """Sends every row to every channel; the channels share the memory, because batches are immutable."""

    def _distribute(self, batch: pa.RecordBatch, epoch: int) -> None:
        data = Data(batch, epoch)
        for channel in self.channels:
            channel.put(data)


class RebalanceOutput(Output):
    """Sends whole batches in turn, to the next channel that has credit; at least one must."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        super().__init__(channels)
        self._next = 0

    def has_credit(self) -> bool:
        return any([channel.has_credit for channel in self.channels])

    def _distribute(self, batch: pa.RecordBatch, epoch: int) -> None:
        n = len(self.channels)
        order = [(self._next + i) % n for i in range(n)]
        chosen = next((i for i in order if self.channels[i].has_credit), self._next)
        self.channels[chosen].put(Data(batch, epoch))
        self._next = (chosen + 1) % n


class HashOutput(Output):
    """Sends each row to the subtask that owns the key group of its key."""

    def __init__(self, channels: Sequence[Channel], keys: Sequence[str], max_key_groups: int) -> None:
        super().__init__(channels)
        self.keys = tuple(keys)
        self.max_key_groups = max_key_groups

    def emit_parts(self, parts: Sequence[pa.RecordBatch | None], epoch: int) -> None:
        """Send rows that ``hash_partition`` has already partitioned: a batch or None for each channel."""
        self.rows += sum(part.num_rows for part in parts if part is not None)
        self._put(parts, epoch)

    def _distribute(self, batch: pa.RecordBatch, epoch: int) -> None:
        from dataflow.state.partition import hash_partition

        self._put(hash_partition(batch, self.keys, len(self.channels), self.max_key_groups), epoch)

    def _put(self, parts: Sequence[pa.RecordBatch | None], epoch: int) -> None:
        for channel, part in zip(self.channels, parts, strict=True):
            if part is not None:
                channel.put(Data(part, epoch))


def output_for(
    partitioning: Partitioning, channels: Sequence[Channel], keys: Sequence[str], max_key_groups: int
) -> Output:
    """Return the output for a link with this partitioning."""
    match partitioning:
        case Partitioning.FORWARD:
            return ForwardOutput(channels)
        case Partitioning.BROADCAST:
            return BroadcastOutput(channels)
        case Partitioning.REBALANCE:
            return RebalanceOutput(channels)
        case Partitioning.HASH:
            return HashOutput(channels, keys, max_key_groups)
        case _:
            assert_never(partitioning)
