"""How a job runs: as a stream, whose results follow its rows, or as a batch, whose results come at its end.

>>> Execution.of("batch", "run")
<Execution.BATCH: 'batch'>
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from dataflow.contracts.windows import EventTime
from dataflow.errors import ConfigurationError, did_you_mean

__all__ = ["ORDER", "Execution", "RowOrder", "Spill"]

ORDER: Final = "barrierflow:order"
"""The column that says in which order rows are in their sources. Only plans of a batch have it, and users never see it.

Its numbers rise in each split, from one split to the next, and from one source to the next. Its type is int64.
"""


class Execution(Enum):
    """How a job runs.

    ``STREAMING``: rows are processed as they come; watermarks decide when a window is complete and which rows are late.
    ``BATCH``: the input is bounded and read to its end. No row is late, and there is one checkpoint, at the end.
    """

    STREAMING = "streaming"
    BATCH = "batch"

    @classmethod
    def of(cls, given: object, method: str) -> Execution:
        """Return what a user named in ``method``. Raises: ConfigurationError for anything else.

        >>> Execution.of("bach", "run")
        Traceback (most recent call last):
        dataflow.errors.ConfigurationError: run(execution=) must be 'streaming' or 'batch', got 'bach' (did \
you mean 'batch'?)
        """
        if isinstance(given, Execution):
            return given
        names = [each.value for each in cls]
        if given not in names:
            raise ConfigurationError(
                f"{method}(execution=) must be 'streaming' or 'batch', got {given!r}{did_you_mean(str(given), names)}"
            )
        return cls(given)


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The order of rows in a batch: by event time, then by their place in the source.

    Attributes:
        time: the event time of the rows; None: they have none.
        place: the column with the place in the source, `ORDER`; None: the rows do not come straight from a source.
    """

    time: EventTime | None
    place: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, the first one counts most."""
        time = () if self.time is None else (self.time.column,)
        return time if self.place is None else (*time, self.place)

    def __str__(self) -> str:
        """Return the order for people.

        >>> print(RowOrder(EventTime("at"), ORDER))
        at and their place in the source
        """
        names = ["their place in the source" if name == ORDER else name for name in self.columns]
        return " and ".join(names) or "no column"


@dataclass(frozen=True, slots=True)
class Spill:
    """Where a subtask of a batch puts rows that it sorts.

    Attributes:
        directory: where files are written; None: the system's directory for temporary files.
        memory: bytes that stay in memory before a file is written.
    """

    directory: str | None = None
    memory: int = 128 << 20
