"""Arrow values that records refer to: a snapshot keeps its values while dead ones are dropped."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataflow.state.copy_on_write import CopyOnWriteRows
from dataflow.state.kept_arrays import KeptArrays

COUNT = 700


def test_a_snapshot_keeps_its_values_when_the_others_are_gathered() -> None:
    rows, slots = CopyOnWriteRows(np.zeros((COUNT + 1, 2), np.int64)), np.arange(COUNT, dtype=np.int32)
    kept = KeptArrays(word=1, flag=2, dtype=pa.list_(pa.int64()))
    kept.put(rows, slots[::-1], pa.array([[n] for n in reversed(range(COUNT))]))
    frozen, values = rows.freeze(COUNT), kept.values()
    other = slots[:100]
    for _ in range(25):
        rows.save(other)
        kept.put(rows, other, pa.array([[-1]] * len(other)))
    assert kept._arrays.count < COUNT + 25 * len(other), "dead values are dropped"
    (records,) = frozen.chunks(COUNT)
    assert values.read(records).to_pylist() == [[n] for n in range(COUNT)]
