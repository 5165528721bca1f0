"""The precision of the count of duplicates at each operator, derived from the graph: of a report, and of events.

A restore report and the event ``repeats`` count deliveries: rows that an operator took before its snapshot and takes
again. On a path of row-wise operators a row that is read again arrives again, so the count is exact. An operator with
state, such as an aggregate, emits results in the colour of all rows that it absorbed, whether these results are emitted
again or not. So downstream of it the count is an upper bound for such results. There may be more updates, because their
number depends on how batches are split. An operator whose spec has ``holds_rows``, the default, may hold rows in its
state when a snapshot is taken. A held row that is read again is emitted twice after the restore, and no operator
downstream had taken it before, so there the count may be too low. (It may also be too high, if held rows were emitted
in the colour of later ones.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.sink import Guarantee
from dataflow.events.repeat_precision import Precision
from dataflow.planning.operator_table import specs_of

__all__ = ["precisions"]

_ENDS = ("read", "write")


def precisions(nodes: Iterable[Mapping[str, Any]], mode: Mode) -> dict[str, Precision]:
    """Return the precision of each operator among ``nodes``, which are described as in a manifest, inputs first.

    If ``mode`` is exactly once, nothing is delivered twice, so all counts are exact.

    >>> nodes = [
    ...     {"name": "in", "kind": "read", "stateful": True, "inputs": []},
    ...     {"name": "sums", "kind": "aggregate", "stateful": True, "inputs": ["in"]},
    ...     {"name": "out", "kind": "write", "stateful": True, "inputs": ["sums"]},
    ... ]
    >>> [precision.value for precision in precisions(nodes, Mode.UNALIGNED).values()]
    ['exact', 'exact', 'upper bound']
    """
    order = list(Precision)
    exactly_once = mode.guarantee is Guarantee.EXACTLY_ONCE
    taken: dict[str, Precision] = {}
    given: dict[str, Precision] = {}
    for node in nodes:
        name = node["name"]
        taken[name] = max((given[source] for source in node["inputs"]), key=order.index, default=Precision.EXACT)
        given[name] = taken[name] if exactly_once else max(taken[name], _added(node), key=order.index)
    return taken


def _added(node: Mapping[str, Any]) -> Precision:
    """Return the best precision that is possible downstream of ``node``."""
    if not node["stateful"] or node["kind"] in _ENDS:
        return Precision.EXACT
    specs = specs_of(node["kind"])
    holds_rows = not specs or any(spec.holds_rows is not False for spec in specs)
    return Precision.MAY_BE_TOO_LOW if holds_rows else Precision.UPPER_BOUND
