"""``timestamp_parsers=`` of ``read_csv``: formats of ``strptime`` as programs for ``operators.kernels.time_fields``.

A format is refused if its fields are not those of one time: a day without a month, an hour of 12 without AM or PM. The
codes are those that every engine and C library knows, with the names of the locale "C", which are English.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from dataflow.arrow_values import to_array, to_numbers
from dataflow.errors import ConfigurationError
from dataflow.expressions.signatures import NANOSECONDS
from operators.kernels import time_instructions as of

__all__ = ["KERNELS", "check_formats", "has_formats", "inferred_time_type", "parse_by_formats", "parse_times"]

KERNELS: Final = ("operators.kernels.time_fields",)

_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_NAMES: Final = (*_DAYS, *[day[:3] for day in _DAYS], *_MONTHS, *[month[:3] for month in _MONTHS], "am", "pm")
_OF_DAYS: Final = (of.NAME, of.WEEKDAY, 0, 14, 1, 7)
_OF_MONTHS: Final = (of.NAME, of.MONTH, 14, 38, 1, 12)
_NUMBERS: Final = {
    "m": (of.MONTH, 2, 1, 12),
    "d": (of.DAY, 2, 1, 31),
    "e": (of.DAY, 2, 1, 31),
    "j": (of.YEARDAY, 3, 1, 366),
    "u": (of.WEEKDAY, 1, 1, 7),
    "w": (of.WEEKDAY, 1, 0, 6),
    "U": (of.SUNDAYS, 2, 0, 53),
    "W": (of.MONDAYS, 2, 0, 53),
    "H": (of.HOUR, 2, 0, 23),
    "k": (of.HOUR, 2, 0, 23),
    "I": (of.HOUR12, 2, 1, 12),
    "l": (of.HOUR12, 2, 1, 12),
    "M": (of.MINUTE, 2, 0, 59),
    "S": (of.SECOND, 2, 0, 59),
}
"""Codes of numbers: the field, the most digits, and the least and the greatest value."""
_LONG: Final = {
    "F": "%Y-%m-%d",
    "D": "%m/%d/%y",
    "x": "%m/%d/%y",
    "T": "%H:%M:%S",
    "X": "%H:%M:%S",
    "R": "%H:%M",
    "r": "%I:%M:%S %p",
    "c": "%a %b %e %H:%M:%S %Y",
}
_OTHERS: Final = {
    "a": _OF_DAYS,
    "A": _OF_DAYS,
    "b": _OF_MONTHS,
    "B": _OF_MONTHS,
    "h": _OF_MONTHS,
    "p": (of.NAME, of.PM, 38, 40, 0, 2),
    "z": (of.OFFSET, of.ZONE),
    "n": (of.BLANKS,),
    "t": (of.BLANKS,),
}
_ALL: Final = " ".join(f"%{code}" for code in ("Y", "y", *_NUMBERS, "f", *_OTHERS, *_LONG, "%"))
_WEEKS: Final = "numbers weeks of another year than %Y; write dates with %Y and %m and %d, or with %Y and %j"
_REFUSED: Final = {
    "Z": "is a name that several zones have; write an offset such as +01:00 and read it with %z, or put the name into "
    "the format as plain text if it is the same in every row",
    "G": _WEEKS,
    "g": _WEEKS,
    "V": _WEEKS,
    "s": "counts seconds; read the column as int64 and convert it with from_epoch()",
    "C": "is a century; use %Y for all four digits of a year",
    "E": "depends on the locale; use the code without E",
    "O": "depends on the locale; use the code without O",
    "P": "is only for writing; use %p, which reads any case",
    "L": "is not a code of strptime; use %f for the fraction of a second",
    "N": "is not a code of strptime; use %f for the fraction of a second",
}
_FLAGS: Final = "-_0^#"
"""Flags of the C library, between % and a code, which change nothing in reading."""
_NUMERIC: Final = (of.NUMBER, of.SHORT_YEAR, of.FRACTION)


@dataclass(frozen=True, slots=True)
class _Program:
    """A format, compiled; ``zoned``: its texts have an offset."""

    steps: npt.NDArray[np.int64]
    literals: npt.NDArray[np.uint8]
    zoned: bool


def has_formats(type_: pa.DataType) -> bool:
    """Return whether values of ``type_`` may be written in formats of users."""
    return bool(types.is_timestamp(type_) or types.is_date(type_))


def check_formats(formats: Sequence[str]) -> None:
    """Raises: ConfigurationError, naming the code, for a format that cannot be read rightly."""
    for text in formats:
        _compiled(text)


def parse_times(formats: Sequence[str], texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return times or dates in the first format that each text fits, or else in ISO 8601.

    Args:
        texts: bytes.
        type_: a type for which ``has_formats`` is true.

    Raises: ArrowInvalid for a text that fits none.
    """
    times, unread = parse_by_formats(formats, texts, type_)
    if not unread.any():
        return times
    others = texts.filter(to_array(unread)).view(pa.string()).cast(type_)
    if len(others) == len(texts):
        return others
    values = to_numbers(_stored(times).fill_null(0)).copy()
    values[unread] = to_numbers(_stored(others))
    return _as_times(values, type_, to_numbers(texts.is_null()))


