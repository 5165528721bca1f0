"""``dt.strftime``: the codes of a format that mean the same on every engine, and the texts on the local engine.

Every code is a whole number with zeros in front, or a text that a number chooses, so a text is joined from parts of the
time. pyarrow's own ``strftime`` writes fractions with ``%S``, years before 1000 without zeros, and names in the
language of the process. Names here are those of the locale "C", which are English.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.arrow_values import to_array, to_scalar
from dataflow.errors import GraphError
from dataflow.expressions.signatures import NANOSECONDS

__all__ = ["BEYOND", "NAMES", "OFFSET", "WIDTHS", "Parts", "format_times", "parse_format"]

WIDTHS: Final = {
    "%Y": 4,
    "%y": 2,
    "%m": 2,
    "%d": 2,
    "%j": 3,
    "%H": 2,
    "%I": 2,
    "%M": 2,
    "%S": 2,
    "%f": 6,
    "%u": 1,
    "%w": 1,
    "%G": 4,
    "%V": 2,
    "%U": 2,
    "%W": 2,
}
"""The codes that stand for a number, with its digits."""

_DAYS: Final = ("", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    *("", "January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)

NAMES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "%a": ("%u", tuple([day[:3] for day in _DAYS])),
    "%A": ("%u", _DAYS),
    "%b": ("%m", tuple([month[:3] for month in _MONTHS])),
    "%B": ("%m", _MONTHS),
    "%p": ("%H", ("AM",) * 12 + ("PM",) * 12),
    "%e": ("%d", ("", *[f"{day:2d}" for day in range(1, 32)])),
}
"""The codes that stand for a text: the code of the number that chooses it, and the texts from number 0 on.

