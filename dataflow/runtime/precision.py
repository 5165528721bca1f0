"""How far the report of a restore counts the duplicates of each operator, read off the graph that took the checkpoint.

A report counts deliveries: rows that an operator took before its snapshot and takes again. On a path of row-wise
operators a row that is read again arrives again, so the count is exact. An aggregate or window of the library emits
results in the colour of all that it absorbed, whether they come out again or not: downstream of it the count is an
upper bound. It bounds the results that come out again; updates may be more, because their number depends on how batches
are cut. An operator of a user's may hold rows in its state over a snapshot. A held row that is read again is emitted
twice after the restore, and no operator downstream had taken it before: there the count may be too low (and where held
rows left in the colour of later ones, too high).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from dataflow.checkpointing import Mode
from dataflow.operator import Guarantee

__all__ = ["Precision", "precisions"]

_OWN = "apply"
_ENDS = ("read", "write")


class Precision(Enum):
    """How far the number of duplicates of an operator can be relied on, best first."""

    EXACT = "exact"
    UPPER_BOUND = "upper bound"
    MAY_BE_TOO_LOW = "may be too low"


def precisions(nodes: Iterable[Mapping[str, Any]], mode: Mode) -> dict[str, Precision]:
    """Return the precision of each operator among ``nodes``, which are described as in a manifest, inputs first.

    Where ``mode`` is exactly once nothing is delivered twice, and that is exact.

    >>> nodes = [
    ...     {"name": "in", "kind": "read", "stateful": True, "inputs": []},
    ...     {"name": "sums", "kind": "aggregate", "stateful": True, "inputs": ["in"]},
    ...     {"name": "out", "kind": "write", "stateful": True, "inputs": ["sums"]},
    ... ]
    >>> [found.value for found in precisions(nodes, Mode.UNALIGNED).values()]
    ['exact', 'exact', 'upper bound']
    """
    order = list(Precision)
    exactly = mode.guarantee is Guarantee.EXACTLY_ONCE
    taken: dict[str, Precision] = {}
    given: dict[str, Precision] = {}
    for node in nodes:
        name = node["name"]
        taken[name] = max((given[source] for source in node["inputs"]), key=order.index, default=Precision.EXACT)
        given[name] = taken[name] if exactly else max(taken[name], _added(node), key=order.index)
    return taken


def _added(node: Mapping[str, Any]) -> Precision:
    """Return the best precision that is left downstream of ``node``."""
    if not node["stateful"] or node["kind"] in _ENDS:
        return Precision.EXACT
    return Precision.MAY_BE_TOO_LOW if node["kind"] == _OWN else Precision.UPPER_BOUND
