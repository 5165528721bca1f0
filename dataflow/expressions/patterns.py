r"""Regular expressions that mean the same on every engine: the common part of RE2 (Arrow) and Java (Spark).

==========================  ==========================================================================================
characters                  themselves; ``\.`` and the like; ``\t \n \r \f \a \x41 \x{1F600}``
``.``                       any character but ``\n``; any at all if the pattern begins with ``(?s)``
``\d \w \s \D \W \S``       ASCII: ``[0-9]``, ``[0-9A-Za-z_]``, ``[\t\n\f\r ]``, and their opposites, not in ``[]``
``\p{L} \P{Lu}``            general categories L M N P S Z, with or without their second letter
``[a-z_] [^;]``             one character of a set; in it, ``[ ^ - \`` as characters need a backslash
``^ $ \A \z``               begin and end of the text, never of a line; ``\b`` an edge of a word of ``\w``
``| (...) (?:...)``         alternatives, the first that fits; groups, also ``(?P<name>...)``, whose name goes unused
``* + ? {2} {2,} {2,5}``    greedy, or lazy with a ``?`` after it; not for a part that can match the empty text
==========================  ==========================================================================================

All else is refused when the expression is built: look-around, back references, possessive quantifiers, other flags
(lower case first, or write ``[Bb]id``), and syntax that both accept but interpret differently.

>>> Pattern.of(r"^(\w+)-(?P<year>\d{4})$", "extract").re2(2)
'^(?:\\w+)-(?P<it>\\d{4})$'
>>> Pattern.of("(?<=a)b", "contains")
Traceback (most recent call last):
dataflow.errors.GraphError: contains: the pattern '(?<=a)b' has look-around at character 0: not every engine can ...
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from typing import Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array
from dataflow.errors import GraphError

__all__ = ["GROUP", "Pattern"]

GROUP: Final = "it"
"""The name of the one group that ``Pattern.re2`` keeps."""

_SPACE: Final = r"\t\n\f\r "
_WORD: Final = "[0-9A-Za-z_]"
_EDGE: Final = f"(?:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))"  # before 19, Java's own \b does not match its \w
_CATEGORY: Final = re.compile(r"\{(L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?)\}")
_HEX: Final = re.compile(r"x(?:[0-9A-Fa-f]{2}|\{[0-9A-Fa-f]{1,6}\})")
_COUNT: Final = re.compile(r"\{(\d+)(,?)(\d*)\}")
_NAMED: Final = re.compile(r"\(\?P?<\w+>")
_CONTROLS: Final = "tnrfa"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern of the dialect, in each engine's own syntax.

    ``pieces`` holds, for each part in turn, RE2's and Java's text, or the number of a capturing group that opens.
    """

    text: str
    pieces: tuple[tuple[str, str] | int, ...]
    dotall: bool
    nullable: bool

    @classmethod
    def of(cls, text: str, where: str) -> Pattern:
        """Parse ``text``. Raises: GraphError if it is outside the dialect, or not a pattern."""
        if not isinstance(text, str):
            raise TypeError(f"{where} takes a pattern as text, the same for every row, got {text!r}")
        reader = _Reader(text, where)
        nullable = reader.alternatives(depth=0)
        if reader.at < len(text):
            reader.refuse("an unmatched )", "write \\) for the character")
        pattern = cls(text, tuple(reader.pieces), reader.dotall, nullable)
        try:
            pc.match_substring_regex(to_array([""]), pattern.re2())
        except (pa.ArrowInvalid, UnicodeEncodeError) as error:
            reason = str(error).removeprefix("Invalid regular expression: ")
            raise GraphError(f"{where}: {text!r} is not a regular expression: {reason}") from None
        return pattern

    def re2(self, group: int | None = None) -> str:
        """Return the pattern for RE2; ``group`` gets the name ``GROUP``, the others do not capture."""
        body = "".join(self._opening(piece, group) if isinstance(piece, int) else piece[0] for piece in self.pieces)
        return ("(?s)" if self.dotall else "") + (f"(?P<{GROUP}>{body})" if group == 0 else body)

    def java(self) -> str:
        """Return the pattern for java.util.regex, its groups numbered as they are written."""
        flags = "(?ds)" if self.dotall else "(?d)"
        return flags + "".join("(" if isinstance(piece, int) else piece[1] for piece in self.pieces)

    @staticmethod
    def _opening(number: int, group: int | None) -> str:
        return f"(?P<{GROUP}>" if number == group else "(?:"

    def group(self, number: int, where: str) -> None:
        """Raise GraphError if there is no group ``number``."""
        groups = sum(isinstance(piece, int) for piece in self.pieces)
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{where}: the group is a number, got {number!r}")
        if not 0 <= number <= groups:
            raise GraphError(
                f"{where}: {self.text!r} has groups 0 (all of it) to {groups}, and no group {number}; put parentheses "
                "around the part to extract"
            )

    def consuming(self, where: str) -> None:
        """Raise GraphError if the pattern can match the empty text: engines differ in how often it does."""
        if self.nullable:
            raise GraphError(f"{where}: {self.text!r} can match the empty text; make it match at least one character")


