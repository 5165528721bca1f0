"""Sources, transforms, windows, joins and sinks. Names are imported on first use: ``import operators`` is light."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataflow.expressions import count
    from operators.sinks.batches import write_batches
    from operators.sinks.collect import collect
    from operators.sinks.console import console
    from operators.sinks.csv import write_csv
    from operators.sinks.files import read_committed
    from operators.sinks.ipc import write_ipc
    from operators.sinks.json_lines import write_json
    from operators.sinks.parquet import write_parquet
    from operators.sources.arrow import from_arrow
    from operators.sources.paced import paced
    from operators.sources.parquet import read_parquet

__all__ = [
    "collect",
    "console",
    "count",
    "from_arrow",
    "paced",
    "read_committed",
    "read_parquet",
    "write_batches",
    "write_csv",
    "write_ipc",
    "write_json",
    "write_parquet",
]

_HOMES = {
    "collect": "operators.sinks.collect",
    "console": "operators.sinks.console",
    "count": "dataflow.expressions",
    "from_arrow": "operators.sources.arrow",
    "paced": "operators.sources.paced",
    "read_committed": "operators.sinks.files",
    "read_parquet": "operators.sources.parquet",
    "write_batches": "operators.sinks.batches",
    "write_csv": "operators.sinks.csv",
    "write_ipc": "operators.sinks.ipc",
    "write_json": "operators.sinks.json_lines",
    "write_parquet": "operators.sinks.parquet",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
