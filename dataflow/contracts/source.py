"""The contract of sources: splits that are read from an offset on, each by one subtask.

The engine calls, in one thread per split: ``poll`` any number of times, ``offset`` at every barrier, ``close`` once.
Rows behind an offset must come again, the same ones, from a reader that is opened there.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Protocol

from dataflow.clock import Clock
from dataflow.contracts.row_errors import RowTally
from dataflow.errors import BarrierflowWarning

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "END",
    "EndOfSplit",
    "InputIdentity",
    "Json",
    "LiveSplits",
    "Source",
    "SourceContext",
    "Split",
    "SplitReader",
]

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]

InputIdentity = Literal["mtime", "content"]
"""How a source recognises its input: by size, content and time of modification, or by size and content alone."""


log = logging.getLogger("dataflow.contracts.source")


def _log_notice(category: type[BarrierflowWarning], text: str) -> None:
    """Log ``text``: for readers outside of a job, where no run can warn of it."""
    log.warning("%s: %s", category.__name__, text)


class EndOfSplit(Enum):
    """The type of ``END``."""

    END = "end"


END: Final = EndOfSplit.END
"""What a ``SplitReader`` answers once it has nothing more, ever."""


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a source that is read by one subtask. ``info`` says what it is (file, size, hash), as JSON.

    A checkpoint keeps splits with their offsets; on restore the source is asked to ``check`` each one.
    """

    id: str
    info: Mapping[str, Json] = field(default_factory=dict)


class SplitReader(ABC):
    """Reads one split from an offset on."""

    @abstractmethod
    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        """The next at most ``max_rows`` rows; None: nothing now; ``END``: nothing ever."""

    @property
    @abstractmethod
    def offset(self) -> Json:
        """The position behind the last polled batch, which ``Source.reader`` accepts; in rows where it can be."""

    @property
    def mid_batch(self) -> bool:
        """Whether the rows polled last belong to a batch whose rest is still to come, because ``max_rows`` cut it.

        Event time moves behind whole batches, so which rows are late does not depend on how they were cut.
        """
        return False

    def rejected(self) -> pa.RecordBatch | None:
        """Rows that the last ``poll`` set aside, for side output ``errors``; asked for after every poll.

        A poll that only rejected rows must answer an empty batch, not None: their place counts as read.
        """
        return None

    def close(self) -> None:
        """Release resources. An error raised here becomes a ``CleanupFailedWarning``, and the job continues."""


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The surroundings of a split reader. ``tally`` counts the rows that it rejects.

    ``repeated`` is for a reader that has to repeat the rows of an earlier one in the same order (on Spark, in a
    micro-batch that is tried again): it has, by split, the offset at which the earlier reader ended. A source that
    reads whatever it finds, such as the files of a directory, leaves out all that is not before that offset.

    ``notify`` takes a category and a text, of which the thread that waits for the run warns when the run is over. A
    reader must not warn itself: it works on another thread, where a warning that a filter turns into an error would
    fail the job.
    """

    name: str
    subtask: int
    parallelism: int
    clock: Clock
    tally: RowTally = field(default_factory=RowTally)
    repeated: Mapping[str, Json] = field(default_factory=dict)
    notify: Callable[[type[BarrierflowWarning], str], None] = _log_notice


class Source(ABC):
    """Where rows come from: a description, picklable where it can be, that opens readers; it holds no position itself.

    ``bounded``: the input ends. ``replayable``: a reader opened at an offset gives the same rows again; a source that
    is not is refused together with checkpoints unless it ``accepts_loss``: the user settled for at-most-once.
    ``blocking``: a poll may wait for something outside, so its tasks get threads of their own.
    """

    bounded: bool = True
    replayable: bool = True
    accepts_loss: bool = False
    blocking: bool = False

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of every batch."""

    @property
    def sides(self) -> Mapping[str, pa.Schema]:
        """The side outputs there are, with their schemas: ``errors`` where rows can be set aside."""
        return {}

    @property
    def kernels(self) -> Sequence[str]:
        """The modules with compiled code that readers of this source call: see ``Operator.kernels``.

        A source that wraps another one passes them on.
        """
        return ()

    @abstractmethod
    def splits(self) -> Sequence[Split]:
        """The splits of a fresh start, in a stable order."""

    def check(self, split: Split) -> None:
        """Raise ``InputChanged`` unless ``split`` (from a checkpoint) is still what it was."""

    @abstractmethod
    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        """A reader of ``split`` from ``offset`` on (None: from the beginning)."""

    def earliest(self, split: Split, column: str) -> int | None:
        """A time (microseconds) that ``column``, a timestamp, holds nothing before in ``split``; None: not known.

        A split that has not been read yet holds time back to where it begins, or altogether where that is not known.
        """
        return None

    def identified_by(self, identity: InputIdentity) -> Source:
        """Return this source, recognising its input by ``identity``: see ``Checkpointing(input_identity=)``.

        The planner calls it before any other method of a run. The default returns the source itself, for input that has
        no times of modification; a source that wraps another one passes it on.
        """
        return self

    def select(self, columns: Sequence[str]) -> Source:
        """The same source giving at least ``columns``; the planner calls it with those the pipeline uses."""
        return self


class LiveSplits(Protocol):
    """The splits that feed a task, as far as time must know them."""

    @property
    def current(self) -> str:
        """The split that the rows at hand come from."""
        ...

    @property
    def current_batch(self) -> int:
        """The number of the source's batch that the rows at hand belong to; a batch that is cut keeps its number."""
        ...

    def next_batch(self, split: str) -> int:
        """The number of the batch that the split's next rows belong to: that of the last ones, if it was cut."""
        ...

    def all(self) -> Sequence[str]:
        """Every split of this task, those that have ended included."""
        ...

    def live(self) -> Sequence[str]:
        """The splits that have not ended, those not begun included."""
        ...

    def earliest(self, split: str, column: str) -> int | None:
        """A time that the source's ``column`` holds nothing before in ``split``: see ``Source.earliest``."""
        ...

    def quiet(self, split: str) -> int:
        """Microseconds over which ``split`` was asked for rows and gave none, since its last row."""
        ...

    def reached(self, clock: str, time: int | None, drift: int) -> None:
        """By ``clock`` this task is at ``time``: it reads on only while no other one is more than ``drift`` behind.

        Microseconds. None: nobody has to wait for this task.
        """
        ...
