"""``dt.localize`` on the local engine: what a zone's clock shows, as the instants at which it shows that."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_numbers, to_scalar

__all__ = ["CHOICES", "localize", "naming_localize"]

CHOICES: Final = ("raise", "earlier", "later", "null")
"""What to do with a reading that the clock shows twice, or skips."""
_ARROWS: Final = {"raise": "raise", "earlier": "earliest", "later": "latest", "null": "raise"}

_ARROWS_ADVICE: Final = re.compile(r"If these timestamps are in local time.*assume_timezone\.?", re.DOTALL)


def naming_localize(reason: str) -> str:
    """Return an error message of Arrow with ``dt.localize`` in place of a function that only Arrow has.

    >>> naming_localize("expected a zone offset. If these timestamps are in local time, call assume_timezone.")
    'expected a zone offset. Read local times as timestamps without a zone, and give them one with .dt.localize(zone)'
    """
    advice = "Read local times as timestamps without a zone, and give them one with .dt.localize(zone)"
    return _ARROWS_ADVICE.sub(advice, reason)


def localize(readings: pa.Array, zone: str, ambiguous: str, missing: str) -> pa.Array:
    """Return the instant at which the clock of ``zone`` shows each reading; null for null.

    Args:
        readings: timestamps without a zone.
        zone: a time zone that exists.
        ambiguous: one of ``CHOICES``, for a reading that the clock shows twice: the earlier or the later time.
        missing: one of ``CHOICES``, for a reading in a gap: the last instant before it, or the first one after it.

    Raises: ArrowInvalid for a reading without a choice; OverflowError for an instant beyond the times of the type.

    >>> import datetime as dt
    >>> twice = pa.array([dt.datetime(2024, 10, 27, 2, 30)], pa.timestamp("s"))
    >>> print(localize(twice, "Europe/Berlin", "later", "raise")[0])
    2024-10-27 02:30:00+01:00
    """
    try:
        instants = pc.assume_timezone(readings, zone, ambiguous=_ARROWS[ambiguous], nonexistent=_ARROWS[missing])
    except pa.ArrowInvalid:
        instants = _chosen(readings, zone, ambiguous, missing)
    _check_range(readings, instants)
    return instants


def _chosen(readings: pa.Array, zone: str, ambiguous: str, missing: str) -> pa.Array:
    first, last = (
        pc.assume_timezone(readings, zone, ambiguous=which, nonexistent=which) for which in ("earliest", "latest")
    )
    is_shown = pc.equal(pc.local_timestamp(last), readings)
    is_twice = pc.and_(is_shown, pc.not_equal(first, last))
    choices = {"earlier": first, "later": last, "null": to_scalar(None, first.type)}
    for case, rows, choice in (("ambiguous", is_twice, ambiguous), ("missing", pc.invert(is_shown), missing)):
        if choice == "raise":
            _refuse(case, zone, *(column.filter(rows) for column in (readings, first, last)))
    shown = pc.if_else(is_twice, choices.get(ambiguous, first), first)
    return pc.if_else(is_shown, shown, choices.get(missing, first))


def _refuse(case: str, zone: str, *columns: pa.Array) -> None:
    """Raise ArrowInvalid if ``columns``, readings and the times before and after each, are not empty."""
    if not len(columns[0]):
        return
    reading, earlier, later = (column.slice(0, 1).cast(pa.string())[0] for column in columns)
    if case == "ambiguous":
        raise pa.ArrowInvalid(f"the clock of {zone} shows {reading} twice: at {earlier} and at {later}")
    raise pa.ArrowInvalid(f"the clock of {zone} never shows {reading}: it was set forward at {later}")


def _check_range(readings: pa.Array, instants: pa.Array) -> None:
    """Raise OverflowError for an instant that wrapped, because it is beyond the times of its type."""
    shown, at = (to_numbers(column.cast(pa.int64()).fill_null(to_scalar(0))) for column in (readings, instants))
    if ((shown > at) != (shown - at > 0)).any():
        raise OverflowError(f"an instant is beyond the times of {instants.type}; filter such rows out")
