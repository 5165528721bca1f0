"""Events that the user of a run must see: any thread adds them; the thread that waits for the job warns."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from dataflow.errors import BarrierflowWarning, CleanupFailedWarning, closing_raised, is_cleanup_failure

__all__ = ["Notices", "Packed"]

log = logging.getLogger("dataflow.job")

_KEPT = 5

Packed = tuple[str, int, Sequence[str]]
"""The events of one category, as JSON can hold them: its full name, how many there were, and the first texts."""


class Notices:
    """The events of one run, by category of warning.

    Guarantees: one warning per category, however many events there were; the first few distinct texts are kept, and all
    events are counted.

    >>> from dataflow.errors import CleanupFailedWarning
    >>> notices = Notices()
    >>> for n in range(7):
    ...     notices.add(CleanupFailedWarning, f"cannot delete {n}")
    >>> print(*notices.warnings())
    7 times: cannot delete 0; cannot delete 1; cannot delete 2; cannot delete 3; cannot delete 4; ...
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all
        self._texts: dict[type[BarrierflowWarning], list[str]] = {}
        self._counts: dict[type[BarrierflowWarning], int] = {}
        self._now: dict[tuple[str, type[BarrierflowWarning]], BarrierflowWarning] = {}
        self._not_given: list[BarrierflowWarning] = []

    def add(self, category: type[BarrierflowWarning], text: str) -> None:
        """Record an event and log it. Any thread may call this."""
        log.warning("%s", text)
        self._record(category, 1, [text])

    def cleanup(self, errors: Sequence[tuple[str, BaseException]]) -> None:
        """Record the errors of closing, each with what was closed. Raises: one that is no warning, such as Ctrl-C."""
        for where, error in errors:
            self.add(CleanupFailedWarning, closing_raised(where, error))
        for _, error in errors:
            if not is_cleanup_failure(error):
                raise error

    def add_now(self, where: str, category: type[BarrierflowWarning], text: str) -> None:
        """Record an event that the user must see while the job runs, and log it. It replaces an earlier one of
        ``where``.
        """
        log.warning("%s", text)
        warning = category(text)
        with self._lock:
            earlier = self._now.get((where, category))
            self._now[where, category] = warning
            self._not_given = [*(other for other in self._not_given if other is not earlier), warning]

    def take_now(self) -> Sequence[BarrierflowWarning]:
        """Return the warnings to give while the job runs, each once. Those with ``given`` were given."""
        if not self._not_given:  # read without the lock, because threads that wait ask often
            return ()
        with self._lock:
            taken, self._not_given = self._not_given, []
        return taken

    @contextmanager
    def as_notes(self) -> Iterator[None]:
        """Add the warnings as notes to an error that ends the block, because without a job nothing else issues them."""
        try:
            yield
        except BaseException as error:
            present = getattr(error, "__notes__", ())
            for note in [f"{type(warning).__name__}: {warning}" for warning in self.warnings()]:
                if note not in present:
                    error.add_note(note)
            raise

    def packed(self) -> list[Packed]:
        """Return all events in the form that ``include`` in another process takes."""
        with self._lock:
            return [(_full_name(kind), self._counts[kind], list(texts)) for kind, texts in self._texts.items()]

    def include(self, packed: Iterable[Packed]) -> None:
        """Record the events that another process packed. The text names a category that this process does not know."""
        categories = {_full_name(kind): kind for kind in _categories(BarrierflowWarning)}
        for name, count, texts in packed:
            texts = texts if name in categories else [f"{name}: {text}" for text in texts]
            for text in texts:
                log.warning("%s", text)
            self._record(categories.get(name, BarrierflowWarning), count, texts)

    def _record(self, category: type[BarrierflowWarning], count: int, texts: Iterable[str]) -> None:
        with self._lock:
            distinct = self._texts.setdefault(category, [])
            self._counts[category] = self._counts.get(category, 0) + count
            for text in texts:
                if text not in distinct and len(distinct) <= _KEPT:  # one more than is shown: there were more
                    distinct.append(text)

    def warnings(self) -> list[BarrierflowWarning]:
        """Return a warning for each category, in the order of the first event, after those of ``add_now``."""
        with self._lock:
            categories = [category(_text(texts, self._counts[category])) for category, texts in self._texts.items()]
            return [*self._now.values(), *categories]


def _categories(root: type[BarrierflowWarning]) -> Iterator[type[BarrierflowWarning]]:
    yield root
    for category in root.__subclasses__():
        yield from _categories(category)


def _full_name(category: type[BarrierflowWarning]) -> str:
    return f"{category.__module__}.{category.__qualname__}"


def _text(texts: list[str], count: int) -> str:
    rest = ["..."] if len(texts) > _KEPT else []
    return ("" if count == 1 else f"{count:,} times: ") + "; ".join([*texts[:_KEPT], *rest])
