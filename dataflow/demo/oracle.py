"""Compute the right result with pyarrow alone, and compare the job's result with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dataflow.demo.flights import FlightFiles

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Delay", "Delays", "departed", "differences", "expected", "last_rows"]

_RELATIVE = 1e-9
"""Relative difference of means that is allowed, because sums may be formed in another order."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The flights of one airport and airline, and their mean delay in minutes."""

    flights: int
    mean: float


Delays = Mapping[tuple[str, str], Delay]
"""By (origin, carrier)."""


def departed(files: FlightFiles) -> pa.Table:
    """Return the flights that reach the aggregate: origin, carrier, delay in minutes."""
    import pyarrow as pa
    from pyarrow import parquet

    tables = [parquet.ParquetFile(path).read(["departure", *_COLUMNS]) for path in (files.fast, files.slow)]
    flights = pa.concat_tables(tables)
    return flights.filter(flights["departure"].is_valid()).select(_COLUMNS)


_COLUMNS = ["origin", "carrier", "delay"]


def expected(rows: pa.Table) -> Delays:
    """Return the result that the job must have for ``rows`` (origin, carrier, delay)."""
    grouped = rows.group_by(["origin", "carrier"]).aggregate([([], "count_all"), ("delay", "mean")])
    return _by_key(grouped, "count_all", "delay_mean")


def last_rows(output: Path) -> Delays:
    """Return the final state of the changelog that the job wrote: the last row of each key."""
    from operators.sinks.parquet import read_committed

    last = read_committed(output).group_by(["origin", "carrier"], use_threads=False)
    return _by_key(last.aggregate([("flights", "last"), ("mean_delay", "last")]), "flights_last", "mean_delay_last")


def _by_key(table: pa.Table, flights: str, mean: str) -> Delays:
    return {(r["origin"], r["carrier"]): Delay(r[flights], r[mean]) for r in table.to_pylist()}


def differences(actual: Delays, wanted: Delays) -> list[str]:
    """Return one sentence for each key whose count differs, or whose mean differs by more than a relative 1e-9.

    >>> wanted = {("JFK", "B6"): Delay(3, 12.5)}
    >>> differences({("JFK", "B6"): Delay(3, 12.5)}, wanted), differences({("JFK", "B6"): Delay(4, 12.5)}, wanted)
    ([], ['JFK B6: expected 3 flights with mean delay 12.5, found 4 with 12.5'])
    """
    sentences = []
    for key in sorted({**wanted, **actual}):
        w, f = wanted.get(key), actual.get(key)
        if w is None or f is None:
            sentences.append(f"{' '.join(key)}: expected {_text(w)}, found {_text(f)}")
        elif w.flights != f.flights or not math.isclose(w.mean, f.mean, rel_tol=_RELATIVE):
            sentences.append(
                f"{' '.join(key)}: expected {w.flights} flights with mean delay {w.mean}, "
                f"found {f.flights} with {f.mean}"
            )
    return sentences


def _text(delay: Delay | None) -> str:
    return "no row" if delay is None else f"{delay.flights} flights"
