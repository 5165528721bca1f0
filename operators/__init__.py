"""Sources, transforms, windows, joins and sinks. Names are imported on first use: ``import operators`` is light."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataflow.expressions import count
    from operators.sinks.collect import collect
    from operators.sinks.parquet import read_committed, write_parquet
    from operators.sources.arrow import from_arrow
    from operators.sources.csv_files import read_csv
    from operators.sources.ipc_files import read_ipc
    from operators.sources.json_lines import read_json
    from operators.sources.paced import paced
    from operators.sources.parquet import read_parquet
    from operators.sources.watch import watch

__all__ = [
    "collect",
    "count",
    "from_arrow",
    "paced",
    "read_committed",
    "read_csv",
    "read_ipc",
    "read_json",
    "read_parquet",
    "watch",
    "write_parquet",
]

_HOMES = {
    "collect": "operators.sinks.collect",
    "count": "dataflow.expressions",
    "from_arrow": "operators.sources.arrow",
    "paced": "operators.sources.paced",
    "read_committed": "operators.sinks.parquet",
    "read_csv": "operators.sources.csv_files",
    "read_ipc": "operators.sources.ipc_files",
    "read_json": "operators.sources.json_lines",
    "read_parquet": "operators.sources.parquet",
    "watch": "operators.sources.watch",
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
