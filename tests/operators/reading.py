"""How the tests of sources read them: whole, and from every position at which a reader can stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from dataflow.clock import ManualClock
from dataflow.contracts.source import END, Json, Source, SourceContext, Split

CONTEXT = SourceContext("source", 0, 1, ManualClock())

Step = tuple[Json, list[dict[str, object]], list[dict[str, object]]]


def steps(source: Source, split: Split, offset: Json = None, rows: int = 1000) -> Iterator[Step]:
    """The position ahead of each poll, with the rows it gave and those it rejected; then the last position."""
    reader = source.reader(split, offset, CONTEXT)
    before = reader.offset
    while (batch := reader.poll(rows)) is not END:
        assert batch is not None
        assert batch.num_rows <= rows
        assert batch.schema.equals(source.schema, check_metadata=True)
        batch.validate(full=True)
        rejected = reader.rejected()
        yield before, batch.to_pylist(), rejected.to_pylist() if rejected is not None else []
        before = reader.offset
    yield before, [], []
    reader.close()


def rows_of(
    source: Source, split: Split | None = None, offset: Json = None, rows: int = 1000
) -> list[dict[str, object]]:
    splits = source.splits() if split is None else [split]
    return [row for one in splits for _, given, _ in steps(source, one, offset, rows) for row in given]


def rejected_of(source: Source) -> list[dict[str, object]]:
    return [row for split in source.splits() for _, _, rejected in steps(source, split) for row in rejected]


def table_of(source: Source) -> pa.Table:
    return pa.Table.from_pylist(rows_of(source), source.schema)


def check_every_position(source: Source, cuts: Sequence[int] = (1, 3)) -> None:
    """A reader opened at any position gives exactly what the first one gave behind it, rejected rows included."""
    for split in source.splits():
        for cut in cuts:
            whole = list(steps(source, split, rows=cut))
            for index, (offset, _, _) in enumerate(whole):
                assert list(steps(source, split, offset, cut)) == whole[index:], f"from {offset}"


def ends_of_batches(source: Source, rows: int) -> list[int]:
    """How many rows were given where a batch ended, polled in cuts of ``rows``."""
    reader = source.reader(source.splits()[0], None, CONTEXT)
    given, ends = 0, []
    while (batch := reader.poll(rows)) is not END:
        assert batch is not None
        given += batch.num_rows
        if not reader.mid_batch:
            ends.append(given)
    reader.close()
    return ends
