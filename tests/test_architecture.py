"""The map of the code names every folder and every large file, and nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAP = (ROOT / "docs" / "architecture.md").read_text()
LARGE = 200
"""Files with more lines are named."""
FILES = sorted(path for top in ("dataflow", "operators") for path in (ROOT / top).rglob("*.py"))
ROWS = {
    folder: line
    for line in MAP.splitlines()
    if line.startswith("| `")
    for folder in re.findall(r"`([a-z_/]+)/`", line.split("|")[1])
}
"""The rows of the tables by folder; a folder's later row, with its files, counts."""


def _name(path: Path) -> str:
    """The name of a file or folder in the map: below dataflow/, or with operators/."""
    return path.relative_to(ROOT).as_posix().removeprefix("dataflow/")


FOLDERS = sorted({_name(path.parent) for path in FILES} - {"dataflow", "operators"})


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_folder_has_a_row(folder: str) -> None:
    assert f"`{folder}/`" in MAP, f"docs/architecture.md says nothing of {folder}/"


def test_each_large_file_is_named_with_what_it_is() -> None:
    missing = []
    for path in FILES:
        lines, folder = path.read_text().count("\n"), _name(path.parent)
        named = f"`{_name(path)}`" in MAP or f"`{path.name}`" in ROWS.get(folder, "")
        if lines > LARGE and not named:
            missing.append(f"{_name(path)} ({lines} lines)")
    assert not missing, f"docs/architecture.md says nothing of {missing}"


def test_files_that_the_map_names_are_there() -> None:
    names = {_name(path) for path in FILES}
    for name in re.findall(r"`([\w/]+/(?:\w+\.py)?)`", MAP):
        there = any((ROOT / top / name).exists() for top in ("dataflow", ""))
        assert there, f"docs/architecture.md names {name}, which is not there"
    for folder, row in ROWS.items():
        for name in re.findall(r"`([a-z_]+\.py)`", row):
            assert f"{folder}/{name}" in names, f"docs/architecture.md names {name} in {folder}/, where it is not"
