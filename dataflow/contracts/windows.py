"""The contract of windows of event time: what a kind of windows says about itself. Pure arithmetic on microseconds.

A kind is a subclass of `Window`. It says three things:

- **assign**: which windows a row belongs to, as pairs of a start and an end. A row may have several, or none.
- **merge**: whether windows of one key that overlap or touch become one (`Window.merges`). Windows that merge have
  operators of their own: ``op.session`` (``operators.windows.sessions``), and all other kinds, whose results come out
  once (``operators.windows.merging``). The operator of ``WindowAggregate`` takes windows that do not merge.
- **complete**: the greatest end that a watermark completes. If the end is exclusive, no row at it belongs to the
  window, so a window is complete when the watermark W reaches it: W >= end, and ``complete(W)`` is W. If the end is
  inclusive, as for sessions, rows at time W may still come, so W must be above it: W > end, and ``complete(W)`` is
  W - 1.

Everything else follows. A window is *over* when it is complete for the watermark minus the allowed lateness; it then
takes no more rows. A row is late if all of its windows are over, and *partly late* if some are. It is then counted
apart, and folded into the others.

A kind with an operator of its own, as sliding windows have, chooses its spec in ``dataflow.planning.window_plans``.

**Slices.** A kind whose windows overlap by arithmetic is a `Sliced`: its windows are ranges of adjacent slices, whose
edges are all starts and ends of windows. A row is folded once, into its slice, whatever the number of its windows, and
windows are made by merging the records of slices (``operators.windows.slides``). Slices and windows are numbered in
the order of their ends. A tumbling window is one slice. This is an optimisation of ``assign``, which a `Sliced` has as
well: records that cannot be merged are folded into each window of the row.

State and checkpoints hold one record for each key and slice, or for each key and window (start and end) if the kind is
not `Sliced` or the records cannot be merged. Nothing that is derived from them is stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from dataflow.errors import ContractViolation, GraphError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Microseconds = npt.NDArray[np.int64]

__all__ = ["Assigned", "EventTime", "Sliced", "Slices", "Window", "greatest_complete"]

N = TypeVar("N", int, "Microseconds")
"""One number, or an array of numbers."""


@dataclass(frozen=True, slots=True)
class EventTime:
    """The column that holds the time at which a row happened. ``exclusive``: right before it, because it ends a window.

    A row that is the result of a window thus belongs to the later window, of any size, that contains its last moment.
    It is never late there, because it is emitted before the watermark that completed it.

    >>> EventTime("at").back, EventTime("window_end", exclusive=True).back
    (0, 1)
    """

    column: str
    exclusive: bool = False

    @property
    def back(self) -> int:
        """How many units of the column the event lies before its value: 1 or 0."""
        return 1 if self.exclusive else 0


@dataclass(frozen=True, slots=True)
class Assigned:
    """The windows of a batch of rows: window i is from ``starts[i]`` to ``ends[i]``, and has row ``rows[i]``.

    Attributes:
        starts: the first time of each window; int64 microseconds.
        ends: the end of each window, above its start; int64 microseconds.
        rows: the number of the row, in ascending order; None: each row has one window, window i is of row i.

    >>> import numpy as np
    >>> Assigned(np.array([0, 0, 5]), np.array([10, 10, 15]), np.array([0, 1, 1])).rows.tolist()
    [0, 1, 1]
    """

    starts: Microseconds
    ends: Microseconds
    rows: Microseconds | None = None


class Window(ABC):
    """The base class of kinds of windows of event time; a frozen dataclass whose text names it in checkpoints.

    Attributes:
        merges: whether windows of one key that overlap or touch become one. Their results come out once: there is no
            ``emit="changes"``, ``early=``, ``late=`` or ``panes=``.
        overlaps: whether a row may belong to several windows.
        ends_follow: whether windows with the same start have the same end.
        columns: the columns that ``assign`` reads beside the event time.

    A kind of a user needs ``assign`` alone. Here, the windows are months:

    >>> from dataclasses import dataclass
    >>> import numpy as np, pyarrow as pa, dataflow as flow, operators as op
    >>> @dataclass(frozen=True)
    ... class Months(flow.Window):
    ...     overlaps = False
    ...
    ...     def assign(self, times, batch):
    ...         months = times.view("datetime64[us]").astype("datetime64[M]")
    ...         starts, ends = months, months + np.timedelta64(1, "M")
    ...         return flow.Assigned(*[edges.astype("datetime64[us]").astype(np.int64) for edges in (starts, ends)])
    >>> at = pa.array(["2024-02-01", "2024-02-29", "2024-03-01"]).cast(pa.timestamp("s"))
    >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": ["a"] * 3, "at": at}))).with_watermark("at")
    >>> months = rows.key_by("k").window(Months()).agg(op.count().alias("n")).collect()
    >>> months["n"].to_pylist(), [f"{end:%Y-%m-%d}" for end in months["window_end"].to_pylist()]
    ([2, 1], ['2024-03-01', '2024-04-01'])
    """

    merges: ClassVar[bool] = False
    overlaps: ClassVar[bool] = True

    ends_follow: ClassVar[bool] = False
    columns: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        """Return the class and its attributes: the same in every process, because a checkpoint compares it."""
        settings = ", ".join(f"{name}={value!r}" for name, value in sorted(getattr(self, "__dict__", {}).items()))
        return f"{type(self).__qualname__}({settings})"

    @abstractmethod
    def assign(self, times: Microseconds, batch: pa.RecordBatch) -> Assigned:
        """Return the windows of each row.

        Args:
            times: the event time of each row, without nulls; int64 microseconds since 1970.
            batch: the rows, which have at least the columns ``columns``.

        >>> import numpy as np, operators as op
        >>> assigned = op.hopping("10us", every="5us").assign(np.array([12]), None)
        >>> assigned.starts.tolist(), assigned.ends.tolist(), assigned.rows.tolist()
        ([5, 10], [15, 20], [0, 0])
        """

    def complete(self, watermark: int) -> int:
        """Return the greatest end of a window that ``watermark`` completes; by default, ends are exclusive.

        Args:
            watermark: microseconds since 1970: no earlier row is expected.

        >>> import operators as op
        >>> op.tumbling("10s").complete(10_000_000)  # the window that ends then is complete
        10000000
        """
        return watermark

    @property
    def lengths(self) -> tuple[int, ...]:
        """Microseconds such that all edges are sums of their multiples, which decides the unit of ``window_start``.

        By default, an edge may be any microsecond. Empty: all edges are times of the column of event time.
        """
        return (1,)

    @property
    def edge_unit(self) -> str:
        """The unit of the edges that ``assign`` returns, and that ``complete`` takes and returns: "us", or "ns".

        >>> import operators as op
        >>> op.tumbling("10s").edge_unit
        'us'
        """
        return "us"

    def check(self, schema: pa.Schema, time: EventTime) -> None:
        """Raise GraphError if these windows cannot be made of rows with these columns; by default, do nothing.

        Args:
            schema: the columns of the rows.
            time: their event time.

        >>> import pyarrow as pa, operators as op
        >>> op.tumbling("10s").check(pa.schema({"at": pa.timestamp("s")}), EventTime("at"))
        """
        missing = [column for column in self.columns if column not in schema.names]
        if missing:
            raise GraphError(f"window: {self} needs the columns {missing}, and the rows have {schema.names}")


def greatest_complete(window: Window, watermark: int) -> int:
    """Return ``window.complete(watermark)``.

    Raises: ContractViolation if it is no integer, or above the watermark, so that rows could be lost.

    >>> import operators as op
    >>> greatest_complete(op.session("5s"), 10)
    9
    """
    complete = window.complete(watermark)
    if not isinstance(complete, Integral) or complete > watermark:
        raise ContractViolation(
            f"{window}: complete({watermark}) returned {complete!r}; it must return the greatest end of a window that "
            "the watermark completes: an integer, not above the watermark, because rows after it may still come"
        )
    return int(complete)


@dataclass(frozen=True, slots=True)
class Slices:
    """Adjacent intervals of event time: one for each ``every`` microseconds, or two, the second from ``split`` on.

    ``offset`` and ``split`` are 0 or more, and below ``every``.

    >>> slices = Slices(10, offset=3, split=4)
    >>> [slices.start(number) for number in (-1, 0, 1, 2)]
    [-3, 3, 7, 13]
    >>> slices.number(6), slices.number(7), slices.number(2)
    (0, 1, -1)
    """

    every: int
    offset: int = 0
    split: int = 0

    @property
    def parts(self) -> int:
        """The number of slices in each ``every``: 1 or 2."""
        return 2 if self.split else 1

    def start(self, number: N) -> N:
        """Return the first time of a slice, which is the end of the one before it."""
        if not self.split:
            return self.offset + number * self.every
        return self.offset + number // 2 * self.every + number % 2 * self.split

    def number(self, time: int) -> int:
        """Return the number of the slice that contains ``time``."""
        step, rest = divmod(time - self.offset, self.every)
        return 2 * step + (rest >= self.split) if self.split else step


class Sliced(Window):
    """Windows that are ranges of adjacent slices; see the module. Numbers may be negative.

    Invariant: both ends of the range of a window grow with its number, or stay, and so do those of the windows of a
    slice.
    """

    @property
    @abstractmethod
    def slices(self) -> Slices:
        """The slices."""

    @abstractmethod
    def covered(self, window: N) -> tuple[N, N]:
        """Return the first slice of a window, and the one after its last."""

    @abstractmethod
    def containing(self, number: N) -> tuple[N, N]:
        """Return the first and the last window that contain slice ``number``."""

    @abstractmethod
    def last_ending(self, time: int) -> int:
        """Return the number of the last window whose end is at or before ``time``."""

    def start(self, window: N) -> N:
        """Return the first time of a window."""
        return self.slices.start(self.covered(window)[0])

    def end(self, window: N) -> N:
        """Return the first time after a window."""
        return self.slices.start(self.covered(window)[1])

    def last_complete(self, watermark: int) -> int:
        """Return the number of the last window that ``watermark`` completes."""
        return self.last_ending(self.complete(watermark))

    def assign(self, times: Microseconds, batch: Any = None) -> Assigned:
        """Return the windows of each row."""
        import numpy as np

        slices = self.slices
        steps = (times - slices.offset) // slices.every
        numbers = steps
        if slices.split:
            numbers = 2 * steps + (times - slices.offset - steps * slices.every >= slices.split)
        first, last = self.containing(numbers)
        counts = last - first + 1
        rows = np.repeat(np.arange(len(times)), counts)
        before = np.cumsum(counts) - counts
        windows = first[rows] + np.arange(len(rows)) - before[rows]
        return Assigned(self.start(windows), self.end(windows), rows)