def parse_by_formats(
    formats: Sequence[str], texts: pa.Array, type_: pa.DataType
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return times or dates, null if a text fits no format, and which texts do not.

    >>> times, unread = parse_by_formats(["%d.%m.%Y"], pa.array([b"1.3.2024", b"30.02.2024"]), pa.date32())
    >>> times.to_pylist(), unread.tolist()
    ([datetime.date(2024, 3, 1), None], [False, True])
    """
    from operators.kernels import time_fields

    per_second = NANOSECONDS["s"] // NANOSECONDS[type_.unit] if types.is_timestamp(type_) else 0
    zoned = types.is_timestamp(type_) and type_.tz is not None
    offsets, text = [b"" if part is None else part for part in texts.buffers()[1:]]
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(text, np.uint8)
    is_null = to_numbers(texts.is_null())
    unread = (~is_null).view(np.uint8)
    values = np.zeros(len(texts), np.int64)
    for program in map(_compiled, formats):
        if program.zoned == zoned:
            rows = (data, ends, unread)
            if not time_fields.parse_times(*rows, program.steps, program.literals, _name_rows(), per_second, values):
                break
    missing = unread.view(np.bool_)
    return _as_times(values * 86_400_000 if types.is_date64(type_) else values, type_, missing | is_null), missing


def inferred_time_type(formats: Sequence[str], texts: pa.Array) -> pa.DataType | None:
    """Return the type of a column of times in ``formats`` or ISO 8601; None if a text fits none of them."""
    if not len(texts):
        return None
    for unit in ("s", "ns"):
        for zone in (None, "UTC"):
            type_ = pa.timestamp(unit, zone)
            try:
                parse_times(formats, texts, type_)
            except pa.ArrowInvalid:
                continue
            return type_
    return None


def _stored(times: pa.Array) -> pa.Array:
    return times.view(pa.int32() if types.is_date32(times.type) else pa.int64())


def _as_times(values: npt.NDArray[np.int64], type_: pa.DataType, is_null: npt.NDArray[np.bool_]) -> pa.Array:
    stored = values.astype(np.int32) if types.is_date32(type_) else values
    return to_array(stored, mask=is_null).view(type_)


@cache
def _name_rows() -> npt.NDArray[np.uint8]:
    rows = np.zeros((len(_NAMES), 1 + max(map(len, _NAMES))), np.uint8)
    for row, name in zip(rows, _NAMES, strict=True):
        row[: len(name) + 1] = [len(name), *name.encode()]
    return rows


@cache
def _compiled(text: str) -> _Program:
    if not isinstance(text, str) or not text:
        raise ConfigurationError(f"read_csv: timestamp_parsers must be formats of strptime, got {text!r}")
    literals = bytearray()
    steps: list[list[int]] = []
    for part, is_code in _parts(text, text):
        if not is_code:
            literals += part.encode()
            steps.append([of.LITERAL, 0, len(literals) - len(part.encode()), len(literals)])
        elif part == "Y":
            steps.append([of.NUMBER, of.YEAR, 4, 4, 0, 0, 9999])
        elif part == "y":
            steps.append([of.SHORT_YEAR, of.YEAR, 2, 2, 0, 0, 99])
        elif part == "f":
            steps.append([of.FRACTION, of.NANOS, 9, 1, 0, 0, 999_999_999])
        elif part in _NUMBERS:
            field, most, low, high = _NUMBERS[part]
            steps.append([of.NUMBER, field, most, 1, 0, low, high])
        else:
            steps.append([*_OTHERS[part]])
    _check_fields(text, {step[1] for step in steps if step[0] not in (of.LITERAL, of.BLANKS)})
    _separate(text, steps, bytes(literals))
    program = np.zeros((len(steps), of.WORDS), np.int64)
    for row, step in zip(program, steps, strict=True):
        row[: len(step)] = step
    zoned = any(step[0] == of.OFFSET for step in steps)
    return _Program(program, np.frombuffer(bytes(literals), np.uint8), zoned)


def _parts(format: str, text: str) -> list[tuple[str, bool]]:
    """Return the parts of ``text``, which is ``format`` or what one of its codes stands for.

    Each is the letter of a code and True, or plain text, of one character, and False.
    """
    parts: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        letter = text[at]
        at += 1
        if letter != "%":
            parts.append(("n", True) if letter in " \t\n\v\f\r" else (letter, False))
            continue
        begin = at
        while text[at : at + 1] and text[at] in _FLAGS:
            at += 1
        code = text[at : at + 1]
        at += 1
        if code == "%" and at == begin + 1:
            parts.append(("%", False))
        elif code in _LONG:
            parts += _parts(format, _LONG[code])
        elif code and (code in "Yyf" or code in _NUMBERS or code in _OTHERS):
            parts.append((code, True))
        else:
            _refuse(format, f"%{text[begin : at + (code in 'EO')]} {_REFUSED.get(code, f'is not one of {_ALL}')}")
    return parts


def _refuse(format: str, reason: str) -> None:
    raise ConfigurationError(f"read_csv: timestamp_parsers has {format!r}: {reason}")


def _check_fields(format: str, fields: set[int]) -> None:
    """Raises: ConfigurationError unless the fields make one time, without a part of it that nothing says."""
    week = bool(fields & {of.SUNDAYS, of.MONDAYS})
    whole = {of.MONTH, of.DAY} <= fields or of.YEARDAY in fields or (week and of.WEEKDAY in fields)
    rest = fields - {of.YEAR, of.MONTH}
    if of.YEAR not in fields:
        _refuse(format, "it has no year, and no year is made up: add %Y, or read the column as text")
    if not whole and rest:
        _refuse(format, "it has no whole date: add %m and %d, or %j")
    if of.HOUR12 in fields and not fields & {of.PM, of.HOUR}:
        _refuse(format, "%I is an hour of the morning or of the afternoon: add %p, or use %H")
    for lower, upper, code in (
        (of.NANOS, of.SECOND, "%S"),
        (of.SECOND, of.MINUTE, "%M"),
        (of.MINUTE, of.HOUR, "%H"),
        (of.PM, of.HOUR, "%I"),
    ):
        if lower in fields and upper not in fields and not (upper == of.HOUR and of.HOUR12 in fields):
            _refuse(format, f"it has a part of a time but no {code}: add it, or leave the part out")


def _separate(format: str, steps: list[list[int]], literals: bytes) -> None:
    """Set how numbers end: by another character than a digit, or, directly before more digits, by their full width."""
    for before, after in zip([None, *steps], [*steps, None], strict=True):
        close = [_is_digits(step, literals) for step in (before, after)]
        for step, other in ((before, close[1]), (after, close[0])):
            if step is None or step[0] not in _NUMERIC:
                continue
            if other and step[0] != of.FRACTION:
                step[3] = step[2]
        if before is None or before[0] not in _NUMERIC:
            continue
        if close[1] and before[0] == of.FRACTION:
            _refuse(format, "%f has 1 to 9 digits, so more digits must not follow: put a character between them")
        before[4] = int(not close[1])


def _is_digits(step: list[int] | None, literals: bytes) -> bool:
    """Return whether a step reads digits."""
    if step is None:
        return False
    return step[0] in _NUMERIC or (step[0] == of.LITERAL and literals[step[2] : step[3]].isdigit())
