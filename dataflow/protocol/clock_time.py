"""Time by the clock: one time for everything in a job that goes by the wall clock. It never goes back or stands still.

A wall clock may step: a time server corrects it, a machine wakes up, a virtual machine moves. If rows were stamped with
it directly, an hour too many would hold all timers and times to live back for an hour once it is corrected. So time by
the clock runs with the monotonic clock, and only follows the wall clock.

Rules, for the *lead* of the wall clock, which is how far it is ahead:

- **near**, up to ``NEAR`` either way: time runs up to 10 % faster or slower, until the lead is zero.
- **ahead**, further ahead than that: time runs on as it is. Once the wall clock has been ahead for ``LASTS``, the least
  lead in that time is taken over in one step, because that much has lasted. What remains is a new lead.
- **behind**, further behind than that: time runs at half speed until the two meet, which needs no step.

A job that is restored begins at the greater of the stored time and the wall clock.

Theory: let ``m`` microseconds of the monotonic clock pass between two readings. Then time moves by at least m / 2, and
by at most 11 m / 10, apart from steps, which are forward. So no reading is below an earlier one, and readings differ if
some microseconds lie between them. A wall clock that runs with the monotonic one is met: in at most ten times the lead
if it is near, after ``LASTS`` and that if it is ahead, and in twice the lead if it is behind. A step of the wall clock
that is taken back before ``LASTS`` leaves no trace.

Assumes: readings are taken in order, and the monotonic and the wall clock of a reading were read together.
"""

from __future__ import annotations

__all__ = ["LASTS", "NEAR", "ClockTime"]

NEAR = 1_000_000
"""Microseconds up to which a lead is corrected by running faster or slower."""
LASTS = 10_000_000
"""Microseconds after which a greater lead is taken over."""

_PARTS = 20
"""Time is kept in twentieths of a microsecond. So all speeds are exact, however often the clock is read."""
_HALF, _TENTH = _PARTS // 2, _PARTS // 10


class ClockTime:
    """The state of time by the clock. All times are in microseconds; ``now`` is of the monotonic clock.

    >>> time = ClockTime(now=0, wall=5_000_000)
    >>> time.read(1_000_000, 6_000_000), time.read(2_000_000, 6_950_000), time.read(3_000_000, 99_000_000)
    (6000000, 6950000, 7950000)
    >>> time.read(13_000_000, 109_000_000), time.read(14_000_000, 18_000_000), time.read(15_000_000, 19_000_000)
    (109000000, 109500000, 110000000)
    """

    __slots__ = ("_ahead_since", "_is_behind", "_least", "_now", "_time", "first_step")

    def __init__(self, now: int, wall: int) -> None:
        #: Never reduced: the monotonic time of the last reading.
        self._now = now
        #: Never reduced, in parts: the time of the last reading.
        self._time = wall * _PARTS
        #: Since when the wall clock has been ahead, by the monotonic clock; None if and only if it was not, at last.
        self._ahead_since: int | None = None
        #: Of no meaning unless ``_ahead_since`` is set: the least lead since then, in parts, above ``NEAR``.
        self._least = 0
        #: True from the time at which the wall clock was behind until the two meet. Then ``_ahead_since`` is None.
        self._is_behind = False
        #: The first lead that was not near; negative: the wall clock was behind. 0: there was none. Set once.
        self.first_step = 0

    def raise_to(self, stored: int) -> None:
        """Begin at ``stored`` if that is later: the time of the checkpoint that is restored."""
        self._time = max(self._time, stored * _PARTS)

    def read(self, now: int, wall: int) -> int:
        """Return the time at ``now``, when the wall clock shows ``wall``."""
        passed = max(0, now - self._now)
        self._now += passed
        self._time += passed * _PARTS
        self._time += self._correction(passed, wall * _PARTS - self._time)
        return self._time // _PARTS

    def _correction(self, passed: int, lead: int) -> int:
        """Return by how much time differs from the monotonic clock after ``passed`` microseconds; both in parts."""
        if not self.first_step and abs(lead) > NEAR * _PARTS:
            self.first_step = lead // _PARTS
        if lead > NEAR * _PARTS:
            self._is_behind = False
            return self._taken_over(lead)
        self._ahead_since = None
        self._is_behind = lead < 0 and (self._is_behind or lead < -NEAR * _PARTS)
        if self._is_behind:
            return max(lead, -passed * _HALF)
        return min(max(lead, -passed * _TENTH), passed * _TENTH)

    def _taken_over(self, lead: int) -> int:
        """Return the step that is due if the wall clock is ahead."""
        if self._ahead_since is None:
            self._ahead_since, self._least = self._now, lead
        self._least = min(self._least, lead)
        if self._now - self._ahead_since < LASTS:
            return 0
        self._ahead_since = None
        return self._least

    def validate(self) -> None:
        """Assert the invariants that hold between two readings."""
        assert not (self._is_behind and self._ahead_since is not None), "the wall clock is both ahead and behind"
        if self._ahead_since is not None:
            assert self._least > NEAR * _PARTS, f"a lead of {self._least // _PARTS} us is to be taken over"
            assert self._now - self._ahead_since < LASTS, f"ahead since {self._ahead_since}, and it is {self._now}"
