"""Fenced blocks of Markdown files, and what running them prints."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "Block", "blocks", "run_python"]

ROOT = Path(__file__).parents[1]
_FENCE = re.compile(r"^```([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, and the line of the file it starts on."""

    language: str
    text: str
    line: int


def blocks(document: Path) -> list[Block]:
    """Every fenced block of ``document``, in order."""
    whole = document.read_text(encoding="utf-8")
    return [Block(m[1], m[2], whole.count("\n", 0, m.start(2)) + 1) for m in _FENCE.finditer(whole)]


def run_python(document: Path) -> Iterator[tuple[Block, str, str | None]]:
    """Run the Python blocks in order, in one namespace.

    Answers each with what it printed, and with the text block right behind it, which says what it prints.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    found = blocks(document)
    for block, after in zip(found, [*found, None][1:], strict=True):
        if block.language == "python":
            tree = ast.parse(block.text, filename=str(document))
            ast.increment_lineno(tree, block.line - 1)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(tree, str(document), "exec", dont_inherit=True), names)
            yield block, printed.getvalue(), after.text if after and after.language == "text" else None