``%e``, which formats of users do not have, is the day of the month with a space in front.
"""

OFFSET: Final = "%z"
"""The code for the offset from UTC: a sign, hours, minutes, and seconds if there are some; empty without a zone."""

_SHORT: Final = {"%c": "%a %b %e %H:%M:%S %Y", "%x": "%m/%d/%y", "%X": "%H:%M:%S"}
"""The codes that stand for a format, that of the locale "C"."""

BEYOND: Final = "a year is before 1 or after 9999, which strftime has no text for; filter such rows out first"

_REFUSED: Final = {
    "%Z": "is a name that Spark and Python have from different lists; use %z, or write the zone as plain text",
    "%:": "is not one that every version of Python has; use %z",
}
_ALL: Final = (*WIDTHS, *[code for code in NAMES if code != "%e"], *_SHORT, OFFSET)
_FIRST_SECOND: Final = -62_135_596_800  # of year 1
_END: Final = 253_402_300_800  # the first second of year 10,000

Parts = tuple[tuple[str, bool], ...]
"""The parts of a format: a code of ``WIDTHS`` or ``NAMES`` or ``OFFSET`` and True, or plain text and False."""


def parse_format(text: str) -> Parts:
    """Return the parts of a format: each a code and True, or plain text and False.

    Raises: TypeError if it is no text; GraphError, naming the code, for one that is not the same on every engine.

    >>> parse_format("%H:%M")
    (('%H', True), (':', False), ('%M', True))
    """
    if not isinstance(text, str):
        raise TypeError(f"strftime takes a format, the same for every row, got {text!r}")
    return _parts(text, _ALL)


def _parts(text: str, codes: Collection[str]) -> Parts:
    parts: list[tuple[str, bool]] = []
    plain, at = "", 0
    while at < len(text):
        code = text[at : at + 2]
        if text[at] != "%" or code == "%%":
            plain += text[at]
        else:
            _check(code, codes)
            parts += [(plain, False)] if plain else []
            parts += _parts(_SHORT[code], (*WIDTHS, *NAMES)) if code in _SHORT else [(code, True)]
            plain = ""
        at += 2 if text[at] == "%" else 1
    return (*parts, (plain, False)) if plain else tuple(parts)


def _check(code: str, codes: Collection[str]) -> None:
    if code in codes:
        return
    reason = _REFUSED.get(code, f"is not one of {' '.join(codes)} %%")
    raise GraphError(f"strftime: {code!r} {reason}")


def format_times(times: pa.Array, parts: Parts) -> pa.Array:
    """Return ``times``, timestamps or dates, as text. Raises: OverflowError for a year outside 1 to 9999."""
    shown = _shown(times)
    limits = pc.min_max(shown.cast(pa.int64())).as_py()
    per_second = NANOSECONDS["s"] // NANOSECONDS[shown.type.unit]
    first, end = _FIRST_SECOND * per_second, _END * per_second
    if limits["min"] is not None and not first <= limits["min"] <= limits["max"] < end:
        raise OverflowError(BEYOND)
    if getattr(times.type, "tz", None) is None:
        parts = tuple([("", False) if part == OFFSET and is_code else (part, is_code) for part, is_code in parts])
    if not any([is_code for _, is_code in parts]):
        text = to_scalar("".join(part for part, _ in parts))
        return pc.if_else(pc.is_null(times), to_scalar(None, pa.string()), text)
    pieces = [_written(part, shown, times) if is_code else to_scalar(part) for part, is_code in parts]
    return pc.binary_join_element_wise(*pieces, to_scalar(""))


def _shown(times: pa.Array) -> pa.Array:
    """Return what the clock of the zone shows, as timestamps without a zone."""
    if types.is_date(times.type):
        return times.cast(pa.timestamp("s" if types.is_date32(times.type) else "ms"))
    return times if times.type.tz is None else pc.local_timestamp(times)


def _written(code: str, shown: pa.Array, times: pa.Array) -> pa.Array:
    """Return what a code stands for; ``shown`` is what the clock of the zone of ``times`` shows."""
    if code in WIDTHS:
        return _digits(_NUMBERS[code](shown), WIDTHS[code])
    if code in NAMES:
        number, texts = NAMES[code]
        return to_array(texts, pa.string()).take(_NUMBERS[number](shown))
    offsets = pc.subtract(shown.cast(pa.int64()), times.cast(pa.int64()))
    seconds = pc.divide(offsets, NANOSECONDS["s"] // NANOSECONDS[shown.type.unit])
    coded = seconds.dictionary_encode()
    written = [_offset(value) for value in coded.dictionary.to_pylist()]
    return to_array(written, pa.string()).take(coded.indices)


def _offset(seconds: int) -> str:
    """Return an offset from UTC as text.

    >>> _offset(19_800), _offset(-2_670)
    ('+0530', '-004430')
    """
    minutes, rest = divmod(abs(seconds), 60)
    return f"{'-' if seconds < 0 else '+'}{minutes // 60:02d}{minutes % 60:02d}{f'{rest:02d}' if rest else ''}"


def _digits(numbers: pa.Array, width: int) -> pa.Array:
    if width <= 4:
        return _padded(width).take(numbers)
    thousands, ones = (pc.divide(numbers, 1000), pc.subtract(numbers, pc.multiply(pc.divide(numbers, 1000), 1000)))
    return pc.binary_join_element_wise(_padded(3).take(thousands), _padded(3).take(ones), to_scalar(""))


@cache
def _padded(width: int) -> pa.Array:
    return to_array([f"{number:0{width}d}" for number in range(10**width)], pa.string())


def _week(times: pa.Array, first_day: int) -> Any:
    """Return the week of the year, whose first one begins with the first ``first_day`` (1: Monday, 7: Sunday)."""
    day = pc.day_of_week(times, count_from_zero=True, week_start=first_day)
    return pc.divide(pc.subtract(pc.add(pc.day_of_year(times), 6), day), 7)


def _modulo(numbers: pa.Array, divisor: int) -> Any:
    """Return the remainder of numbers that are not negative."""
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, divisor), divisor))


_NUMBERS: Final[dict[str, Callable[[pa.Array], pa.Array]]] = {
    "%Y": pc.year,
    "%y": lambda times: _modulo(pc.year(times), 100),
    "%m": pc.month,
    "%d": pc.day,
    "%j": pc.day_of_year,
    "%H": pc.hour,
    "%I": lambda times: pc.add(_modulo(pc.add(pc.hour(times), 11), 12), 1),
    "%M": pc.minute,
    "%S": pc.second,
    "%f": lambda times: pc.add(pc.multiply(pc.millisecond(times), 1000), pc.microsecond(times)),
    "%u": lambda times: pc.day_of_week(times, count_from_zero=False, week_start=1),
    "%w": lambda times: pc.day_of_week(times, count_from_zero=True, week_start=7),
    "%G": pc.iso_year,
    "%V": pc.iso_week,
    "%U": lambda times: _week(times, 7),
    "%W": lambda times: _week(times, 1),
}
assert set(_NUMBERS) == set(WIDTHS), "every code has a number"
