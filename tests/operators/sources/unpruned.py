"""A source that reads every row: the same pipeline with pruning switched off."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dataflow.contracts.source import InputIdentity, Json, Source, SourceContext, Split, SplitReader

__all__ = ["Unpruned"]


class Unpruned(Source):
    """Passes everything on to the inner source, except the conditions."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner

    @property
    def schema(self) -> pa.Schema:
        return self._inner.schema

    def splits(self) -> Sequence[Split]:
        return self._inner.splits()

    def check(self, split: Split) -> None:
        self._inner.check(split)

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        return self._inner.reader(split, offset, context)

    def earliest(self, split: Split, column: str) -> int | None:
        return self._inner.earliest(split, column)

    def identified_by(self, identity: InputIdentity) -> Unpruned:
        return Unpruned(self._inner.identified_by(identity))

    def select(self, columns: Sequence[str]) -> Unpruned:
        return Unpruned(self._inner.select(columns))
