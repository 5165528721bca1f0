"""Sources, transforms, windows, joins and sinks. Names are imported on first use, so ``import operators`` is fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataflow.contracts.sliding import sliding
    from dataflow.contracts.triggers import after_rows, after_time, at_times
    from dataflow.contracts.untimed_windows import count_window, global_window
    from dataflow.contracts.window_kinds import cumulate, hopping, same_window, session, tumbling
    from dataflow.expressions import count, latest
    from operators.aggregation.custom_aggregates import aggregate_kernel
    from operators.aggregation.python_aggregates import aggregate_python
    from operators.sinks.batches import upsert_batches, write_batches
    from operators.sinks.collect import collect
    from operators.sinks.console import console
    from operators.sinks.csv import write_csv
    from operators.sinks.foreach_batch import foreach_batch
    from operators.sinks.ipc import write_ipc
    from operators.sinks.json_lines import write_json
    from operators.sinks.parquet import read_committed, write_parquet
    from operators.sources.arrow import from_arrow
    from operators.sources.csv_files import read_csv
    from operators.sources.generate import generate
    from operators.sources.generator import from_generator
    from operators.sources.ipc_files import read_ipc
    from operators.sources.json_lines import read_json
    from operators.sources.paced import paced
    from operators.sources.parquet import read_parquet
    from operators.sources.recipes import choice, event_times, integers, normal, sequence, uniform
    from operators.sources.spark_table import spark_table
    from operators.sources.watch import watch

__all__ = [
    "after_rows",
    "after_time",
    "aggregate_kernel",
    "aggregate_python",
    "at_times",
    "choice",
    "collect",
    "console",
    "count",
    "count_window",
    "cumulate",
    "event_times",
    "foreach_batch",
    "from_arrow",
    "from_generator",
    "generate",
    "global_window",
    "hopping",
    "integers",
    "latest",
    "normal",
    "paced",
    "read_committed",
    "read_csv",
    "read_ipc",
    "read_json",
    "read_parquet",
    "same_window",
    "session",
    "sequence",
    "sliding",
    "spark_table",
    "tumbling",
    "uniform",
    "watch",
    "write_batches",
    "upsert_batches",
    "write_csv",
    "write_ipc",
    "write_json",
    "write_parquet",
]

_HOMES = {
    "aggregate_kernel": "operators.aggregation.custom_aggregates",
    "aggregate_python": "operators.aggregation.python_aggregates",
    "choice": "operators.sources.recipes",
    "collect": "operators.sinks.collect",
    "console": "operators.sinks.console",
    "count": "dataflow.expressions",
    "after_rows": "dataflow.contracts.triggers",
    "after_time": "dataflow.contracts.triggers",
    "at_times": "dataflow.contracts.triggers",
    "count_window": "dataflow.contracts.untimed_windows",
    "cumulate": "dataflow.contracts.window_kinds",
    "global_window": "dataflow.contracts.untimed_windows",
    "event_times": "operators.sources.recipes",
    "foreach_batch": "operators.sinks.foreach_batch",
    "from_arrow": "operators.sources.arrow",
    "from_generator": "operators.sources.generator",
    "generate": "operators.sources.generate",
    "hopping": "dataflow.contracts.window_kinds",
    "integers": "operators.sources.recipes",
    "latest": "dataflow.expressions",
    "normal": "operators.sources.recipes",
    "paced": "operators.sources.paced",
    "read_committed": "operators.sinks.parquet",
    "read_csv": "operators.sources.csv_files",
    "read_ipc": "operators.sources.ipc_files",
    "read_json": "operators.sources.json_lines",
    "read_parquet": "operators.sources.parquet",
    "same_window": "dataflow.contracts.window_kinds",
    "session": "dataflow.contracts.window_kinds",
    "sequence": "operators.sources.recipes",
    "sliding": "dataflow.contracts.sliding",
    "spark_table": "operators.sources.spark_table",
    "tumbling": "dataflow.contracts.window_kinds",
    "uniform": "operators.sources.recipes",
    "watch": "operators.sources.watch",
    "write_batches": "operators.sinks.batches",
    "upsert_batches": "operators.sinks.batches",
    "write_csv": "operators.sinks.csv",
    "write_ipc": "operators.sinks.ipc",
    "write_json": "operators.sinks.json_lines",
    "write_parquet": "operators.sinks.parquet",
}


def __getattr__(name: str) -> Any:
    from dataflow.registry import offered

    return offered(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
