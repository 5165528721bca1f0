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
_FENCE = re.compile(r"^```([\w-]*|\{[\w-]+\}[^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ANY_FENCE = re.compile(r"^[ \t>]*(?:`{3,}|~{3,}|:{3,})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, and the line of the file it starts on.

    The language of a MyST directive is its name in braces, as in ``{toctree}``. A directive is not code.
    """

    language: str
    text: str
    line: int


def blocks(document: Path) -> list[Block]:
    """Return every fenced block of ``document``, in order.

    Raises: ValueError for a fence that is indented, not three backticks, or not closed, because its code would not run.
    """
    whole = document.read_text(encoding="utf-8")
    found = [
        Block(m[1].partition("}")[0] + "}" * m[1].startswith("{"), m[2], whole.count("\n", 0, m.start(2)) + 1)
        for m in _FENCE.finditer(whole)
    ]
    fences = len(_ANY_FENCE.findall(whole))
    if fences != 2 * len(found):
        raise ValueError(f"{document}: {fences} fences, but {len(found)} blocks; write ``` at the beginning of a line")
    return found


def run_python(document: Path) -> Iterator[tuple[Block, str, str | None]]:
    """Run the Python blocks in order, in one namespace.

    Yields each block, the text that it printed, and the text block directly after it, which has the expected output.
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
