"""Selection of the restored rows that belong to a subtask: those whose key is in one of its key groups."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.contracts.operator import OperatorContext
from dataflow.state.hashing import hash_rows, key_groups

__all__ = ["owned_rows"]


def owned_rows(keys: pa.Table, context: OperatorContext) -> npt.NDArray[np.bool_]:
    """Return a mask: true for each row of ``keys`` (key columns only) that belongs to the context's subtask."""
    groups, total = context.key_groups, context.max_key_groups
    if len(groups) == total:
        return np.ones(keys.num_rows, bool)
    hashes = [hash_rows(batch.columns) for batch in keys.to_batches()]
    found = key_groups(np.concatenate([*hashes, np.empty(0, np.uint64)]), total)
    return (found >= groups.start) & (found < groups.stop)
