"""The campaign of chains of deltas on failing disks as tests. One seed, or a range: see ``chains.py``."""

from __future__ import annotations

import pytest

from tests.seeds import in_soak
from tests.simulation.chains import KINDS, Chains, run

IN_FEW_RUNS = tuple(kind for kind in KINDS if kind != "failed job")
BLOCK = 500


@pytest.mark.parametrize("seeds", [16, *in_soak(30)])
def test_chains_on_failing_disks_lose_repeat_and_leave_nothing(seeds: int, capsys: pytest.CaptureFixture[str]) -> None:
    chains = Chains().add(range(seeds))
    with capsys.disabled():
        print(f"\n{chains}")
    assert not set(chains.missing()) & set(IN_FEW_RUNS), chains


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 10_000, BLOCK))
def test_the_same_over_ten_thousand_seeds_reaches_every_kind_of_fault(
    first: int, capsys: pytest.CaptureFixture[str]
) -> None:
    chains = Chains().add(range(first, first + BLOCK))
    with capsys.disabled():
        print(f"\n{chains}")
    assert not chains.missing(), chains


def test_a_seed_of_chains_is_a_reproduction() -> None:
    assert str(run(7)) == str(run(7))
