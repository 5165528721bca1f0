"""The watermarks of the splits of streaming DataFrames, and of each source the least of them.

Silence is measured in time by the clock of micro-batches, which is stored, so one that is repeated gives the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataflow.contracts.source import Json
from dataflow.untrusted import Time, parsed

__all__ = ["SplitRule", "SplitTimes"]


@dataclass(frozen=True)
class SplitRule:
    """How the splits of a link count.

    Attributes:
        awaited: the splits that hold time back until their first row.
        idle_after: microseconds without rows after which a split holds nothing back; None: never.
        close_after: microseconds without rows after which a split's watermark moves on with the clock; None: never.
    """

    awaited: Sequence[str] = ()
    idle_after: int | None = None
    close_after: int | None = None


_NO_RULE = SplitRule()


class SplitTimes:
    """The watermarks that a task knows, by link and split.

    Args:
        rules: by link, how its splits count.
        stored: what an earlier micro-batch has stored.

    >>> times = SplitTimes({3: SplitRule(["a", "b"], idle_after=100)}, {})
    >>> times.take(3, {"a": 10}, now=0), times.take(3, {"b": 7, "c": 9}, now=50), times.take(3, {"b": 8}, now=60)
    (None, 7, 8)
    >>> later = SplitTimes({3: SplitRule(["a", "b"], idle_after=100)}, times.stored()["split_times"])
    >>> later.take(3, {"b": 12}, now=120), later.take(3, {"b": 13}, now=150)  # a, and then c, is idle
    (9, 13)
    >>> later.take(3, {"b": 11}, now=160)  # a watermark never goes back
    13
    """

    def __init__(self, rules: Mapping[int, SplitRule], stored: Any) -> None:
        self._rules = rules
        known = parsed(dict[str, dict[str, tuple[Time | None, Time]]], stored, "the watermarks of splits")
        # by link and split: its watermark, and when its last row came
        self._splits = {int(link): dict(splits) for link, splits in known.items()}

    @property
    def links(self) -> list[int]:
        """The links with splits."""
        return sorted({*self._splits, *self._rules})

    def take(self, link: int, times: Mapping[str, int], now: int) -> int | None:
        """Take the watermarks of splits that had rows in a micro-batch.

        Args:
            link: the link that they came over.
            times: by split; none if the source had no rows.
            now: the time of the micro-batch, in microseconds.

        Returns: the watermark of the source; None: a split is awaited, or all are silent.
        """
        rule, own = self._rules.get(link, _NO_RULE), self._splits.setdefault(link, {})
        for split in rule.awaited:
            own.setdefault(split, (None, now))
        for split, time in times.items():
            before = own.get(split, (None, now))[0]
            own[split] = (time if before is None else max(time, before), now)
        live = [pair for pair in own.values() if not _is_over(rule.idle_after, now - pair[1])]
        if live:
            merged = [_moved_on(rule, time, seen, now) for time, seen in live]
            return None if None in merged else min(time for time in merged if time is not None)
        closed = [_moved_on(rule, time, seen, now) for time, seen in own.values()]
        known = [time for time in closed if time is not None]
        return max(known) if known and rule.close_after is not None else None

    def awaited(self, now: int) -> list[str]:
        """Return the splits without any row yet for which time waits."""
        return [
            split
            for link, own in self._splits.items()
            for split, (time, seen) in own.items()
            if time is None and not _is_over(self._rules.get(link, _NO_RULE).idle_after, now - seen)
        ]

    def is_silent(self, link: int, now: int) -> bool:
        """Return whether no split of a link has had rows for so long that the source holds nothing back."""
        rule, own = self._rules.get(link, _NO_RULE), self._splits.get(link, {})
        return bool(own) and all(_is_over(rule.idle_after, now - seen) for _, seen in own.values())

    def stored(self) -> dict[str, Json]:
        """Return the entry of the task's state; none without splits."""
        entries = {str(link): {split: list(pair) for split, pair in own.items()} for link, own in self._splits.items()}
        return {"split_times": entries} if entries else {}


def _is_over(limit: int | None, quiet: int) -> bool:
    return limit is not None and quiet >= limit


def _moved_on(rule: SplitRule, time: int | None, seen: int, now: int) -> int | None:
    """Return the watermark of a split, which moves on with the clock if it is closed."""
    return time + now - seen if time is not None and _is_over(rule.close_after, now - seen) else time