class _Reader:
    """A recursive descent parser; each method returns whether the part it read can match the empty text."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        self.dotall = text.startswith("(?s)")
        self.at = 4 if self.dotall else 0
        self.groups = 0
        self.pieces: list[tuple[str, str] | int] = []

    def refuse(self, what: str, instead: str = "not every engine can do that, or engines differ") -> NoReturn:
        raise GraphError(f"{self.where}: the pattern {self.text!r} has {what} at character {self.at}: {instead}")

    def ahead(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def take(self, source: str, java: str | None = None) -> None:
        self.pieces.append((source, source if java is None else java))
        self.at += len(source)

    def alternatives(self, depth: int) -> bool:
        if depth > 100:
            self.refuse("more than 100 nested groups", "make it simpler")
        nullable = self.sequence(depth)
        while self.ahead("|"):
            self.take("|")
            nullable = self.sequence(depth) or nullable
        return nullable

    def sequence(self, depth: int) -> bool:
        nullable = True
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            optional, anchor = self.atom(depth)
            nullable = self.quantified(optional, anchor) and nullable
        return nullable

    def atom(self, depth: int) -> tuple[bool, bool]:
        """Return whether the atom can match the empty text, and whether it can match nothing else."""
        character = self.text[self.at]
        match character:
            case "(":
                return self.in_parentheses(depth), False
            case "[":
                self.character_class()
            case "\\":
                return (anchor := self.escape()), anchor
            case "^" | "$":
                self.take(character, "^" if character == "^" else r"\z")
                return True, True
            case "*" | "+" | "?":
                self.refuse(f"a {character} with nothing to repeat", f"write \\{character} for the character")
            case "{" | "}" | "]":
                self.refuse(f"a lone {character}", f"write \\{character} for the character")
            case ".":
                self.take(".")
            case _:
                self.take(character, _java(character))
        return False, False

    def in_parentheses(self, depth: int) -> bool:
        named = _NAMED.match(self.text, self.at)
        if self.ahead("(?:"):
            self.take("(?:")
        elif any(self.ahead(opening) for opening in ("(?=", "(?!", "(?<=", "(?<!")):
            self.refuse("look-around", "not every engine can do that; test twice and join with &")
        elif self.ahead("(?>"):
            self.refuse("an atomic group")
        elif self.ahead("(?") and not named:
            self.refuse("a flag", "only (?s) at the very start is known; for any case, .str.lower() first")
        else:
            self.groups += 1
            self.pieces.append(self.groups)
            self.at += len(named[0]) if named else 1
        nullable = self.alternatives(depth + 1)
        if not self.ahead(")"):
            self.refuse("no ) for a (", "close it, or write \\( for the character")
        self.take(")")
        return nullable

    def quantified(self, nullable: bool, anchor: bool) -> bool:  # noqa: FBT001 - properties of the atom, not modes
        count = _COUNT.match(self.text, self.at)
        if not (count or any(self.ahead(sign) for sign in "*+?")):
            return nullable
        if nullable:
            what = "an anchor" if anchor else "something that can match the empty text"
            self.refuse(f"a repetition of {what}", "engines differ in how often it matches; make it match a character")
        optional = (count is not None and int(count[1]) == 0) or self.ahead("*") or self.ahead("?")
        self.take(count[0] if count else self.text[self.at])
        if self.ahead("+"):
            self.refuse("a possessive quantifier", "not every engine can do that")
        if self.ahead("?"):
            self.take("?")
        if any(self.ahead(sign) for sign in "*+?{"):
            self.refuse("a repetition of a repetition", "put the inner one in (?:...)")
        return optional

    def escape(self) -> bool:
        """Read an escape outside of a set; return whether it is an anchor."""
        letter = self.text[self.at + 1 : self.at + 2]
        match letter:
            case "A" | "z":
                self.take("\\" + letter)
                return True
            case "b":
                self.take(r"\b", _EDGE)
                return True
            case "S":
                self.take(r"\S", f"[^{_SPACE}]")
            case "s":
                self.take(r"\s", f"[{_SPACE}]")
            case "D" | "W":
                self.take("\\" + letter)
            case _:
                self.common_escape(letter)
        return False

    def common_escape(self, letter: str) -> None:
        category = _CATEGORY.match(self.text, self.at + 2) if letter and letter in "pP" else None
        code = _HEX.match(self.text, self.at + 1)
        if category or code:
            self.take(self.text[self.at : (category or code).end()])  # type: ignore[union-attr]
        elif letter and letter in "dw" + _CONTROLS + string.punctuation.replace("_", ""):
            self.take("\\" + letter)
        elif letter and letter in "0123456789k":
            self.refuse("a back reference", "not every engine can do that")
        else:
            self.refuse(f"the escape \\{letter}", "it is unknown, or means different things on different engines")

    def character_class(self) -> None:
        self.take("[^" if self.ahead("[^") else "[")
        first = self.at
        while not self.ahead("]") or self.at == first:
            if self.at >= len(self.text):
                self.refuse("no ] for a [", "close it, or write \\[ for the character")
            if self.ahead("]"):
                self.refuse("a set that begins with ]", "write \\] for the character")
            if self.ahead("[:"):
                self.refuse("a POSIX class", r"write a range such as a-z, or a category such as \p{L}")
            if self.ahead("-") and self.at > first and not self.ahead("-]"):
                self.refuse("a - that makes no range", "write \\- for the character")
            single = self.member()
            if self.ahead("-") and not self.ahead("-]"):
                if not single:
                    self.refuse("a - after a class", "write \\- for the character")
                self.take("-")
                if self.at < len(self.text) and not self.member():
                    self.refuse("a range that ends in a class", "write \\- for the character")
        self.take("]")

    def member(self) -> bool:
        """Read one member of a set; return whether it is a single character, which can begin or end a range."""
        character = self.text[self.at]
        if character != "\\":
            self.take(character, _java(character))
            return True
        letter = self.text[self.at + 1 : self.at + 2]
        if letter and letter in "DWS":
            self.refuse(f"\\{letter} in a set", "write a set of the characters to exclude, [^...]")
        if letter == "s":
            self.take(r"\s", _SPACE)
        else:
            self.common_escape(letter)
        return letter not in {"s", "d", "w", "p", "P"}


def _java(character: str) -> str:
    return "\\" + character if character in string.punctuation and character != "_" else character
