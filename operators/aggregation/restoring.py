"""Restoring the state of keyed aggregates, also from checkpoints of the first format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.operator import Snapshot
from dataflow.errors import OTHER_PIPELINE, CheckpointDamaged, CheckpointMismatch
from dataflow.state.parts import LIVE, marked
from dataflow.untrusted import parsed
from operators.aggregation.time_units import TimeUnit

__all__ = ["check_units", "first_format", "restoring", "units_of"]


def first_format(keys: pa.Table, records: pa.Table, where: str) -> Mapping[str, pa.Table]:
    """Return the tables of a checkpoint of the first format, row i of both for one key, as the base of a log."""
    if keys.num_rows != records.num_rows:
        raise CheckpointDamaged(f"{where}: the checkpoint is damaged: {keys.num_rows} keys, {records.num_rows} records")
    live = pa.chunked_array([to_array(np.ones(keys.num_rows, np.bool_))])
    schema = marked(pa.schema([*keys.schema, *records.schema, pa.field(LIVE, pa.bool_())]), base=True)
    return {"keys": pa.Table.from_arrays([*keys.columns, *records.columns, live], schema=schema)}


def units_of(state: Snapshot, inputs: int) -> list[TimeUnit]:
    """Return the units of event times in a checkpoint, for each input of an operator.

    Without an entry they are microseconds: releases that rounded all times to these made none.
    """
    stored = state.values.get("time units", state.values.get("units", ["us"] * inputs))
    values = parsed(list[str], stored, "the units of event times")
    units = [unit for value in values for unit in TimeUnit if unit.value == value]
    if len(units) != len(values) or len(values) != inputs:
        known = [unit.value for unit in TimeUnit]
        raise CheckpointDamaged(f"the units of event times are {values}, expected {inputs} of {known}")
    return units


def check_units(where: str, restored: Snapshot, *units: TimeUnit) -> None:
    """Raise CheckpointMismatch if the checkpoint holds event times of other units, for each input of an operator."""
    stored, own = ([unit.value for unit in each] for each in (units_of(restored, len(units)), units))
    if stored != own:
        raise CheckpointMismatch(
            f"{where}: the checkpoint holds event times of its inputs in the units {stored}, the pipeline has {own}: a "
            "column of event time has another type now, or an earlier release rounded its nanoseconds; "
            f"{OTHER_PIPELINE}"
        )


@contextmanager
def restoring(where: str) -> Iterator[None]:
    """Name the operator in errors about its state."""
    try:
        yield
    except (CheckpointMismatch, CheckpointDamaged) as error:
        raise type(error)(f"{where}: {error}") from error
