"""Lines of styled words: how wide they are, where they are cut, and where a paragraph is broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dataflow.drawing.text_width import fitted, printable, text_width

__all__ = ["Word", "Words", "cut_words", "parts_of", "plain", "words_width", "wrapped"]


class Word(NamedTuple):
    """A part of a text with classes of its own: "strong", "soft", or the name of a cause."""

    text: str
    kind: str = ""


Words = str | Sequence[str | Word]
"""One line: a text, or texts and styled words that follow each other; spaces between them are the caller's."""


def plain(words: Words) -> str:
    """Return the words without their styles, as they are drawn."""
    return "".join([part.text for part in parts_of(words)])


def words_width(words: Words, size: float) -> float:
    """Return an upper bound of the width of words that follow each other, in pixels."""
    return text_width(plain(words), size)


def wrapped(words: Words, width: float, size: float) -> list[list[Word]]:
    """Return the words in lines of at most ``width`` pixels, broken at spaces. A longer word has a line of its own.

    >>> [plain(line) for line in wrapped(["blocked for ", Word("342 ms", "strong"), ", waits"], 100, 12)]
    ['blocked for', '342 ms, waits']
    """
    atoms: list[list[Word]] = [[]]  # words between spaces: each a list of styled pieces
    for part in parts_of(words):
        for position, piece in enumerate(part.text.split(" ")):
            if position:
                atoms.append([])
            if piece:
                atoms[-1].append(Word(piece, part.kind))
    lines: list[list[Word]] = []
    used = 0.0
    for atom in [atom for atom in atoms if atom]:
        breadth = sum([text_width(piece.text, size) for piece in atom])
        space = text_width(" ", size)
        if lines and used + space + breadth <= width:
            lines[-1] += [Word(" "), *atom]
            used += space + breadth
        else:
            lines.append(list(atom))
            used = breadth
    return [_joined(line) for line in lines]


def _joined(line: Sequence[Word]) -> list[Word]:
    """Return the pieces with neighbours of one style, and the spaces between them, as one word."""
    joined: list[Word] = []
    for position, piece in enumerate(line):
        follows = line[position + 1].kind if position + 1 < len(line) else ""
        kind = joined[-1].kind if piece.text == " " and joined and joined[-1].kind == follows else piece.kind
        if joined and joined[-1].kind == kind:
            joined[-1] = Word(joined[-1].text + piece.text, kind)
        else:
            joined.append(Word(piece.text, kind))
    return joined


def parts_of(words: Words) -> list[Word]:
    """Return the words as styled parts that can be written to XML."""
    several = [words] if isinstance(words, str) else words
    parts = [Word(part) if isinstance(part, str) else part for part in several]
    return [Word(printable(part.text), part.kind) for part in parts]


def cut_words(parts: Sequence[Word], width: float, size: float) -> list[Word]:
    """Return the beginning of the words that fits, with an ellipsis."""
    drawn = fitted("".join([part.text for part in parts]), width, size)
    cut: list[Word] = []
    for part in parts:
        taken, drawn = drawn[: len(part.text)], drawn[len(part.text) :]
        cut += [Word(taken, part.kind)] if taken else []
    if drawn and cut:
        cut[-1] = Word(cut[-1].text + drawn, cut[-1].kind)
    return cut
