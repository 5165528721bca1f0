"""Where a job on Spark lives, and which settings of checkpoints count there."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Final

from dataflow.contracts.checkpointing import Checkpointing, Mode
from dataflow.errors import IgnoredSettingWarning, UnsupportedOnRunner, user_frame
from dataflow.store.base import CheckpointStore

__all__ = ["location_of"]

_IGNORED: Final = ("every", "min_pause", "timeout", "max_concurrent", "tolerable_failures", "keep", "duplicates")


def location_of(checkpoint: Checkpointing | None) -> Path | None:
    """The directory of a job; None: a temporary one. Warns of settings that do not count.

    Raises: UnsupportedOnRunner for modes and locations that Spark does not have.
    """
    if checkpoint is None:
        return None
    if checkpoint.mode is not Mode.ALIGNED:
        raise UnsupportedOnRunner(
            f"checkpoint mode {checkpoint.mode.value!r}", "spark", "a micro-batch is a barrier that nothing overtakes",
            'use mode="aligned", or the local runner',
        )  # fmt: skip
    if isinstance(checkpoint.location, CheckpointStore):
        raise UnsupportedOnRunner(
            f"checkpoints in {checkpoint.location!r}", "spark", "Spark keeps its own, in a directory",
            "give Checkpointing(...) the path of a directory",
        )  # fmt: skip
    plain = Checkpointing(checkpoint.location)
    given = [f"{name}=" for name in _IGNORED if getattr(checkpoint, name) != getattr(plain, name)]
    if given:
        warnings.warn(
            f"on Spark every micro-batch is a checkpoint, exactly once: Checkpointing({', '.join(given)}) does not "
            "count; SparkRunner(rows_per_trigger=) says how long a micro-batch is",
            IgnoredSettingWarning,
            stacklevel=user_frame(),
        )
    return Path(checkpoint.location)
