"""One command for all checks: the style, the types and the storeys of the project are tests like any other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def check(*arguments: str) -> None:
    """Run a tool of this environment over the checkout; what it says is the failure."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_has_nothing_to_say() -> None:
    check("-m", "ruff", "check", "--output-format", "concise", ".")


def test_every_file_is_formatted() -> None:
    check("-m", "ruff", "format", "--check", ".")


def test_types_hold() -> None:
    check("-m", "mypy")


def test_imports_point_down_only() -> None:
    check("-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache")


def test_no_script_lies_at_the_top() -> None:
    assert [path.name for path in ROOT.glob("*.py")] == []
