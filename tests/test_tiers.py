"""The tiers of tests: each test is in one, each path exists, and a run over its budget says which tests cost most."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import tests.seeds
from tests.documents import ROOT
from tests.seeds import each_once, each_once_with_seeds, some_by_default
from tests.seeds import seeds as some_seeds
from tests.tiers import DEFAULT, EXTENDED, Tiers


@pytest.fixture
def any_tier() -> Iterator[None]:
    """Let parameters be made for every tier, as in a run without a marker expression."""
    before = tests.seeds._selectable
    tests.seeds._selectable = ("extended", "soak")
    yield
    tests.seeds._selectable = before


def by_tier(parameters: Sequence[Any]) -> dict[str, list[Any]]:
    sorted_: dict[str, list[Any]] = {"default": [], "extended": [], "soak": []}
    for one in parameters:
        (*_, tier) = ("default", *(mark.name for mark in getattr(one, "marks", ())))
        sorted_[tier].append(getattr(one, "values", (one,)))
    return sorted_


TOML = {
    "quick": {"without": []},
    "extended": {"paths": ["tests/test_a.py::test_one"], "all_but_the_first": ["tests/test_a.py::test_two"]},
    "budget": {},
}


def test_two_tiers_on_one_test_are_an_error() -> None:
    with pytest.raises(pytest.UsageError, match="test_three is in two tiers, extended and soak; take away one"):
        Tiers(TOML).tier_of("tests/test_a.py::test_three", ["soak", "parametrize", "extended"])


def test_a_path_speaks_only_of_tests_without_a_marker() -> None:
    tiers = Tiers(TOML)
    assert tiers.tier_of("tests/test_a.py::test_one[3]", ["soak", "soak"]) == "soak"
    assert tiers.tier_of("tests/test_a.py::test_one[3]", ["parametrize"]) == EXTENDED
    assert tiers.tier_of("tests/test_a.py::test_three", ["parametrize"]) is None


def test_a_test_may_have_its_first_case_in_the_default_tier_and_the_others_in_the_extended_one() -> None:
    tiers = Tiers(TOML)
    tests = [("x", ["soak"]), ("b", []), ("a", []), ("b", [])]
    assert [tiers.tier_of(f"tests/test_a.py::test_two[{case}]", markers) for case, markers in tests] == [
        "soak",
        None,
        EXTENDED,
        None,
    ]


def test_seeds_are_shared_out_among_the_tiers(any_tier: None) -> None:
    assert by_tier(some_seeds(1, 4, extended=3)) == {"default": [(0,)], "extended": [(1,), (2,)], "soak": [(3,)]}
    assert by_tier(some_seeds(2, 3)) == {"default": [(0,), (1,)], "extended": [], "soak": [(2,)]}


def test_combinations_are_shared_out_among_the_tiers(any_tier: None) -> None:
    assert by_tier(each_once("ab", "xy", default=1)) == {
        "default": [("a", "x")],
        "extended": [("b", "y")],
        "soak": [("a", "y"), ("b", "x")],
    }
    assert by_tier(each_once_with_seeds(2, "ab", default=1)) == {
        "default": [(0, "a")],
        "extended": [(1, "b")],
        "soak": [(0, "b"), (1, "a")],
    }
    assert by_tier(some_by_default([(0, "a")], [0, 1], "a", extended=[(1, "a")])) == {
        "default": [(0, "a")],
        "extended": [(1, "a")],
        "soak": [],
    }


def test_a_run_of_one_tier_makes_no_parameters_of_the_others(any_tier: None) -> None:
    tests.seeds._selectable = ()
    assert by_tier(some_seeds(1, 4, extended=3)) == {"default": [(0,)], "extended": [], "soak": []}
    tests.seeds._selectable = ("extended",)
    assert by_tier(each_once("ab", "xy", default=1))["soak"] == []


def test_the_marker_expression_of_the_default_tier_is_that_of_the_settings(request: pytest.FixtureRequest) -> None:
    assert DEFAULT in request.config.getini("addopts")


def test_every_path_of_the_tiers_exists() -> None:
    tiers = Tiers.read()
    assert tiers.extended
    folders = [folder for budgets in tiers.budgets.values() for folder in budgets]
    for path in (*tiers.extended, *tiers.all_but_the_first, *tiers.quick_without, *folders):
        file, _, test = path.partition("::")
        assert (ROOT / file).exists(), f"tests/tiers.toml: {path} does not exist"
        if test:
            source = (ROOT / file).read_text(encoding="utf-8")
            assert re.search(rf"def {re.escape(test)}\b", source), f"tests/tiers.toml: {path} does not exist"


def test_no_path_of_the_tiers_is_below_another_one() -> None:
    tiers = Tiers.read()
    paths = [*tiers.extended, *tiers.all_but_the_first]
    assert len(set(paths)) == len(paths)
    assert [(a, b) for a in paths for b in paths if b.startswith((f"{a}/", f"{a}::"))] == []
