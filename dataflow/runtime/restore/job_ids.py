"""The id of a job, which all checkpoints of a directory or store share, and the checkpoint that the job began from."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from random import Random

from dataflow.errors import CheckpointError
from dataflow.runtime.restore.find_checkpoint import RestoredCheckpoint
from dataflow.store.base import CheckpointStore
from dataflow.store.manifest import JobId, Parent

__all__ = ["MakeJobId", "job_of", "one_id", "random_id", "seeded_ids"]

MakeJobId = Callable[[Parent | None], JobId]
"""Returns the id of a new job, which begins from a checkpoint of another one, or from nothing."""


def random_id(parent: Parent | None) -> JobId:
    """Return an id that no other job has."""
    return uuid.uuid4().hex


def one_id(make: MakeJobId) -> MakeJobId:
    """Return a function that returns the first id that ``make`` gives: all attempts of a run are of one job.

    >>> make = one_id(random_id)
    >>> make(None) == make(None)
    True
    """
    ids: list[JobId] = []

    def only_id(parent: Parent | None) -> JobId:
        if not ids:
            ids.append(make(parent))
        return ids[0]

    return only_id


def seeded_ids(seed: int) -> MakeJobId:
    """Return a function whose ids depend on ``seed`` and the parent alone.

    >>> make = seeded_ids(7)
    >>> first = make(None)
    >>> make(None) == first, make(Parent(first, 3)) == first
    (True, False)
    """

    def seeded_id(parent: Parent | None) -> JobId:
        begun = "" if parent is None else f" from {parent.checkpoint} of {parent.job}"
        return uuid.UUID(int=Random(f"job of seed {seed}{begun}").getrandbits(128), version=4).hex

    return seeded_id


def job_of(
    restored: RestoredCheckpoint | None, store: CheckpointStore, make_id: MakeJobId
) -> tuple[JobId, Parent | None]:
    """Return the id of the job that writes to ``store``, and its parent.

    A job that continues a checkpoint of the store has its id. One that starts again beside checkpoints that are not
    restored, such as savepoints, has the id of the newest that can be read. Any other one is new.
    """
    if restored is not None and restored.is_elsewhere:
        parent = Parent(restored.manifest.job, restored.manifest.checkpoint)
        return make_id(parent), parent
    if restored is not None:
        return restored.manifest.job, restored.manifest.parent
    for checkpoint in reversed(store.checkpoints()):
        try:
            manifest = store.manifest(checkpoint)
        except CheckpointError:
            continue
        return manifest.job, manifest.parent
    return make_id(None), None
