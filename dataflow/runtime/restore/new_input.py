"""Find input that came after a job started, and warn of it: the input of a job is fixed when it starts."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from os.path import abspath
from typing import TYPE_CHECKING, Any

from dataflow.errors import NewInputWarning, user_frame
from dataflow.planning.specs import Read
from dataflow.runtime.restore.find_checkpoint import RestoredCheckpoint
from dataflow.runtime.restore.listed_splits import listed_splits

if TYPE_CHECKING:
    from dataflow.planning.physical_plan import Plan

__all__ = ["new_input", "with_new_input"]

log = logging.getLogger("dataflow.restore")


def with_new_input(restored: RestoredCheckpoint, plan: Plan) -> RestoredCheckpoint:
    """Return ``restored`` with the new splits in its report; warn of them, source by source."""
    ids: dict[str, set[str]] = {}
    for vertex in plan.vertices.values():
        if isinstance(vertex.head.spec, Read) and vertex.head.spec.source.bounded:
            entries: list[Any] = [restored.states[task].inlet.get("splits") for task in vertex.tasks]
            if None not in entries:  # else the source itself is new
                ids[vertex.head.name] = {split["id"] for splits in entries for split in splits}
    splits = new_input(plan, ids, f"the job that checkpoint {restored.report.checkpoint} belongs to")
    return replace(restored, report=replace(restored.report, not_read=splits)) if splits else restored


def new_input(plan: Plan, known: Mapping[str, Collection[str]], job: str) -> tuple[str, ...]:
    """Return the splits, as "source/split", that sources list now and ``job`` lacks; warn of them, source by source.

    The input of a job is fixed when it starts; input that came later needs another job. The id of a split begins with
    the path of its file, and the same path may be written in another way now. ``known`` has the job's splits by source.
    """
    splits: list[str] = []
    for vertex in plan.vertices.values():
        if not isinstance(vertex.head.spec, Read) or vertex.head.name not in known:
            continue
        name = vertex.head.name
        before = {*known[name], *map(abspath, known[name])}
        listed = [split.id for split in listed_splits(vertex.head.spec.source, name)]
        new = [split for split in listed if split not in before and abspath(split) not in before]
        splits += [f"{name}/{split}" for split in new]
        if new:
            message = (
                f"{len(new)} new splits of source {name!r} (first: {new[0]!r}) are not part of {job} and are not read; "
                "run them as another job, with another checkpoint directory"
            )
            log.warning("%s", message)
            warnings.warn(message, NewInputWarning, stacklevel=user_frame())
    return tuple(splits)
