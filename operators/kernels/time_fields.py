"""Times in formats of users: the fields of a text are read one by one, and must be those of the time that they make.

``strptime`` of the C library returns fields, of which Arrow makes a time without a check: 30 February becomes 1 March,
and what no field says becomes 1900, or midnight. Here a text fits a format only if every field that was read has, in
the resulting time, the value that was read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RI32, RU8, WI64
from operators.kernels.time_instructions import (
    BLANKS,
    DAY,
    FIELDS,
    FRACTION,
    HOUR,
    HOUR12,
    LITERAL,
    MINUTE,
    MONDAYS,
    MONTH,
    NAME,
    NANOS,
    OFFSET,
    PM,
    SECOND,
    SHORT_YEAR,
    SUNDAYS,
    WEEKDAY,
    YEAR,
    YEARDAY,
    ZONE,
)

__all__ = ["parse_times"]

PROGRAM = types.Array(types.int64, 2, "C", readonly=True)
NAMES = types.Array(types.uint8, 2, "C", readonly=True)
UNREAD = -(1 << 40)
NONE = -1
DAY_SECONDS = 86_400
TAB, SPACE, ZERO, NINE = 9, 32, 48, 57
NANOSECONDS = 1_000_000_000


@kernel(types.boolean(types.int64, types.int64))
def agrees(field: Any, value: Any) -> Any:
    """Return whether a field was not read, or has this value."""
    return field in (UNREAD, value)


@kernel(types.UniTuple(types.int64, 2)(RU8, types.int64, types.int64, types.int64))
def digits(text: Any, at: Any, end: Any, most: Any) -> Any:
    """Return the number in the next digits, at most ``most`` of them, and the position after it."""
    value = 0
    last = min(end, at + most)
    while at < last and ZERO <= text[at] <= NINE:
        value = 10 * value + (text[at] - ZERO)
        at += 1
    return value, at


@kernel(types.UniTuple(types.int64, 2)(RU8, types.int64, types.int64))
def offset(text: Any, at: Any, end: Any) -> Any:
    """Return an offset from UTC in seconds and the position after it, or NONE: Z, +hh, +hh:mm, +hhmm, with seconds."""
    if at < end and text[at] == 90:
        return 0, at + 1
    if at >= end or (text[at] != 43 and text[at] != 45):
        return 0, NONE
    sign = 44 - np.int64(text[at])
    hours, after = digits(text, at + 1, end, 2)
    if after != at + 3 or hours > 23:
        return 0, NONE
    seconds = 3600 * hours
    colon = after < end and text[after] == 58
    for unit in (60, 1):
        begin = after + 1 if colon else after
        if begin >= end or (colon and text[after] != 58) or not ZERO <= text[begin] <= NINE:
            break
        value, after = digits(text, begin, end, 2)
        if after != begin + 2 or value > 59:
            return 0, NONE
        seconds += unit * value
    if after < end and ZERO <= text[after] <= NINE:
        return 0, NONE
    return sign * seconds, after


@kernel(types.UniTuple(types.int64, 2)(RU8, types.int64, types.int64, NAMES, types.int64, types.int64))
def name(text: Any, at: Any, end: Any, names: Any, first: Any, after: Any) -> Any:
    """Return the number of the name that the text has next, in any case of letters, and the position after it, or NONE.

    A row of ``names`` is the length of a name and its small letters. Of two names that fit, the first one counts.
    """
    for row in range(first, after):
        size = np.int64(names[row, 0])
        if at + size > end:
            continue
        same = True
        for i in range(size):
            if (text[at + i] | 0x20) != names[row, 1 + i]:
                same = False
                break
        if same:
            return row - first, at + size
    return 0, NONE


@kernel(types.int64(types.int64, types.int64, types.int64))
def days_of_date(year: Any, month: Any, day: Any) -> Any:
    """Return the days since 1970-01-01 (Howard Hinnant: "chrono-Compatible Low-Level Date Algorithms")."""
    year += 4_800 - (month <= 2)  # not negative, so that shifts divide
    century = year // 100
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return 365 * year + (year >> 2) - century + (century >> 2) + day_of_year - 2_472_632


@kernel(types.int64(types.int64, types.int64))
def month_length(year: Any, month: Any) -> Any:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 + (month + (month >> 3) & 1)


@kernel(types.UniTuple(types.int64, 2)(*[types.int64] * 7))
def date(year: Any, month: Any, day: Any, yearday: Any, weekday: Any, sundays: Any, mondays: Any) -> Any:
    """Return the days since 1970-01-01 and 1, or 0 and 0 if the fields are not those of one date."""
    if yearday == UNREAD and sundays == UNREAD and mondays == UNREAD:
        month = 1 if month == UNREAD else month
        day = 1 if day == UNREAD else day
        days = days_of_date(year, month, day)
        return days, int(day <= month_length(year, month) and agrees(weekday, (days + 3) % 7 + 1))
    first = days_of_date(year, 1, 1)
    weekday_first = (first + 3) % 7  # 0 is Monday
    if yearday != UNREAD:
        days = first + yearday - 1
    elif day != UNREAD:
        days = days_of_date(year, month, day)
    elif sundays != UNREAD:
        days = first + 7 * (sundays - 1) + (-(weekday_first + 1)) % 7 + weekday % 7
    else:
        days = first + 7 * (mondays - 1) + (-weekday_first) % 7 + weekday - 1
    if not first <= days < first + 337 + month_length(year, 2):
        return 0, 0
    in_month = 12
    while days_of_date(year, in_month, 1) > days:
        in_month -= 1
    fits = agrees(month, in_month) and agrees(day, days - days_of_date(year, in_month, 1) + 1)
    in_week = (days + 3) % 7
    fits = fits and agrees(weekday, in_week + 1)
    fits = fits and agrees(sundays, (days - first + 7 - (in_week + 1) % 7) // 7)
    fits = fits and agrees(mondays, (days - first + 7 - in_week) // 7)
    return days, int(fits)


@kernel(types.int64(types.int64, types.int64, types.int64))
def hour(hour24: Any, hour12: Any, afternoon: Any) -> Any:
    """Return the hour, or NONE if its fields contradict each other."""
    value = hour24
    if value == UNREAD:
        value = 0 if hour12 == UNREAD else hour12 % 12 + 12 * afternoon
    if not agrees(hour12, (value + 11) % 12 + 1) or not agrees(afternoon, int(value >= 12)):
        return NONE
    return value


@kernel(types.UniTuple(types.int64, 2)(types.int64, types.int64, types.int64))
def in_units(seconds: Any, nanos: Any, per_second: Any) -> Any:
    """Return a time in units and 1, or 0 and 0 if the unit does not hold it; ``per_second`` is 0 for days."""
    if per_second == 0:
        days = seconds // DAY_SECONDS
        return days, int(nanos == 0 and days * DAY_SECONDS == seconds)
    units = 0
    if nanos:
        unit = NANOSECONDS // per_second
        units = nanos // unit
        if units * unit != nanos:
            return 0, 0
    if per_second == NANOSECONDS:  # int64 has those from 1677 to 2262
        least, most = -9_223_372_037, 9_223_372_036
        if seconds < least or seconds > most:
            return 0, 0
        if (seconds == least and units < 145_224_192) or (seconds == most and units > 854_775_807):
            return 0, 0
    return seconds * per_second + units, 1


@kernel(types.int64(RU8, RI32, types.uint8[::1], PROGRAM, RU8, NAMES, types.int64, WI64))
def parse_times(
    text: Any, ends: Any, unread: Any, program: Any, literals: Any, names: Any, per_second: Any, times: Any
) -> Any:
    """Parse the texts that are still ``unread`` by one format; return how many stay so.

    As in ``strptime``, spaces may precede a number and an offset, and white space in a format is any number of spaces.
    White space around a text is what Arrow takes it for in ISO 8601: ignored for days, and an error for times. But a
    number at the beginning may be padded with spaces to its full width.

    The loop over instructions is in this function because a call with arrays costs more than an instruction.

    Args:
        text: the bytes of all texts.
        ends: where each text begins in it, and where the last one ends.
        unread: for each text 1 if it is to be parsed; set to 0 if it fits the format.
        program: the instructions of the format.
        literals: the bytes of its literals.
        names: for each name its length and its bytes.
        per_second: units of a second; 0 for days.
        times: set to the time of each text that fits.
    """
    fields = np.empty(FIELDS, np.int64)
    left = 0
    for row in range(unread.size):
        if not unread[row]:
            continue
        left += 1
        at, end = int(ends[row]), int(ends[row + 1])
        while per_second == 0 and at < end and (text[at] == SPACE or text[at] == TAB):
            at += 1
        while per_second == 0 and at < end and (text[end - 1] == SPACE or text[end - 1] == TAB):
            end -= 1
        start = at
        fields[:] = UNREAD
        step = 0
        while step < program.shape[0] and at >= 0:
            what = program[step, 0]
            if what == LITERAL:
                for i in range(program[step, 2], program[step, 3]):
                    if at >= end or text[at] != literals[i]:
                        at = NONE
                        break
                    at += 1
                step += 1
                continue
            if what == BLANKS:
                while at < end and (text[at] == SPACE or 9 <= text[at] <= 13):
                    at += 1
                step += 1
                continue
            begin = at
            while at < end and text[at] == SPACE and what != NAME and what != FRACTION:
                at += 1
            if what == NAME:
                value, at = name(text, at, end, names, program[step, 2], program[step, 3])
                value = value % program[step, 5] + program[step, 4]
            elif what == OFFSET:
                value, at = offset(text, at, end)
            else:
                first = at
                last = min(end, at + program[step, 2])
                value = 0
                while at < last and ZERO <= text[at] <= NINE:
                    value = 10 * value + text[at] - ZERO
                    at += 1
                more = program[step, 4] and at < end and ZERO <= text[at] <= NINE
                width = at - (first if program[step, 1] == YEAR else begin)  # years are not padded with spaces
                if at == first or width < program[step, 3] or more:
                    break
                if begin == start and first > begin and at - begin > program[step, 2]:
                    break
                if not program[step, 5] <= value <= program[step, 6]:
                    break
                if what == FRACTION:
                    for _ in range(9 - (at - first)):
                        value *= 10
                elif what == SHORT_YEAR:
                    value += 1900 if value >= 69 else 2000
            field = program[step, 1]
            if field == WEEKDAY and value == 0:
                value = 7
            if not agrees(fields[field], value):
                break
            fields[field] = value
            step += 1
        if step < program.shape[0] or at != end:
            continue
        weeks = fields[SUNDAYS], fields[MONDAYS]
        days, fits = date(fields[YEAR], fields[MONTH], fields[DAY], fields[YEARDAY], fields[WEEKDAY], *weeks)
        seconds = hour(fields[HOUR], fields[HOUR12], fields[PM])
        if not fits or seconds == NONE:
            continue
        for field in (MINUTE, SECOND):
            seconds = 60 * seconds + (0 if fields[field] == UNREAD else fields[field])
        seconds += DAY_SECONDS * days - (0 if fields[ZONE] == UNREAD else fields[ZONE])
        value, fits = in_units(seconds, 0 if fields[NANOS] == UNREAD else fields[NANOS], per_second)
        if fits:
            times[row] = value
            unread[row] = 0
            left -= 1
    return left
