"""Checkpoints of every operator of the library that keeps state are forged."""

from __future__ import annotations

from pathlib import Path

from dataflow.planning import batch_specs, process_specs
from tests.forged.pipelines import PIPELINES, inputs
from tests.library_specs import library_specs

IN_BATCHES = {batch_specs.Sorted, process_specs.ProcessKeysInOrder, process_specs.ProcessBatchesInOrder}
"""A batch has one checkpoint, at its end, without state."""


def test_each_operator_with_state_is_in_a_pipeline(tmp_path: Path) -> None:
    inputs(tmp_path)
    forged = {type(node.spec) for make in PIPELINES.values() for node in make(tmp_path).graph if node.stateful}
    with_state = {spec for spec in library_specs() if spec.stateful} - IN_BATCHES
    assert with_state - forged == set()
