"""Watched directories of CSV files, for jobs and for processes that are killed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from operators import read_csv, watch
from tests.operators.sources.until_quiet import UntilQuiet

__all__ = ["bring", "first_names"]


def bring(elsewhere: Path, inbox: Path) -> None:
    """Move what is ``elsewhere`` into a watched directory, as it is; another process may do the same."""
    for file in sorted(elsewhere.glob("*.csv")):
        file.rename(inbox / file.name)


def first_names(directory: Path, names: int) -> UntilQuiet:
    """Return the first ``names`` files of a directory of CSV files with a column x, three rows at a time."""
    return UntilQuiet(watch(directory, read_csv, schema={"x": pa.int64()}, every="1us", remember=1), names=names)
