"""Loops that tests compile are kept between runs of the tests, in pytest's own cache folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from operators.fusion import cache


@pytest.fixture(autouse=True, scope="session")
def _kept_loops(pytestconfig: pytest.Config) -> Iterator[None]:
    folder = pytestconfig.cache.mkdir("loops")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BARRIERFLOW_CACHE", str(folder))
        cache.folder.cache_clear()
        yield
    cache.folder.cache_clear()
