"""Restoring the state of keyed aggregates: the units of its event times, and errors that name the operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dataflow.contracts.operator import Snapshot
from dataflow.errors import OTHER_PIPELINE, CheckpointDamaged, CheckpointMismatch
from dataflow.untrusted import parsed
from operators.aggregation.time_units import TimeUnit

__all__ = ["check_units", "restoring", "units_of"]


def units_of(state: Snapshot, inputs: int) -> list[TimeUnit]:
    """Return the units of event times in a checkpoint, for each input of an operator."""
    values = parsed(list[str], state.values.get("units"), "the units of event times")
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
            f"column of event time has another type now; {OTHER_PIPELINE}"
        )


@contextmanager
def restoring(where: str) -> Iterator[None]:
    """Name the operator in errors about its state."""
    try:
        yield
    except (CheckpointMismatch, CheckpointDamaged) as error:
        raise type(error)(f"{where}: {error}") from error
