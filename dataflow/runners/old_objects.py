"""Leave the objects that are older than a job out of garbage collection while it runs.

Libraries such as numba and pyarrow keep some hundred thousand objects for good. A full collection looks at all of them,
which holds up every thread, and so every row, for some 60 ms.
"""

from __future__ import annotations

import gc
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
    >>> with left_out():
    ...     gc.get_freeze_count() > 0
    True
    >>> gc.get_freeze_count()
    0
    """
    global _jobs, _ours
    with _lock:
        _jobs += 1
        if _jobs == 1 and not gc.get_freeze_count():
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
