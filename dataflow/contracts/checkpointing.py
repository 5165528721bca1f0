"""The settings of checkpoints: where they are stored, how often they are taken, and in which mode.

>>> Checkpointing("ckpt/", every="1s", mode="unaligned").mode.guarantee.value
'at least once'
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal

from dataflow.clock import Duration, microseconds
from dataflow.contracts.sink import Guarantee
from dataflow.contracts.source import InputIdentity
from dataflow.errors import ConfigurationError, check_count, did_you_mean
from dataflow.store.urls import local_path

if TYPE_CHECKING:
    from dataflow.store.base import CheckpointStore

__all__ = ["Checkpointing", "Mode", "input_identity", "mode_text"]


class Mode(Enum):
    """The behaviour of a task between the first and the last barrier of a checkpoint.

    ``ALIGNED``: a channel whose barrier has arrived is blocked until all barriers have; exactly once. Flink:
    EXACTLY_ONCE. ``UNALIGNED``: alignment is skipped and nothing is blocked; at least once, and the restore reports the
    duplicates.
    Flink: AT_LEAST_ONCE (not its "unaligned checkpoint").
    ``UNALIGNED_PERSISTED``: the barrier overtakes queued rows, which are stored as channel state; exactly once. Flink:
    unaligned checkpoint.
    ``ALIGNED_TIMEOUT``: aligned until a timeout after the trigger, then as ``UNALIGNED_PERSISTED``; exactly once.
    Flink: aligned checkpoint timeout.

    >>> print(Mode("aligned-timeout"))
    aligned-timeout (exactly once)
    """

    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    UNALIGNED_PERSISTED = "unaligned-persisted"
    ALIGNED_TIMEOUT = "aligned-timeout"

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the engine's state in this mode; sources and sinks may weaken it."""
        return Guarantee.AT_LEAST_ONCE if self is Mode.UNALIGNED else Guarantee.EXACTLY_ONCE

    def __str__(self) -> str:
        """Return the mode with its guarantee, which is always shown with it."""
        return f"{self.value} ({self.guarantee.value})"


def mode_text(mode: str, guarantee: str | None) -> str:
    """Return a mode with its guarantee, and with the guarantee from source to sink if that is weaker.

    If that one is not known, ``guarantee`` is None.

    >>> mode_text("aligned", "exactly once"), mode_text("aligned", "at least once")
    ('aligned (exactly once)', 'aligned (exactly once), end to end at least once')
    >>> mode_text("unaligned", None)
    'unaligned (at least once)'
    """
    known = Mode(mode) if mode in [each.value for each in Mode] else None
    if known is None:
        return mode if guarantee is None else f"{mode} ({guarantee})"
    if guarantee in (None, known.guarantee.value):
        return str(known)
    return f"{known}, end to end {guarantee}"


