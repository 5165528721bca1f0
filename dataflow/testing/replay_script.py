"""The notation of scripts for ``replay``, and its parser: one token for each event, in order of arrival.

========  ============================================================
``a:x``   a row of value ``x`` arrives on channel ``a``
``a|n``   the barrier of checkpoint ``n``
``a^n``   a barrier that was already converted to an unaligned one
``a!n``   a cancel of checkpoint ``n``
``a$``    the end of the channel
``+t``    ``t`` milliseconds pass
``[ ]``   the operator is busy: arrivals queue, nothing is polled before ``]``
========  ============================================================

A value consists of letters, digits, ``_``, ``.`` and ``-``, so a missing blank is detected. Numbers have at most 18
digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from dataflow.protocol.events import Barrier, Cancel, Data, Element, EndOfInput

__all__ = ["Arrive", "Busy", "Marks", "Pass", "Ready", "Step", "parse"]


@dataclass(frozen=True, slots=True)
class Arrive:
    """``element`` arrives on channel number ``channel``."""

    token: str
    channel: int
    element: Element


@dataclass(frozen=True, slots=True)
class Pass:
    """``+t``: time passes."""

    microseconds: int


@dataclass(frozen=True, slots=True)
class Busy:
    """``[``: the operator is busy, so nothing is polled."""


@dataclass(frozen=True, slots=True)
class Ready:
    """``]``: the operator is ready again, and polls everything that is not blocked."""


Step = Arrive | Pass | Busy | Ready

_VALUE = re.compile(r"[\w.-]+")
_DIGITS, _SHOWN = 18, 40


class Marks(Enum):
    """The meaning of ``a|n`` and ``a^n`` in a checkpoint mode. ``a^n`` is an unaligned barrier where it is legal."""

    IN_ORDER = "a|n keeps its place, a^n is illegal"
    EITHER = "a|n keeps its place"
    UNALIGNED = "a|n is unaligned"


def parse(script: str, channels: str, triggered_at: dict[int, int], marks: Marks = Marks.IN_ORDER) -> list[Step]:
    """Return the steps of ``script``.

    Args:
        script: tokens separated by blanks.
        channels: the channels, one letter each.
        triggered_at: for each checkpoint, its trigger time in microseconds. The default is 0.
        marks: the meaning of barriers.

    Raises: ValueError if the script is malformed, with the token and its position.

    >>> parse("a|1 +2", "a", {})[1]
    Pass(microseconds=2000)
    """
    return list(_steps(script, channels, triggered_at, marks))


def _steps(script: str, channels: str, triggered_at: dict[int, int], marks: Marks) -> Iterator[Step]:
    ended: set[str] = set()
    busy_since: str | None = None
    for number, match in enumerate(re.finditer(r"\S+", script), start=1):
        token = match.group()
        shown = token if len(token) <= _SHOWN else f"{token[:_SHOWN]}..."
        where = f"token {number}, {shown!r} (character {match.start()})"
        if token == "[":
            if busy_since is not None:
                raise ValueError(f"{where}: the operator is busy already, since {busy_since}; brackets do not nest")
            busy_since = where
            yield Busy()
        elif token == "]":
            if busy_since is None:
                raise ValueError(f"{where}: there is no '[' before it")
            busy_since = None
            yield Ready()
        elif token[0] == "+":
            yield Pass(_number(token[1:], "milliseconds", where) * 1_000)
        else:
            name = token[0]
            if name not in channels:
                raise ValueError(f"{where}: expected '[', ']', '+t' or a channel, one of {channels!r}, found {name!r}")
            if name in ended:
                raise ValueError(f"{where}: channel {name!r} has ended, nothing may follow")
            element = _element(token[1:], where, triggered_at, marks)
            if isinstance(element, EndOfInput):
                ended.add(name)
            yield Arrive(token, channels.index(name), element)
    if busy_since is not None:
        raise ValueError(f"{busy_since}: expected a ']' before the end of the script")


def _element(text: str, where: str, triggered_at: dict[int, int], marks: Marks) -> Element:
    mark, rest = text[:1], text[1:]
    match mark:
        case ":":
            if not rest:
                raise ValueError(f"{where}: expected the row's value after ':'")
            if not _VALUE.fullmatch(rest):
                raise ValueError(f"{where}: expected a value of letters, digits, '_', '.' or '-'; is a blank missing?")
            return Data((rest,))
        case "^" if marks is Marks.IN_ORDER:
            raise ValueError(f"{where}: barriers arrive unaligned in the modes that keep channel state only; use '|'")
        case "|" | "^":
            checkpoint = _number(rest, "a checkpoint id", where)
            unaligned = mark == "^" or marks is Marks.UNALIGNED
            return Barrier(checkpoint, triggered_at=triggered_at.get(checkpoint, 0), unaligned=unaligned)
        case "!":
            return Cancel(_number(rest, "a checkpoint id", where))
        case "$" if not rest:
            return EndOfInput()
        case _:
            raise ValueError(f"{where}: expected ':row', '|n', '^n', '!n' or '$' after the channel, found {text!r}")


def _number(text: str, what: str, where: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{where}: expected {what} as digits, found {text!r}")
    if len(text) > _DIGITS:
        raise ValueError(f"{where}: expected {what} of at most {_DIGITS} digits, found {len(text)}")
    return int(text)
