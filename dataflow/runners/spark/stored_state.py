"""The state of a keyed task in Spark's state store, in pieces: what changes in every micro-batch, and logs.

Spark knows two variables under the number of a keyed task. The value ``state`` is an index: the token of the attempt
that wrote the state, and which pieces belong to it. The map ``pieces`` holds them, each of at most ``PIECE`` bytes,
because a message between a worker and Spark may not exceed 2 GB:

    -1 -2 ...   what a checkpoint stores of a task, without its logs; replaced in each micro-batch
    0 1 2 ...   the objects of its logs, one after another: a base, then deltas. A micro-batch only appends a delta

So a micro-batch writes as much as has changed, and RocksDB uploads as much. A new base begins after the last delta, and
what was before it is removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import msgspec
import pyarrow as pa

from dataflow.errors import CheckpointDamaged
from dataflow.runtime.task.log_chain import LogChain
from dataflow.runtime.task.parts import TaskState
from dataflow.store.manifest import LOG, PartHandle
from dataflow.untrusted import Count

__all__ = ["PIECE", "StoredState"]

PIECE: Final = 16 << 20


class _Index(msgspec.Struct, frozen=True):
    """What the pieces of a state are: ``whole`` of what is no log, and from number ``first`` on those of the logs.

    ``whole_size`` are bytes; ``logs`` has the checkpoint and the pieces and bytes of each object, base first.
    """

    token: str
    checkpoint: Count
    whole: Count
    whole_size: Count
    first: Count
    logs: list[tuple[Count, Count, Count]]

    @property
    def next(self) -> int:
        return self.first + sum(pieces for _, pieces, _ in self.logs)

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)


@dataclass(slots=True)
class StoredState:
    """The state of keyed task ``task`` in ``value``, a ``ValueState`` of Spark's, and ``pieces``, a ``MapState``."""

    value: Any
    pieces: Any
    task: str
    _index: _Index | None = None

    def __post_init__(self) -> None:
        stored = self.value.get()
        if stored is not None:
            try:
                self._index = msgspec.json.decode(bytes(stored[0]), type=_Index)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise CheckpointDamaged(f"the index of the state of {self.task}: {error}") from error

    @property
    def token(self) -> str:
        """Identifies this state among those of all attempts; "": there is none."""
        return "" if self._index is None else self._index.token

    @property
    def checkpoint(self) -> int:
        """The number on which a delta builds; 0: there is none."""
        return 0 if self._index is None else self._index.checkpoint

    @property
    def size(self) -> int:
        """The bytes of the state."""
        index = self._index
        return 0 if index is None else index.whole_size + sum(size for *_, size in index.logs)

    def read(self, *, logs: bool = True) -> TaskState | None:
        """Return the state, if asked with its logs; None: the task has none yet. Raises: CheckpointDamaged."""
        if self._index is None:
            return None
        whole = b"".join(self._read(range(-1, -1 - self._index.whole, -1)))
        return TaskState.decode(whole, self._objects(self._index) if logs else None)

    def _objects(self, index: _Index) -> Iterator[tuple[int, Any]]:
        first = index.first
        for checkpoint, pieces, _ in index.logs:
            yield checkpoint, pa.py_buffer(b"".join(self._read(range(first, first + pieces))))
            first += pieces

    def _read(self, numbers: Iterable[int]) -> Iterator[bytes]:
        for number in numbers:
            piece = self.pieces.getValue((number,))
            if piece is None:
                raise CheckpointDamaged(f"Spark's state of {self.task} lacks piece {number}: restore what was deleted")
            yield bytes(piece[0])

    def log_chain(self, state: TaskState | None) -> LogChain:
        """Return the objects on which the next delta builds, for the ``state`` that was read."""
        chain = LogChain()
        if state is not None and self._index is not None and self._index.logs:
            chain.add(self._index.checkpoint, state.operators, self._handles(self._index))
        return chain

    def _handles(self, index: _Index) -> Sequence[PartHandle]:
        return [PartHandle(self.task, "", size, "", LOG, checkpoint) for checkpoint, _, size in index.logs]

    def write(self, state: TaskState, checkpoint: int, chain: LogChain) -> None:
        """Write the state after a micro-batch: its log as a delta if it builds on what was read, else as a base."""
        before = self._index or _Index("", 0, 0, 0, 0, [])
        log = state.log_pieces(checkpoint)
        if state.log_before:
            first, logs = before.first, list(before.logs)
        else:
            first, logs = before.next, []
        if log is not None:
            logs.append((checkpoint, *self._write(count(before.next), log)))
        whole, whole_size = self._write(count(-1, -1), state.pieces("sample"))
        for number in [*range(-before.whole, -whole), *range(before.first, first)]:
            self.pieces.removeKey((number,))
        self._index = _Index(uuid.uuid4().hex, checkpoint, whole, whole_size, first, logs)
        self.value.update((self._index.encoded(),))
        chain.add(checkpoint, state.operators, self._handles(self._index))

    def _write(self, numbers: Iterator[int], parts: Iterable[memoryview]) -> tuple[int, int]:
        """Write parts as pieces under ``numbers``; return how many pieces and bytes they are."""
        written = size = 0
        for piece in _pieces(parts):
            self.pieces.updateValue((next(numbers),), (piece,))
            written, size = written + 1, size + len(piece)
        return written, size


def _pieces(parts: Iterable[memoryview]) -> Iterator[bytes]:
    """Yield the bytes of ``parts`` in pieces of ``PIECE`` bytes, the last one shorter."""
    waiting = bytearray()
    for part in parts:
        rest = memoryview(part).cast("B")
        while len(waiting) + len(rest) >= PIECE:
            room = PIECE - len(waiting)
            waiting += rest[:room]
            yield bytes(waiting)
            waiting.clear()
            rest = rest[room:]
        waiting += rest
    if waiting:
        yield bytes(waiting)
