"""The generated rows, in files that all tests of this folder read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.agreement.data import generated, write_files


@pytest.fixture(scope="session")
def table() -> pa.Table:
    return generated(seed=20)


@pytest.fixture(scope="session")
def files(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Parquet files."""
    return write_files(table, tmp_path_factory.mktemp("agreement"))


@pytest.fixture(scope="session")
def ipc_files(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The same rows as Arrow files, which keep the types that Parquet has none for."""
    folder = tmp_path_factory.mktemp("agreement-ipc")
    cuts = [0, 0, 1, table.num_rows // 3, table.num_rows]
    paths = [str(folder / f"{i}.arrow") for i in range(len(cuts) - 1)]
    for path, start, stop in zip(paths, cuts, cuts[1:], strict=False):
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table.slice(start, stop - start).unify_dictionaries().combine_chunks(), max_chunksize=50)
    return paths
