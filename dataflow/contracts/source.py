"""The contract of sources with the engine: splits, each of which one subtask reads from an offset on.

The engine calls, in one thread per split: ``poll`` any number of times, ``offset`` at every barrier, ``close`` once.
A reader that is opened at an offset must return the same rows after that offset as the reader that gave the offset.
`Source` has an example.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Protocol

from dataflow.clock import Clock
from dataflow.contracts.emitted_rows import UNWATCHED, Unwatched
from dataflow.contracts.row_errors import RowTally
from dataflow.contracts.tuning import Choice
from dataflow.errors import BarrierflowWarning

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "END",
    "Condition",
    "EndOfSplit",
    "InputIdentity",
    "Json",
    "ParquetFiles",
    "Source",
    "SourceContext",
    "Split",
    "SplitReader",
]

Comparison = Literal["==", "!=", "<", "<=", ">", ">="]

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]

InputIdentity = Literal["mtime", "content"]
"""How a source recognises its input: by size, content and time of modification, or by size and content alone."""


log = logging.getLogger("dataflow.source")


def _log_notice(category: type[BarrierflowWarning], text: str) -> None:
    """Log ``text``: the default for readers outside of a job, which has no run to warn of it."""
    log.warning("%s: %s", category.__name__, text)


class EndOfSplit(Enum):
    """The type of ``END``."""

    END = "end"


END: Final = EndOfSplit.END
"""The result of ``SplitReader.poll`` when the split has no more rows and never will."""


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a source that one subtask reads. ``info`` describes it (file, size, hash), as JSON values.

    A checkpoint stores splits with their offsets; on a restore the source has to ``check`` each one. An entry ``rows``
    of ``info``, a number, lets the progress of the job be shown.

    >>> Split("part-0.csv", {"size": 1200}).id
    'part-0.csv'
    """

    id: str
    info: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a source's column with a constant that every row must pass to be used; a null passes none.

    Attributes:
        column: the name of a column of the source.
        operator: the comparison, with the column on the left.
        value: an Arrow scalar, neither null nor NaN. The column is converted to its type, which never fails, and then
            compared: text and bytes byte by byte, floats as IEEE 754 says.

    >>> import pyarrow as pa
    >>> Condition("price", ">=", pa.scalar(9.5)).operator
    '>='
    """

    column: str
    operator: Comparison
    value: pa.Scalar


class SplitReader(ABC):
    """Reads one split from an offset on. ``Source.reader`` makes it; all calls come from one thread.

    `Source` has an example of a source with its reader.

    >>> import pyarrow as pa, dataflow as flow
    >>> class Words(flow.SplitReader):
    ...     offset = 0
    ...     def __init__(self, words, offset):
    ...         self.words, self.offset = words, offset
    ...     def poll(self, max_rows):
    ...         rows = self.words[self.offset : self.offset + max_rows]
    ...         self.offset += len(rows)
    ...         return pa.record_batch({"word": rows}) if rows else flow.END
    >>> reader = Words(["a", "b", "c"], offset=1)
    >>> reader.poll(max_rows=5)["word"].to_pylist(), reader.offset, reader.poll(max_rows=5) is flow.END
    (['b', 'c'], 3, True)
    """

    @abstractmethod
    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        """Return the next rows.

        Args:
            max_rows: the most rows to return; it may be very large.

        Returns: a batch with the source's schema; None if there are no rows now; ``END`` if there will never be more.
            The memory of a batch must not change afterwards: see `Out`.

        Raises: an error of the reader fails the job, with the source, split and task as notes.

        >>> import pyarrow as pa, operators as op
        >>> from dataflow.clock import SystemClock
        >>> from dataflow.contracts.source import END, SourceContext
        >>> source = op.from_arrow(pa.table({"x": [1, 2, 3]}))
        >>> reader = source.reader(source.splits()[0], None, SourceContext("numbers", 0, 1, SystemClock()))
        >>> reader.poll(2)["x"].to_pylist(), reader.poll(2)["x"].to_pylist(), reader.poll(2) is END
        ([1, 2], [3], True)
        """

    @property
    @abstractmethod
    def offset(self) -> Json:
        """The position after the last polled batch, which ``Source.reader`` accepts, as JSON; in rows if possible."""

    @property
    def mid_batch(self) -> bool:
        """Whether the rows polled last belong to a batch whose rest is still to come, because ``max_rows`` cut it.

        Event time moves after whole batches, so which rows are late does not depend on how they were cut.
        """
        return False

    @property
    def rows_pruned(self) -> int:
        """The rows that this reader left out so far because of ``Source.skipping``; they count as read."""
        return 0

    @property
    def next_poll(self) -> int | None:
        """The time before which a poll would return None, by the clock of the `SourceContext`, in microseconds.

        Asked for after every poll, so that an idle job sleeps. None, as by default: not known, and the reader is polled
        again at once, or after 3 to 5 milliseconds if it had no rows. Whatever it says, it is polled four times a
        second.
        """
        return None

    def rejected(self) -> pa.RecordBatch | None:
        """Return the rows that the last ``poll`` set aside, for side output ``errors``; called after every poll.

        A poll that only rejected rows must return an empty batch, not None: their place counts as read.

        Returns: a batch with the schema ``Source.sides["errors"]``; None if there are no such rows, as by default.

        Raises: an error fails the job, as for ``poll``.

        >>> import pathlib, tempfile, operators as op
        >>> from dataflow.clock import SystemClock
        >>> from dataflow.contracts.source import SourceContext
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "x.csv").write_text("x\\n1\\nnone\\n")
        ...     source = op.read_csv(folder, schema={"x": "int64"}, on_error="side")
        ...     reader = source.reader(source.splits()[0], None, SourceContext("numbers", 0, 1, SystemClock()))
        ...     reader.poll(10)["x"].to_pylist(), reader.rejected()["row"].to_pylist()
        ([1], ['none'])
        """
        return None

    def close(self) -> None:
        """Release resources. An error raised here, also SystemExit, becomes a ``CleanupFailedWarning``, and the job
        continues.

        >>> import io, dataflow as flow
        >>> class Lines(flow.SplitReader):
        ...     offset, file = 0, io.StringIO("a line")
        ...     def poll(self, max_rows):
        ...         return flow.END
        ...     def close(self):
        ...         self.file.close()
        >>> Lines().close()
        >>> Lines.file.closed
        True
        """


class Closeable(Protocol):
    """A resource that must be released."""

    def close(self) -> None:
        """Release it."""
        ...


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The surroundings of a split reader. ``tally`` counts the rows that it rejects.

    ``repeated`` is for a reader that has to repeat the rows of an earlier one in the same order (on Spark, in a
    micro-batch that is tried again): it has, by split, the offset at which the earlier reader ended. A source that
    reads all that exists, such as the files of a directory, leaves out everything that is not before that offset.

    ``notify`` takes a category and a text. The thread that waits for the run warns of it when the run is over. A
    reader must not warn itself: it works on another thread, where a warning that a filter turns into an error would
    fail the job.

    ``emitted`` takes note of batches of a user's function that wait in the reader: see
    ``dataflow.contracts.emitted_rows``.

    ``left_open`` has the resources that a closed reader leaves to the next one of the subtask, such as an open file, by
    names that the source chooses. What is left at the end is closed with the input.
    """

    name: str
    subtask: int
    parallelism: int
    clock: Clock
    tally: RowTally = field(default_factory=RowTally)
    repeated: Mapping[str, Json] = field(default_factory=dict)
    left_open: dict[str, Closeable] = field(default_factory=dict)
    notify: Callable[[type[BarrierflowWarning], str], None] = _log_notice
    emitted: Unwatched = UNWATCHED


