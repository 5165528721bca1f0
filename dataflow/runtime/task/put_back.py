"""The rows that a restore put back into a task, which come before everything that arrives later on any channel.

A restore at another parallelism gives rows in flight to new tasks. They belong to no channel any more, because each
channel has another sender: the rows of a key come from several old channels, and later rows of that key may come over
any new one. So the task takes them first. The rules:

1. Rows put back into an operator come before those put back into the operators upstream of it in the same chain, whose
   results it takes next. Rows of a lower generation come first: an earlier restore put them back.
2. Until all are taken, nothing is taken from the input but barriers that overtake, and cancels; no timer is called, and
   only a checkpoint that overtakes may start.
3. A snapshot that is taken meanwhile keeps the rows that are left, as channel state with their operator, port and
   generation. A checkpoint that aligns, as a savepoint does in all modes, waits until none are left.

So a put-back row precedes every barrier and every row of a channel. It has no colour, and no watermark comes with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dataflow.events.plan_shape import task_id
from dataflow.planning.physical_plan import ChannelId
from dataflow.protocol.events import Data
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.parts import ChannelState

__all__ = ["PutBack", "PutBackQueue", "put_back_id"]


def put_back_id(operator: str, subtask: int, port: int, generation: int) -> ChannelId:
    """Return the name, for messages and checkpoints, of the rows put back into input ``port`` of an operator's subtask.

    No task has such a name as its sender, because names of tasks end in a number.

    >>> put_back_id("counts", 1, 0, 2).name, put_back_id("both", 0, 1, 1).name
    ('(put back 2) -> counts[1]', '(put back 1) -> both[0] (input 1)')
    """
    return ChannelId(f"(put back {generation})", task_id(operator, subtask), operator, port or None)


@dataclass(frozen=True, slots=True)
class PutBackQueue:
    """Rows put back into input ``port`` of ``operator``. ``queue`` is a channel without a writer, which holds them."""

    operator: str
    port: int
    generation: int
    queue: Channel


class PutBack:
    """The put-back rows of one task, in the order of ``queues``, which follows rule 1.

    >>> queue = Channel(1, "(put back 1) -> sums[0]")
    >>> queue.preload([Data(["x"]), Data(["y"])])
    >>> left = PutBack([PutBackQueue("sums", 0, 1, queue)])
    >>> left.take()
    ('sums', 0, Data(rows=['x'], epoch=0))
    >>> left.rows, [state.elements for state in left.in_flight("sums[0]")]
    (1, [(Data(rows=['y'], epoch=0),)])
    """

    __slots__ = ("_queues",)

    def __init__(self, queues: Iterable[PutBackQueue] = ()) -> None:
        #: Only the first ones are removed. Between two calls, none is empty.
        self._queues = deque([one for one in queues if len(one.queue)])

    def __bool__(self) -> bool:
        """Return whether any rows are left."""
        return bool(self._queues)

    @property
    def rows(self) -> int:
        """The number of rows that are left."""
        return sum([one.queue.queued_rows for one in self._queues])

    def take(self, max_rows: int | None = None) -> tuple[str, int, Data]:
        """Remove the next batch, cut as ``Channel.take`` does; return its operator, the input port and the batch.

        Only if any rows are left.
        """
        first = self._queues[0]
        element = first.queue.take(max_rows)
        assert isinstance(element, Data), f"{first.queue.name}: {element} was put back, expected rows"
        if not len(first.queue):
            self._queues.popleft()
        return first.operator, first.port, element

    def in_flight(self, task: str) -> Sequence[ChannelState]:
        """Return the rows that are left as channel state of ``task``."""
        return [
            ChannelState(
                one.operator,
                task,
                one.queue.name,
                one.queue.queued,
                one.queue.schema,
                one.queue.encoded,
                one.port,
                one.generation,
            )
            for one in self._queues
        ]
