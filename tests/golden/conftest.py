from __future__ import annotations

import pytest

from tests.golden.archives import MODES, unpack
from tests.golden.job import Rows, outputs, pipeline


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """The output of an undisturbed run over the input in the first archive."""
    work = tmp_path_factory.mktemp("undisturbed")
    (unpack(MODES[0], work / "killed") / "in").rename(work / "in")
    assert pipeline(work).run(parallelism=2).late == 0
    return outputs(work)
