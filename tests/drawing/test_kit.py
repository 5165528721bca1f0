"""The browser kit without a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drawing.browser import Browser


def test_a_machine_without_chromium_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="apt-get install -y chromium fonts-dejavu-core fonts-liberation"):
        Browser()
