"""The watermarks of the splits of streaming DataFrames, and of each source the least of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dataflow.contracts.source import Json
from dataflow.untrusted import Time, parsed

__all__ = ["SplitTimes"]


class SplitTimes:
    """The watermarks that a task knows, by link and split.

    Args:
        awaited: by link, the splits that hold time back until their first row.
        stored: what an earlier micro-batch has stored.

    >>> times = SplitTimes({3: ["a", "b"]}, {})
    >>> times.take(3, {"a": 10}), times.take(3, {"b": 7, "c": 9}), times.take(3, {"a": 20, "b": 8})
    (None, 7, 8)
    >>> SplitTimes({}, times.stored()["split_times"]).take(3, {"b": 12})
    9
    """

    def __init__(self, awaited: Mapping[int, Sequence[str]], stored: Any) -> None:
        self._awaited = awaited
        known = parsed(dict[str, dict[str, Time]], stored, "the watermarks of splits")
        self._times = {int(link): dict(times) for link, times in known.items()}

    def take(self, link: int, times: Mapping[str, int]) -> int | None:
        """Take watermarks of splits; return the least of all of the link, None if one is awaited."""
        own = self._times.setdefault(link, {})
        for split, time in times.items():
            own[split] = max(time, own.get(split, time))
        return None if any(split not in own for split in self._awaited.get(link, ())) else min(own.values())

    def stored(self) -> dict[str, Json]:
        """Return the entry of the task's state; none without splits."""
        return {"split_times": {str(link): dict(own) for link, own in self._times.items()}} if self._times else {}
