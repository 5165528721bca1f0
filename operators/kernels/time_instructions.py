"""The instructions of ``operators.kernels.time_fields``; a separate module, because importing that one loads numba.

An instruction has ``WORDS`` words: what to read, the field to set, and arguments.
"""

from __future__ import annotations

__all__ = ["BLANKS", "FIELDS", "FRACTION", "LITERAL", "NAME", "NUMBER", "OFFSET", "SHORT_YEAR", "WORDS"]
__all__ += ["DAY", "HOUR", "HOUR12", "MINUTE", "MONTH", "NANOS", "PM", "SECOND", "WEEKDAY", "YEAR", "YEARDAY", "ZONE"]
__all__ += ["MONDAYS", "SUNDAYS"]

LITERAL, BLANKS, NUMBER, SHORT_YEAR, NAME, FRACTION, OFFSET = range(7)
"""Read text that must be there, white space, a number, two digits of a year, a name, digits of a second, an offset.

LITERAL has the first byte of its text and the byte after it. NAME has the row of its first name, the row after the last
one, the number of the first, and after how many names the numbers begin again. NUMBER, SHORT_YEAR and FRACTION have the
most digits, the least (spaces before them count), 1 if no digit may follow, the least value and the greatest.
"""

WORDS = 7

YEAR, MONTH, DAY, YEARDAY, WEEKDAY, SUNDAYS, MONDAYS, HOUR, HOUR12, PM, MINUTE, SECOND, NANOS, ZONE = range(14)
"""The fields of a time. WEEKDAY is 1 on Monday; SUNDAYS and MONDAYS number weeks that begin so; ZONE is in seconds."""

FIELDS = 14
