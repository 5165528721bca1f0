"""A sentence whose words may be strong, so that text, HTML and SVG can show it, and the words for figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Sentence", "Strong", "Word", "counted", "joined", "percent", "size_text"]


@dataclass(frozen=True, slots=True)
class Strong:
    """Words in bold: a name or a figure. The text is as recorded: escape it where it is shown."""

    text: str


Word = str | Strong


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a ``topic``, with the ``figures`` that it was made from, in microseconds, rows, bytes or percent.

    >>> Sentence("blocked", (Strong("a -> b"), " was blocked."), {"blocked": 5}).text
    'a -> b was blocked.'
    """

    topic: str
    words: tuple[Word, ...]
    figures: Mapping[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The sentence without emphasis."""
        return "".join([word.text if isinstance(word, Strong) else word for word in self.words])

    def __str__(self) -> str:
        return self.text


def counted(number: int, what: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "row"), counted(1203, "row")
    ('1 row', '1,203 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def percent(share: float) -> int:
    """Return a share as a whole percentage, never above 100."""
    return max(0, min(100, round(100 * share)))


def size_text(size: int) -> str:
    """Return a number of bytes as rounded text for people.

    >>> size_text(1), size_text(16_200), size_text(999_950), size_text(2_500_000), size_text(1_234_567_890_123)
    ('1 byte', '16.2 kB', '1.0 MB', '2.5 MB', '1,234.6 GB')
    """
    if size < 1_000:
        return counted(size, "byte")
    for limit, unit, name in ((999_950, 10**3, "kB"), (999_950_000, 10**6, "MB")):
        if size < limit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 10**9:,.1f} GB"


def joined(names: Sequence[str], limit: int = 3, what: str = "") -> tuple[Word, ...]:
    """Return names in a row, at most ``limit`` of them, and how many more there are.

    >>> "".join(word if isinstance(word, str) else word.text for word in joined(["a", "b", "c", "d"], 2, "task"))
    'a, b and 2 more tasks'
    """
    more = len(names) - limit
    shown: list[Word] = [Strong(name) for name in names[:limit]]
    if more > 0:
        shown.append(f"{more} more {what}{'' if more == 1 else 's'}" if what else f"{more} more")
    return tuple(_separated(shown))


def _separated(words: Sequence[Word]) -> Iterable[Word]:
    for at, word in enumerate(words):
        if at:
            yield " and " if at == len(words) - 1 else ", "
        yield word
