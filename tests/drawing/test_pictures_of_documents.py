"""The pictures of the documentation are what their code draws, and hold in any font."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.pictures import DOCS, PICTURES
from tests.drawing.browser import Browser


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_the_documentation_is_what_its_code_draws(name: str) -> None:
    stored = (DOCS / name).read_text(encoding="utf-8")
    assert stored == PICTURES[name](), f"docs/{name} is out of date; run: python -m docs.pictures"


@pytest.mark.extended
@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_of_the_documentation_holds_in_any_font(browser: Browser, path: Path) -> None:
    assert browser.problems(path.read_text(encoding="utf-8")) == []
