"""Loops that tests compile are kept between runs of the tests, in pytest's own cache folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from operators.fusion import cache


@pytest.fixture(autouse=True, scope="session")
def _kept_loops(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    kept = getattr(pytestconfig, "cache", None)  # None with `-p no:cacheprovider`
    folder = tmp_path_factory.mktemp("loops") if kept is None else kept.mkdir("loops")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BARRIERFLOW_CACHE", str(folder))
        cache.folder.cache_clear()
        yield
    cache.folder.cache_clear()
