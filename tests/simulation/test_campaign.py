"""The campaign as tests. The long one: ``python -m pytest tests/simulation -m soak``; one seed: see ``campaign.py``."""

from __future__ import annotations

import pytest

from tests.seeds import in_soak
from tests.simulation.campaign import Campaign, corpus, run


def test_the_seeds_that_once_failed_meet_their_oracles() -> None:
    assert [run(seed).seed for seed in corpus()] == corpus()


@pytest.mark.parametrize("times", [1, *in_soak(2)])
def test_crashes_anywhere_lose_and_repeat_nothing_but_what_is_reported(
    times: int, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = Campaign(least=times).add(range(24 * times))  # each workload in each mode so many times
    with capsys.disabled():
        print(f"\n{campaign}")
    assert not campaign.shortfalls(), campaign


@pytest.mark.soak
def test_the_same_over_three_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    campaign = Campaign().add(range(3_000))
    with capsys.disabled():
        print(f"\n{campaign}")
    assert not campaign.shortfalls(), campaign


def test_a_seed_is_a_reproduction() -> None:
    assert str(run(7)) == str(run(7))
