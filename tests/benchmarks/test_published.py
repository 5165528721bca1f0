"""The figures of docs/benchmarks.md are those of the files beside it, which benchmarks wrote."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from benchmarks.published import FIGURES, PAGE, SHOWN, TABLES, pages, tables
from docs.pictures import PICTURES

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_page_says_what_the_files_say() -> None:
    assert pages(TEXT) == TEXT


@pytest.mark.parametrize("name", TABLES)
def test_each_benchmark_has_its_place_on_the_page_with_the_command_and_the_load(name: str) -> None:
    assert f"<!-- figures {name} -->" in TEXT
    found = json.loads((FIGURES / f"{name}.json").read_text(encoding="utf-8"))
    assert shlex.join(found["command"]) in tables(name)
    assert f"load {found['load']:.1f}" in tables(name)


def test_a_figure_that_was_changed_by_hand_is_noticed() -> None:
    figure = re.search(r"\d+\.\d\d \[", TEXT)
    assert figure is not None
    assert pages(TEXT.replace(figure[0], "9.99 [", 1)) == TEXT


def test_every_chart_is_shown() -> None:
    of_guides = {Path(name).name for name in PICTURES}
    assert {path.name for path in FIGURES.glob("*.svg")} - of_guides == set(SHOWN.findall(TEXT))
