"""The messages between a job and a process that asks it for a savepoint: one JSON object a line, of bounded size.

The asking process sends a `SavepointRequest`. The job sends `Accepted`, and when the outcome is known a
`SavepointTaken` or a `SavepointFailed`. Both processes run as the same user, but perhaps another version of the
library, so all messages are validated.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from dataflow.clock import Clock
from dataflow.errors import CheckpointDamaged, DataflowError
from dataflow.untrusted import Count, parsed

__all__ = [
    "Accepted",
    "Answer",
    "BadMessage",
    "Connection",
    "SavepointFailed",
    "SavepointRequest",
    "SavepointTaken",
]

_MOST_BYTES: Final = 262_144
"""Bytes of a line: a path has up to 4,096 bytes, six times as many in JSON; an error may be long."""


class BadMessage(Exception):
    """The other process sent no message of this protocol, or none in time."""


class SavepointRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request for a savepoint.

    Attributes:
        device, inode: the checkpoint directory, whose LOCK named the socket. A copy of it has a LOCK of the same words.
        path: where to write the savepoint, an absolute path.
        stop: also stop the job.
        drain: before that, end the sources, and let windows and timers fire.
        timeout: microseconds; None: no limit.
    """

    device: int
    inode: int
    path: str
    stop: bool = False
    drain: bool = False
    timeout: Annotated[int, msgspec.Meta(ge=0, lt=2**62)] | None = None


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """The job has taken the request."""


class SavepointTaken(msgspec.Struct, frozen=True, tag="taken"):
    """The savepoint is complete.

    Attributes:
        checkpoint: its number.
        job: the id of the job.
        pipeline: the name of the pipeline.
        path: its folder.
        bytes: the size of its objects.
        mode: the mode in which it was taken.
        guarantee: its guarantee from source to sink.
        stopped: whether the job has stopped with it.
    """

    checkpoint: int
    job: str
    pipeline: str
    path: str
    bytes: Count
    mode: str
    guarantee: str
    stopped: bool

    def to_json(self) -> dict[str, Any]:
        """Return all attributes by name."""
        return msgspec.structs.asdict(self)


class SavepointFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The request was refused, or there is no savepoint.

    Attributes:
        message: why.
        notes: the notes of the error.
    """

    message: str
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(error: BaseException) -> SavepointFailed:
        """Return the answer for an error."""
        message = str(error) if isinstance(error, DataflowError | TimeoutError) else f"{type(error).__name__}: {error}"
        return SavepointFailed(message, tuple(getattr(error, "__notes__", ())))


Answer = Accepted | SavepointTaken | SavepointFailed


class Connection:
    """Sends and receives messages. Every wait has a deadline, except for an answer that may take as long as it takes.

    >>> from dataflow.clock import SystemClock
    >>> ours, theirs = [Connection(end, SystemClock()) for end in socket.socketpair()]
    >>> ours.send(Accepted(), within=1_000_000)
    >>> theirs.receive(Answer, within=1_000_000)
    Accepted()
    """

    def __init__(self, connected: socket.socket, clock: Clock) -> None:
        self._socket = connected
        self._clock = clock
        self._received = b""

    def send(self, message: msgspec.Struct, *, within: int) -> None:
        """Send a message. Raises: OSError, also if it takes longer than ``within`` microseconds."""
        # json and not msgspec, because a path may have bytes that are no UTF-8 (surrogates in a str)
        line = json.dumps(msgspec.to_builtins(message)).encode() + b"\n"
        self._socket.settimeout(within / 1e6)
        self._socket.sendall(line)

    def receive(self, type_: Any, *, within: int | None, tick: Callable[[], None] = lambda: None) -> Any:
        """Return the next message.

        Args:
            type_: the type of the message, or a union of types.
            within: microseconds; None: no limit.
            tick: called about twice a second while there is none.

        Raises: BadMessage if something else came, or nothing in time; EOFError if the other process closed; OSError.
        """
        until = None if within is None else self._clock.now() + within
        while b"\n" not in self._received:
            if len(self._received) > _MOST_BYTES:
                raise BadMessage(f"expected a line of at most {_MOST_BYTES:,} bytes, found more")
            left = _SLICE if until is None else min(_SLICE, (until - self._clock.now()) / 1e6)
            if left <= 0:
                raise BadMessage("nothing came in time")
            self._socket.settimeout(left)
            try:
                more = self._socket.recv(65_536)
            except TimeoutError:
                tick()
                continue
            if not more:
                raise EOFError
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        try:
            return parsed(type_, json.loads(line), "the message")
        except (ValueError, RecursionError, CheckpointDamaged) as error:
            raise BadMessage(f"{error}, in {line[:80]!r}") from error

    def wait_for_end(self, *, within: int) -> bool:
        """Wait until the other process has closed, and return whether it did within the microseconds given."""
        until = self._clock.now() + within
        while (left := (until - self._clock.now()) / 1e6) > 0:
            self._socket.settimeout(left)
            try:
                if not self._socket.recv(65_536):
                    return True
            except TimeoutError:
                return False
            except OSError:
                return True  # its process was killed
        return False

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


_SLICE: Final = 0.5
"""Seconds between two ticks."""
