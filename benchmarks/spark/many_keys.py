"""The input of K1: rows of which most have a key of their own, so that there is a lot of state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["ManyKeys"]


@dataclass(frozen=True)
class ManyKeys:
    """``rows`` rows below ``folder``, ``per_file`` in each file; the same for the same numbers.

    Keys are drawn from a third more numbers than there are rows, so 70 in 100 rows bring a new one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = ManyKeys(3_000, 1_000, Path(folder)).files()
    ...     len(files), len(set(pq.read_table(files[0])["key"].to_pylist())) > 800
    (3, True)
    """

    rows: int
    per_file: int
    folder: Path

    def files(self) -> list[Path]:
        """Columns ``key`` and ``value``, both whole numbers."""
        folder = self.folder / f"barrierflow-keys-1-{self.rows}-{self.per_file}"
        folder.mkdir(parents=True, exist_ok=True)
        made = []
        for number, start in enumerate(range(0, self.rows, self.per_file)):
            file = folder / f"keys-{number:03}.parquet"
            made.append(file)
            if not file.exists():
                unfinished = file.with_suffix(".unfinished")
                pq.write_table(self._part(start, min(self.per_file, self.rows - start)), unfinished)
                unfinished.rename(file)
        return made

    def _part(self, start: int, rows: int) -> pa.Table:
        rng = np.random.default_rng([20_260_000, start])
        return pa.table({"key": rng.integers(0, self.rows * 4 // 3, rows), "value": rng.integers(1, 1_000, rows)})
