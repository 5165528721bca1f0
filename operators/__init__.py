"""Sources, transforms and sinks. Names are imported on first use, so ``import operators`` is light.

>>> import operators as op
>>> op.count().alias("n")
count().alias('n')
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataflow.expressions import count
    from operators.sinks.collect import collect
    from operators.sinks.parquet import committed_files, read_committed, write_parquet
    from operators.sources.arrow import from_arrow
    from operators.sources.paced import paced
    from operators.sources.parquet import read_parquet

__all__ = [
    "read_parquet",
    "from_arrow",
    "paced",
    "count",
    "write_parquet",
    "read_committed",
    "committed_files",
    "collect",
]

_HOMES = {
    "read_parquet": "operators.sources.parquet",
    "from_arrow": "operators.sources.arrow",
    "paced": "operators.sources.paced",
    "count": "dataflow.expressions",
    "write_parquet": "operators.sinks.parquet",
    "read_committed": "operators.sinks.parquet",
    "committed_files": "operators.sinks.parquet",
    "collect": "operators.sinks.collect",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
