"""Envelopes: what goes from one place to another in a micro-batch, as one row of Spark's.

Spark moves rows cell by cell, so a row of ours is not a row of Spark's: everything that a channel carries in a
micro-batch (batches of rows, watermarks, the end) is one binary cell, in the form that channel state has in
checkpoints. Each element stands behind the number of its step: a step is what came of one batch of one lane, and all
who take part go through the steps in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from dataflow.protocol.events import Data, Element
from dataflow.runtime.task.parts import joined, packed, table_of, unpacked
from dataflow.state.codec import decode, encode

__all__ = [
    "DDL",
    "RAW",
    "REPORT",
    "SCHEMA",
    "TO_DRIVER",
    "Content",
    "Envelope",
    "batches_of",
    "by_channel",
    "envelopes_of",
    "together",
]

TO_DRIVER: Final = -1
"""In place of a slot: for the driver."""
RAW: Final = -2
"""In place of a slot: rows of a link that nobody has dealt out yet."""
REPORT: Final = -1
"""In place of a link: a report, as JSON."""

DDL: Final = "slot int, link int, source int, round bigint, payload binary"
SCHEMA: Final = pa.schema(
    {"slot": pa.int32(), "link": pa.int32(), "source": pa.int32(), "round": pa.int64(), "payload": pa.binary()}
)

_TABLE: Final = "rows"
_BATCH: Final = 32 << 20


@dataclass(slots=True)
class Content:
    """What one channel carried: steps in ascending order, each with its elements.

    >>> from dataflow.protocol.events import Watermark
    >>> content = Content({3: [Watermark(7)]})
    >>> Content.decode(content.encode()) == content
    True
    """

    steps: dict[int, list[Element]] = field(default_factory=dict)

    def add(self, step: int, elements: Iterable[Element]) -> None:
        """Steps come in order; those without elements leave no trace."""
        found = list(elements)
        if found:
            self.steps.setdefault(step, []).extend(found)

    def rows(self) -> Iterator[Data]:
        """The rows alone, in order."""
        return (element for found in self.steps.values() for element in found if isinstance(element, Data))

    def encode(self) -> bytes:
        """As a cell."""
        elements, kinds = packed([element for found in self.steps.values() for element in found])
        tables = {table_of(_TABLE, kind): joined(pa.Table.from_batches(batches)) for kind, batches in enumerate(kinds)}
        sizes = [[step, len(found)] for step, found in self.steps.items()]
        return encode({"steps": sizes, "elements": elements}, tables).to_pybytes()

    @staticmethod
    def decode(payload: Any) -> Content:
        """The inverse of ``encode``."""
        values, tables = decode(payload)
        header: Any = values
        elements = iter(unpacked(header["elements"], tables, _TABLE))
        return Content({step: [next(elements) for _ in range(size)] for step, size in header["steps"]})


def together(contents: Sequence[Content]) -> Content:
    """One content of several that went to the same place."""
    found = Content()
    for step in sorted({step for content in contents for step in content.steps}):
        found.add(step, [element for content in contents for element in content.steps.get(step, ())])
    return found


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload for ``slot``: what ``source``, a subtask, sent over ``link`` in micro-batch ``round``."""

    slot: int
    link: int
    source: int
    round: int
    payload: bytes


def batches_of(envelopes: Iterable[Envelope]) -> Iterator[pa.RecordBatch]:
    """Envelopes as rows of Spark's, some tens of megabytes a batch: a binary column ends at two gigabytes."""
    waiting: list[Envelope] = []
    size = 0
    for envelope in envelopes:
        waiting.append(envelope)
        size += len(envelope.payload)
        if size >= _BATCH:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(envelopes: Sequence[Envelope]) -> pa.RecordBatch:
    columns = [[getattr(envelope, name) for envelope in envelopes] for name in SCHEMA.names]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def envelopes_of(batch: pa.RecordBatch) -> Iterator[Envelope]:
    """The inverse of ``batches_of``."""
    for row in zip(*[batch.column(name).to_pylist() for name in SCHEMA.names], strict=True):
        yield Envelope(*row)


def by_channel(envelopes: Iterable[Envelope]) -> Mapping[tuple[int, int], Content]:
    """What came over each channel, by link and source."""
    ordered = sorted(envelopes, key=lambda envelope: (envelope.link, envelope.source))
    return {
        channel: together([Content.decode(envelope.payload) for envelope in found])
        for channel, found in groupby(ordered, key=lambda envelope: (envelope.link, envelope.source))
    }
