"""The changes of the clocks of all time zones, from the database that Python's ``zoneinfo`` reads."""

from __future__ import annotations

import struct
import zoneinfo
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

__all__ = ["Change", "changes", "distinct_zones", "kinds_of_changes"]

_DAY = 86_400
_LISTED = 2_114_380_800
"""2037-01-01: Arrow reads later changes in another way."""
_NANOSECONDS = 8_000_000_000
"""Seconds that fit into 64 bits of nanoseconds."""


class Change(NamedTuple):
    """At ``at``, in seconds since 1970, the clock moves from ``before`` to ``after``, in seconds ahead of UTC."""

    at: int
    before: int
    after: int


@cache
def changes(zone: str) -> tuple[Change, ...]:
    """Return the changes of a zone's clock that are listed one by one; rules for the time after them are left out."""
    return _parsed(_stored(zone))


@cache
def kinds_of_changes(zone: str) -> list[Change]:
    """Return the last of the changes that are alike: from and to the same offsets, at the same time of the day."""
    listed = [change for change in changes(zone) if -_NANOSECONDS < change.at < _LISTED]
    return list({(before, after, at % _DAY): Change(at, before, after) for at, before, after in listed}.values())


@cache
def distinct_zones() -> list[str]:
    """Return the names of zones whose clocks were changed, one for all that have the same changes."""
    by_content = {_stored(zone): zone for zone in sorted(zoneinfo.available_timezones(), reverse=True)}
    return sorted(zone for zone in by_content.values() if changes(zone))


@cache
def _stored(zone: str) -> bytes:
    (path, *_) = (path for folder in zoneinfo.TZPATH if (path := Path(folder, zone)).is_file())
    return path.read_bytes()


def _parsed(stored: bytes) -> tuple[Change, ...]:
    """Return the changes in a file of RFC 8536, whose second part has times of 64 bits."""
    utc_flags, standard_flags, leaps, times, types, characters = struct.unpack_from(">6l", stored, 20)
    start = 44 + times * 5 + types * 6 + characters + leaps * 8 + standard_flags + utc_flags
    _, _, _, times, types, _ = struct.unpack_from(">6l", stored, start + 20)
    at = np.frombuffer(stored, ">i8", times, start + 44)
    kinds = np.frombuffer(stored, "u1", times, start + 44 + 8 * times)
    offsets = [struct.unpack_from(">l", stored, start + 44 + 9 * times + 6 * kind)[0] for kind in range(types)]
    ahead = [offsets[0], *(offsets[kind] for kind in kinds)]
    return tuple(
        Change(int(moment), before, after)
        for moment, before, after in zip(at, ahead[:-1], ahead[1:], strict=True)
        if before != after
    )
