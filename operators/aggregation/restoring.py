"""Restoring the state of keyed aggregates, also from checkpoints of the first format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.errors import CheckpointDamaged, CheckpointMismatch
from dataflow.state.parts import LIVE, marked

__all__ = ["first_format", "restoring"]


def first_format(keys: pa.Table, records: pa.Table, where: str) -> Mapping[str, pa.Table]:
    """Return the tables of a checkpoint of the first format, row i of both for one key, as the base of a log."""
    if keys.num_rows != records.num_rows:
        raise CheckpointDamaged(f"{where}: the checkpoint is damaged: {keys.num_rows} keys, {records.num_rows} records")
    live = pa.chunked_array([to_array(np.ones(keys.num_rows, np.bool_))])
    schema = marked(pa.schema([*keys.schema, *records.schema, pa.field(LIVE, pa.bool_())]), base=True)
    return {"keys": pa.Table.from_arrays([*keys.columns, *records.columns, live], schema=schema)}


@contextmanager
def restoring(where: str) -> Iterator[None]:
    """Name the operator in errors about its state."""
    try:
        yield
    except (CheckpointMismatch, CheckpointDamaged) as error:
        raise type(error)(f"{where}: {error}") from error