@dataclass(frozen=True, slots=True, init=False)
class Checkpointing:
    """The settings by which a job takes checkpoints.

    Durations are text such as ``"10s"``, or a ``timedelta``; the attributes of the same names hold microseconds.

    Args:
        location: a directory (created if missing; a path or a ``file:`` URL), or a ``CheckpointStore``.
        every: time between two triggers; None takes checkpoints on request only, and the last one at end of input.
        mode: ``"aligned"``, ``"unaligned"``, ``"unaligned-persisted"`` or ``"aligned-timeout"``, see `Mode`.
        alignment_timeout: with mode ``"aligned-timeout"`` only: how long after its trigger a checkpoint stays aligned;
            100 ms by default.
        min_pause: least time between the end of one checkpoint and the next periodic trigger.
        timeout: a checkpoint that takes longer expires: it is aborted and counts as a failure.
        max_concurrent: how many may be in progress at once. In the modes in which barriers overtake rows, a savepoint
            runs without others.
        tolerable_failures: how many consecutive failures the job survives; one more fails it. None: any number. The
            last checkpoint, at the end of the input, is tried six times regardless of this, and then fails the job.
            After a run that survived failures there is a warning (``CheckpointsFailedWarning``).
        keep: how many completed checkpoints stay in the store; older ones are deleted.
        input_identity: how a source recognises its files on a restore. ``"mtime"``: by size, content and time of
            modification; ``"content"``: by size and content alone, for files that were copied. Of the content, the
            first and last 64 KiB are compared. Files of up to 1 MiB are compared whole; then times do not matter.
        duplicates: ``"sample"`` stores a few of the rows that a restore from an unaligned checkpoint delivers twice,
            ``"rows"`` all of them. They are counted completely either way.
        max_restore_bytes: how many bytes of a checkpoint (manifest and parts) a restore reads; one that has more is
            refused with ConfigurationError. None: no bound. Set it where other users can write the checkpoints: the
            memory that a restore takes is proportional to their size. See ``docs/security.md``.

    Raises: ConfigurationError naming the setting.

    >>> settings = Checkpointing("ckpt/", every="30s", mode="aligned-timeout", keep=5)
    >>> settings.every, settings.alignment_timeout, settings.keep
    (30000000, 100000, 5)
    """

    location: str | os.PathLike[str] | CheckpointStore
    every: int | None
    mode: Mode
    alignment_timeout: int | None
    min_pause: int
    timeout: int
    max_concurrent: int
    tolerable_failures: int | None
    keep: int
    input_identity: InputIdentity
    duplicates: Literal["sample", "rows"]
    max_restore_bytes: int | None

    def __init__(
        self,
        location: str | os.PathLike[str] | CheckpointStore,
        *,
        every: Duration | None = None,
        mode: Mode | str = Mode.ALIGNED,
        alignment_timeout: Duration | None = None,
        min_pause: Duration = "0s",
        timeout: Duration = "10min",
        max_concurrent: int = 1,
        tolerable_failures: int | None = 10,
        keep: int = 3,
        input_identity: InputIdentity = "mtime",
        duplicates: Literal["sample", "rows"] = "sample",
        max_restore_bytes: int | None = None,
    ) -> None:
        interval = None if every is None else microseconds(every, "Checkpointing(every=)")
        if interval == 0:
            raise ConfigurationError(
                "Checkpointing(every=) must be above zero, got 0; None switches periodic checkpoints off"
            )
        if not (isinstance(location, str | os.PathLike) or hasattr(location, "highest_id")):
            raise ConfigurationError(
                f"Checkpointing(location) must be a directory or a CheckpointStore, got {location!r}; for a run "
                "without checkpoints pass checkpoint=None"
            )
        if isinstance(location, str | os.PathLike):
            location = _directory(location)
        check_count("Checkpointing(max_concurrent=)", max_concurrent)
        check_count("Checkpointing(keep=)", keep)
        if tolerable_failures is not None:
            check_count("Checkpointing(tolerable_failures=)", tolerable_failures, least=0)
        if max_restore_bytes is not None:
            check_count("Checkpointing(max_restore_bytes=)", max_restore_bytes)
        if duplicates not in ("sample", "rows"):
            raise ConfigurationError(f"Checkpointing(duplicates=) must be 'sample' or 'rows', got {duplicates!r}")
        if input_identity not in ("mtime", "content"):
            raise ConfigurationError(
                f"Checkpointing(input_identity=) must be 'mtime' or 'content', got {input_identity!r}"
            )
        put = object.__setattr__
        put(self, "location", location)
        put(self, "every", interval)
        put(self, "mode", _mode(mode))
        put(self, "alignment_timeout", _alignment_timeout(self.mode, alignment_timeout))
        put(self, "min_pause", microseconds(min_pause, "Checkpointing(min_pause=)"))
        put(self, "timeout", microseconds(timeout, "Checkpointing(timeout=)"))
        put(self, "max_concurrent", max_concurrent)
        put(self, "tolerable_failures", tolerable_failures)
        put(self, "keep", keep)
        put(self, "input_identity", input_identity)
        put(self, "duplicates", duplicates)
        put(self, "max_restore_bytes", max_restore_bytes)


def input_identity(checkpoint: Checkpointing | None) -> InputIdentity:
    """Return the rule by which the sources of a job recognise their input."""
    return "mtime" if checkpoint is None else checkpoint.input_identity


def _directory(location: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the local directory at ``location``, which may be a ``file:`` URL."""
    given = os.fspath(location)
    if not given:
        raise ConfigurationError("Checkpointing('') names no directory; write '.' for the current one")
    local = local_path(given)
    if local is None:
        raise ConfigurationError(
            f"Checkpointing({given!r}): object stores and other URLs are not supported, only directories: give the "
            "path of one that survives the machine, such as a mounted volume, or a CheckpointStore of your own"
        )
    return location if local == given else local


def _alignment_timeout(mode: Mode, timeout: Duration | None) -> int | None:
    """Return the timeout in microseconds, or None in the modes that have none."""
    if mode is Mode.ALIGNED_TIMEOUT:
        return microseconds("100ms" if timeout is None else timeout, "Checkpointing(alignment_timeout=)")
    if timeout is not None:
        raise ConfigurationError(
            f"Checkpointing(alignment_timeout=) needs mode='aligned-timeout', got mode={mode.value!r}; leave it out or "
            "change the mode"
        )
    return None


def _mode(mode: Mode | str) -> Mode:
    """Return the mode that a user named."""
    if isinstance(mode, Mode):
        return mode
    names = [m.value for m in Mode]
    if mode not in names:
        raise ConfigurationError(
            f"Checkpointing(mode=) must be one of {names}, got {mode!r}{did_you_mean(str(mode), names)}"
        )
    return Mode(mode)
