"""Envelopes: all that one task sends to another in a micro-batch, as one row of Spark's.

Spark moves rows cell by cell, which is slow for single rows. So everything that a channel carries in a micro-batch
(batches of rows, watermarks, the end) is one binary cell, in the form that channel state has in checkpoints. Each
element has the number of its step: a step holds the results of one batch of one source task, and all tasks process the
steps in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from dataflow.protocol.events import Data, Element
from dataflow.runners.spark.expressions.spark_types import to_carriers
from dataflow.runtime.task.parts import joined, packed, table_of, unpacked
from dataflow.state.codec import decode, encode

__all__ = [
    "CLOSING",
    "DDL",
    "MESSAGE",
    "REPORT",
    "SCHEMA",
    "TO_DRIVER",
    "UNROUTED",
    "Content",
    "Envelope",
    "batches_of",
    "by_channel",
    "decoder",
    "envelopes_of",
    "merge_contents",
]

TO_DRIVER: Final = -1
"""In place of the number of a keyed task: for the driver."""
UNROUTED: Final = -2
"""In place of the number of a keyed task: rows of a link that are not distributed to keyed tasks yet."""
REPORT: Final = -1
"""In place of the number of a link: the payload is a task report, as JSON."""
CLOSING: Final = -2
"""In place of the number of a link: all other envelopes of the partition ``source`` come before this one."""

# "slot" is the key by which Spark stores the state of keyed tasks
DDL: Final = "slot int, link int, source int, round bigint, payload binary"
SCHEMA: Final = pa.schema(
    {"slot": pa.int32(), "link": pa.int32(), "source": pa.int32(), "round": pa.int64(), "payload": pa.binary()}
)

_TABLE: Final = "rows"
MESSAGE: Final = 32 << 20
"""About the most bytes of a message of Spark's: of rows in a part of a content, and of envelopes in a batch."""


@dataclass(slots=True)
class Content:
    """The elements that one channel carried, by step, in ascending order of steps.

    ``times``: after all steps, the watermark of each split, of rows that Spark has read in the micro-batch of time
    ``at`` (microseconds). ``part``: a large content is sent in several parts, numbered from 0, because a message of
    Spark's may not exceed 2 GB.

    >>> from dataflow.protocol.events import Watermark
    >>> content = Content({3: [Watermark(7)]})
    >>> Content.decode(content.encode()) == content
    True
    """

    steps: dict[int, list[Element]] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    at: int | None = None
    part: int = 0

    def add(self, step: int, elements: Iterable[Element]) -> None:
        """Append ``elements`` to a step, which is no lower than earlier ones. Without elements, nothing is added."""
        added = list(elements)
        if added:
            self.steps.setdefault(step, []).extend(added)

    def rows(self) -> Iterator[Data]:
        """Yield the batches of rows, in order."""
        return (element for elements in self.steps.values() for element in elements if isinstance(element, Data))

    def encode(self) -> bytes:
        """Return the content as the bytes of a cell."""
        elements, kinds = packed([element for step in self.steps.values() for element in step])
        tables = {table_of(_TABLE, kind): joined(pa.Table.from_batches(batches)) for kind, batches in enumerate(kinds)}
        sizes = [[step, len(members)] for step, members in self.steps.items()]
        values = {"steps": sizes, "elements": elements, "times": self.times, "at": self.at, "part": self.part}
        return encode(values, tables).to_pybytes()

    @staticmethod
    def decode(payload: Any) -> Content:
        """Return the content that ``encode`` turned into ``payload``."""
        values, tables = decode(payload)
        header: Any = values
        elements = iter(unpacked(header["elements"], tables, _TABLE))
        steps = {step: [next(elements) for _ in range(size)] for step, size in header["steps"]}
        return Content(steps, dict(header["times"]), header["at"], header["part"])

    def parts(self, most: int = MESSAGE) -> Iterator[Content]:
        """Yield the content in parts whose rows have about ``most`` bytes at most; ``merge_contents`` joins them.

        >>> rows = pa.record_batch({"x": range(100)})
        >>> parts = list(Content({0: [Data(rows, 0)]}).parts(most=200))
        >>> [part.part for part in parts], sum(len(data.rows) for part in parts for data in part.rows())
        ([0, 1, 2, 3], 100)
        """
        part, size = Content(times=self.times, at=self.at), 0
        for step, elements in self.steps.items():
            for element in elements:
                for piece, weight in _slices(element, most):
                    if size + weight > most and part.steps:
                        yield part
                        part, size = Content(part=part.part + 1), 0
                    part.add(step, [piece])
                    size += weight
        if part.steps or part.times:
            yield part

    def take_time(self, split: str, time: int) -> None:
        """Take the watermark of a split, if it is later than the one before."""
        self.times[split] = max(time, self.times.get(split, time))


def _slices(element: Element, most: int) -> Iterator[tuple[Element, int]]:
    """Yield an element, or a large batch in several, with the bytes of the rows."""
    if not isinstance(element, Data):
        yield element, 0
        return
    batch: Any = element.rows
    rows = max(1, most * batch.num_rows // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        piece = batch.slice(start, rows)
        yield Data(piece, element.epoch), piece.nbytes


def merge_contents(contents: Sequence[Content]) -> Content:
    """Return one content with the elements of all, which have the same target. Parts are put in their order."""
    merged = Content()
    contents = sorted(contents, key=lambda content: content.part)
    for step in sorted({step for content in contents for step in content.steps}):
        merged.add(step, [element for content in contents for element in content.steps.get(step, ())])
    for content in contents:
        merged.at = content.at if merged.at is None else merged.at
        for split, time in content.times.items():
            merged.take_time(split, time)
    return merged


@dataclass(frozen=True, slots=True)
class Envelope:
    """The payload that subtask ``source`` sent over ``link`` to keyed task ``task`` in micro-batch ``round``.

    Its fields are the columns of ``SCHEMA``, in the same order.
    """

    task: int
    link: int
    source: int
    round: int
    payload: bytes


def batches_of(envelopes: Iterable[Envelope]) -> Iterator[pa.RecordBatch]:
    """Yield envelopes as rows of Spark's, some tens of MB a batch, because a binary column holds at most 2 GB."""
    waiting: list[Envelope] = []
    size = 0
    for envelope in envelopes:
        waiting.append(envelope)
        size += len(envelope.payload)
        if size >= MESSAGE:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(envelopes: Sequence[Envelope]) -> pa.RecordBatch:
    columns = [[getattr(envelope, field.name) for envelope in envelopes] for field in fields(Envelope)]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def envelopes_of(batch: pa.RecordBatch) -> Iterator[Envelope]:
    """Yield the envelopes that ``batches_of`` turned into ``batch``."""
    for row in zip(*[batch.column(name).to_pylist() for name in SCHEMA.names], strict=True):
        yield Envelope(*row)


def by_channel(envelopes: Iterable[Envelope]) -> Mapping[tuple[int, int], Content]:
    """Return the content of each channel, by link and source."""
    ordered = sorted(envelopes, key=lambda envelope: (envelope.link, envelope.source))
    return {
        channel: merge_contents([Content.decode(envelope.payload) for envelope in group])
        for channel, group in groupby(ordered, key=lambda envelope: (envelope.link, envelope.source))
    }


def decoder(links: Sequence[int]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that turns the envelopes of ``links`` into rows for Spark, in its own types."""

    def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for envelope in envelopes_of(batch):
                assert envelope.link in links, f"an envelope of link {envelope.link}, not of {links}"
                for data in Content.decode(envelope.payload).rows():
                    rows: Any = data.rows
                    yield to_carriers(rows)

    return rows_of
