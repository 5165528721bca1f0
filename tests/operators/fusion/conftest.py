"""Loops that tests compile are kept between runs of the tests, in pytest's own cache folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dataflow.kernel_cache.folders import forget_folders


@pytest.fixture(autouse=True, scope="session")
def _kept_loops(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    kept = getattr(pytestconfig, "cache", None)  # None with `-p no:cacheprovider`
    folder = tmp_path_factory.mktemp("loops") if kept is None else kept.mkdir("loops")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        forget_folders()
        yield
    forget_folders()
