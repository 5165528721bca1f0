"""Runs of Nexmark queries over small files of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import dataflow as flow
from benchmarks.nexmark.answers import add_queries, answer, difference
from benchmarks.nexmark.events import Events, Sources, write_all
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.sql import by_duckdb

__all__ = ["Files", "differences", "pipeline", "written"]

Files = Mapping[str, list[Path]]
"""Files by the kind of events."""


def written(events: Events, folder: Path, files: int = 3) -> Files:
    """Write the people, auctions and bids of a stream, and the table of q13."""
    folder.mkdir(exist_ok=True)
    return write_all(events, folder, files=files)


def pipeline(files: Files, folder: Path, queries: Iterable[str] = QUERIES, **options: Any) -> flow.Pipeline:
    """Return a pipeline with all ``queries``, which share the sources; their batches have 500 rows by default.

    Answers that are files are below ``folder``.
    """
    options = {"batch_rows": 500, **options}
    with flow.Pipeline("nexmark") as p:
        add_queries(Sources(p, files, **options), queries, folder)
    return p


def differences(result: flow.RunResult, folder: Path, files: Files, queries: Iterable[str] = QUERIES) -> dict[str, str]:
    """Return, by query, what differs between the answers of a run and those of DuckDB."""
    found = {query: difference(answer(query, result, folder), by_duckdb(query, files)) for query in queries}
    return {query: text for query, text in found.items() if text is not None}
