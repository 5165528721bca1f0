"""Sessions that came out and then met a row: the row starts a session of its own, which is one more than there are.

Only the last session of a key can still meet rows that are not late, so there is one end for each key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.state.keyed_state import KeyedState, Ttl
from operators.aggregation.window_times import Numbers

__all__ = ["PastEnds"]

_END = "end"
_SWEPT, _SWEPT_A_ROW = 1024, 2
"""Keys that are searched for ends that no row can meet: at each watermark, and for each session that comes out."""


class PastEnds:
    """The end of the last session of each key that came out, until the watermark is more than ``gap`` above it."""

    def __init__(self, keys: pa.Schema, gap: int) -> None:
        self._keys = len(keys)
        self._gap = gap
        self.state = KeyedState(keys, pa.schema([pa.field(_END, pa.int64())]), ttl=Ttl(gap + 1))

    @property
    def kernels(self) -> Sequence[str]:
        """The modules with the kernels of this state."""
        return self.state.kernels

    def add(self, keys: Sequence[pa.Array], ends: Numbers, now: int) -> None:
        """Take note of sessions that come out at the watermark ``now``, those of a key in the order of time."""
        within = ends >= now - self._gap
        if within.any():
            keys, ends = [key.filter(to_array(within)) for key in keys], ends[within]
            slots, _ = self.state.insert(keys, now, ends)
            self.state.write(slots, pa.record_batch({_END: to_array(ends)}))
        self.state.expire(now, _SWEPT + _SWEPT_A_ROW * len(ends))

    def take_met(self, keys: Sequence[pa.Array], firsts: Numbers, now: int) -> int:
        """Return how many past sessions the sessions that begin at ``firsts`` meet; each is counted once."""
        slots = self.state.find(keys, now)
        held = slots >= 0
        slots, firsts = slots[held], firsts[held]
        ends = to_numbers(self.state.read(slots).column(_END))
        met = np.unique(slots[firsts <= ends])
        self.state.delete(met)
        return len(met)

    def restore(self, parts: Sequence[Mapping[str, pa.Table]], groups: range, max_groups: int) -> None:
        """Restore the parts of a log, as far as they are of key groups ``groups``."""
        self.state.restore(parts, groups, max_groups)
