"""Events that the user of a run must see: any thread adds them, the thread that waits for the job warns of them."""

from __future__ import annotations

import logging
import threading

from dataflow.errors import BarrierflowWarning

__all__ = ["Notices"]

log = logging.getLogger("dataflow.job")

_KEPT = 5


class Notices:
    """The events of one run, by category of warning.

    Guarantees: one warning per category, however many events there were; the first few are kept, all are counted.

    >>> from dataflow.errors import CleanupFailedWarning
    >>> notices = Notices()
    >>> for n in range(7):
    ...     notices.add(CleanupFailedWarning, f"cannot delete {n}")
    >>> print(*notices.warnings())
    7 times: cannot delete 0; cannot delete 1; cannot delete 2; cannot delete 3; cannot delete 4; ...
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards both
        self._texts: dict[type[BarrierflowWarning], list[str]] = {}
        self._counts: dict[type[BarrierflowWarning], int] = {}

    def add(self, category: type[BarrierflowWarning], text: str) -> None:
        """Note an event, and log it. From any thread."""
        log.warning("%s", text)
        with self._lock:
            texts = self._texts.setdefault(category, [])
            self._counts[category] = self._counts.get(category, 0) + 1
            if len(texts) < _KEPT:
                texts.append(text)

    def warnings(self) -> list[BarrierflowWarning]:
        """Return a warning for each category, in the order of the first event."""
        with self._lock:
            return [category(_text(texts, self._counts[category])) for category, texts in self._texts.items()]


def _text(texts: list[str], count: int) -> str:
    rest = ["..."] if count > len(texts) else []
    return ("" if count == 1 else f"{count:,} times: ") + "; ".join([*texts, *rest])