@dataclass(frozen=True)
class ParquetFiles:
    """Parquet files on this machine, or a disk that all machines see, which other engines can read by themselves.

    Attributes:
        paths: the absolute paths.
        names: the names of all columns of the files.
        rows: the number of their rows.
    """

    paths: Sequence[str]
    names: Sequence[str]
    rows: int


class Source(ABC):
    """A description of where rows come from; it opens readers and has no position of its own. Picklable where possible.

    Attributes:
        bounded: whether the input ends.
        replayable: whether a reader opened at an offset returns the same rows again. A source that is not replayable is
            refused together with checkpoints unless it has ``accepts_loss``.
        accepts_loss: whether the user accepts at-most-once.
        blocking: whether a poll may wait for something outside, so that its tasks get threads of their own.
        only_on: the name of the only runner that has its rows, such as ``"spark"``; "": the source reads them itself.
        wraps: the source inside, if this one changes neither its rows nor its splits and offsets, as ``op.paced``: each
            restores checkpoints of the other. None: it is no such wrapper.

    >>> import pyarrow as pa, dataflow as flow
    >>> class Countdown(flow.Source):
    ...     schema = pa.schema({"n": pa.int64()})
    ...     def splits(self):
    ...         return [flow.Split("all", {"rows": 3})]
    ...     def reader(self, split, offset, context):
    ...         return CountdownReader(offset or 0)
    >>> class CountdownReader(flow.SplitReader):
    ...     offset = 0
    ...     def __init__(self, offset):
    ...         self.offset = offset
    ...     def poll(self, max_rows):
    ...         if self.offset == 3:
    ...             return flow.END
    ...         self.offset += 1
    ...         return pa.record_batch({"n": [4 - self.offset]})
    >>> flow.Pipeline().source(Countdown()).collect()["n"].to_pylist()
    [3, 2, 1]
    """

    bounded: bool = True
    replayable: bool = True
    accepts_loss: bool = False
    blocking: bool = False
    only_on: str = ""
    wraps: Source | None = None

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of every batch."""

    @property
    def sides(self) -> Mapping[str, pa.Schema]:
        """The schemas of the side outputs by tag: ``errors`` if rows can be set aside."""
        return {}

    @property
    def kernels(self) -> Sequence[str]:
        """The modules with compiled code that readers of this source call: see ``Operator.kernels``.

        A source that wraps another one passes them on.
        """
        return ()

    @abstractmethod
    def splits(self) -> Sequence[Split]:
        """Return the splits of a fresh start, in a stable order.

        Their ids must be unique, because offsets are stored by id.

        Raises: SourceError if the input is missing or cannot be read.

        >>> import pyarrow as pa, operators as op
        >>> [split.id for split in op.from_arrow(pa.table({"x": range(5)}), splits=2).splits()]
        ['rows-0-3', 'rows-3-5']
        """

    def check(self, split: Split) -> None:
        """Check that ``split``, which comes from a checkpoint, is still the same input. By default it is.

        Args:
            split: one that ``splits()`` returned in an earlier run.

        Raises: InputChanged if it is not; SourceError if it is missing.

        >>> import pyarrow as pa, operators as op
        >>> (split,) = op.from_arrow(pa.table({"x": [1, 2]})).splits()
        >>> op.from_arrow(pa.table({"x": [1, 2]})).check(split)
        >>> op.from_arrow(pa.table({"x": [1, 9]})).check(split)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        dataflow.errors.InputChanged: from_arrow: the checkpoint was taken over other data: the content ...
        """

    def parquet_files(self) -> ParquetFiles | str:
        """Return the files whose rows are the rows of this source, for engines that read Parquet by themselves.

        The columns of the source are columns of the files, with the same names and types. By default there are none.

        Returns: the files; or a text that says why the source has to read its rows itself.

        >>> import pyarrow as pa, operators as op
        >>> op.from_arrow(pa.table({"x": [1, 2]})).parquet_files()
        'its rows are not in Parquet files'
        """
        return "its rows are not in Parquet files"

    @abstractmethod
    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        """Return a reader of ``split``.

        Args:
            split: one of ``splits()``, or one from a checkpoint that passed ``check``.
            offset: the `SplitReader.offset` to resume from; None: the beginning.
            context: the subtask's surroundings.

        Returns: a reader whose first ``poll`` returns the rows after ``offset``.

        Raises: an error fails the job, with the source, split and task as notes.

        >>> import pyarrow as pa, operators as op
        >>> from dataflow.clock import SystemClock
        >>> from dataflow.contracts.source import SourceContext
        >>> source = op.from_arrow(pa.table({"x": [1, 2, 3]}))
        >>> reader = source.reader(source.splits()[0], 2, SourceContext("numbers", 0, 1, SystemClock()))
        >>> reader.poll(10)["x"].to_pylist()
        [3]
        """

    def earliest(self, split: Split, column: str) -> int | None:
        """Return a time before which ``column`` has no value in ``split``. By default, none is known.

        A split that has not been read yet holds the watermark back to this time, or completely if it is not known.

        Args:
            split: one of the source's splits.
            column: the name of a timestamp column.

        Returns: microseconds since 1970; None: not known.

        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq, operators as op
        >>> times = pa.table({"time": pa.array([7, 5], pa.timestamp("us"))})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pq.write_table(times, f"{folder}/part.parquet")
        ...     source = op.read_parquet(folder)  # it reads the statistics in the footer of the file
        ...     source.earliest(source.splits()[0], "time"), source.earliest(source.splits()[0], "other")
        (5, None)
        """
        return None

    def identified_by(self, identity: InputIdentity) -> Source:
        """Return this source, recognising its input by ``identity``.

        The planner calls it after ``select``, so the returned source should keep the selected columns, and before
        ``splits``, ``check`` and ``reader``. The default returns the source itself, for input that has no times of
        modification; a source that wraps another one passes it on.

        Args:
            identity: ``"mtime"`` or ``"content"``, see ``Checkpointing(input_identity=)``.

        Returns: a source whose ``check`` compares input this way.

        >>> import os, pathlib, tempfile, operators as op
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "x.csv")
        ...     _ = file.write_text("x\\n" + "1\\n" * 2**19)  # files of up to 1 MiB are compared whole
        ...     source = op.read_csv(folder)
        ...     (split,) = source.splits()
        ...     os.utime(file, (0, 0))  # a copy may have another time
        ...     source.identified_by("content").check(split)
        ...     source.identified_by("mtime").check(split)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        dataflow.errors.InputChanged: ...
        """
        return self

    def encoded(self, columns: Sequence[str]) -> Source:
        """Return the same source with some of ``columns`` as dictionaries, if this is faster. By default, the source.

        Args:
            columns: names of columns of text that the pipeline only groups by.

        >>> import pyarrow as pa, operators as op
        >>> source = op.from_arrow(pa.table({"k": ["a", "a"]}))  # tables of Arrow are read as they are
        >>> source.encoded(["k"]) is source
        True
        """
        return self

    @property
    def may_be_text(self) -> Sequence[str]:
        """The columns that `encoded` made dictionaries, and whose text a reader may also return from some batch on."""
        return ()

    def select(self, columns: Sequence[str]) -> Source:
        """Return the same source with at least ``columns``. By default, the source itself.

        Args:
            columns: names of the columns that the pipeline uses.

        Returns: a source whose ``schema`` has these columns; it may have more.

        >>> import pyarrow as pa, operators as op
        >>> source = op.from_arrow(pa.table({"x": [1], "y": [2], "z": [3]}))
        >>> source.select(["z", "x"]).schema.names
        ['x', 'z']
        """
        return self

    def skipping(self, conditions: Sequence[Condition]) -> Source:
        """Return the same source, which may leave out rows that fail a condition. By default, the source itself.

        The rest must not change: splits, offsets, ``earliest``, and where batches end. So a batch of which all rows
        are left out is still polled, as an empty batch. `SplitReader.rows_pruned` counts the rows.

        Args:
            conditions: each must hold for a row to be used.

        >>> import pyarrow as pa, operators as op
        >>> source = op.from_arrow(pa.table({"x": [1, 2]}))  # has no statistics, so it reads all rows
        >>> source.skipping([Condition("x", ">", pa.scalar(1))]) is source
        True
        """
        return self

    def choices(self) -> Sequence[Choice]:
        """Return what this source chose for its batches, splits and columns, for ``RunResult.tuning``. Reads nothing.

        A source that wraps another one passes them on. By default there are none.

        >>> import pyarrow as pa, operators as op
        >>> op.from_arrow(pa.table({"x": [1, 2]})).choices()
        ()
        """
        return ()
