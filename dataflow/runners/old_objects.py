"""Leave the objects that are older than a job out of garbage collection while it runs.

Libraries such as numba and pyarrow keep some hundred thousand objects for good. A full collection looks at all of them,
which holds up every thread, and so every row, for some 60 ms.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

__all__ = ["left_out"]

_lock = Lock()
_jobs = 0
"""Running jobs; the first one froze the objects, the last one unfreezes them."""
_ours = False
"""Whether a job froze the objects, and not the user."""


@contextmanager
def left_out() -> Iterator[None]:
    """Leave the objects of now out of garbage collection until the end. A user's own ``gc.freeze()`` is respected.

    >>> import gc
    >>> old = []
    >>> with left_out():
    ...     any(each is old for each in gc.get_objects())
    False
    >>> any(each is old for each in gc.get_objects())
    True
    """
    global _jobs, _ours
    with _lock:
        _jobs += 1
        if _jobs == 1 and not _frozen():
            _ours = True
            gc.freeze()
    try:
        yield
    finally:
        with _lock:
            _jobs -= 1
            if _ours and not _jobs:
                _ours = False
                gc.unfreeze()


def _frozen() -> bool:
    """Return whether ``gc.freeze()`` was called.

    The count alone does not say so: Python 3.12 puts its own immortal objects where the frozen ones are. The dictionary
    of modules is not immortal, and older than any call.
    """
    return gc.get_freeze_count() > 0 and not any([each is sys.modules for each in gc.get_objects()])
