"""Finds input that came after a job began, and warns of it: a job's input is settled when it begins."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from os.path import abspath
from typing import TYPE_CHECKING, Any

from dataflow.contracts.source import Source
from dataflow.errors import InputMissingWarning, NewInputWarning, user_frame
from dataflow.planning.specs import Read
from dataflow.runtime.restore.find_checkpoint import RestoredCheckpoint

if TYPE_CHECKING:
    from dataflow.planning.physical_plan import Plan

__all__ = ["new_input", "with_new_input"]

log = logging.getLogger("dataflow.restore")


def with_new_input(restored: RestoredCheckpoint, plan: Plan) -> RestoredCheckpoint:
    """``restored``, its report completed by the splits that are new; warns of them, source by source."""
    known: dict[str, set[str]] = {}
    for vertex in plan.vertices.values():
        if isinstance(vertex.head.spec, Read):
            entries: list[Any] = [restored.states[task].inlet["splits"] for task in vertex.tasks]
            known[vertex.head.name] = {split["id"] for splits in entries for split in splits}
    found = new_input(plan, known, f"the job that checkpoint {restored.report.checkpoint} belongs to")
    return replace(restored, report=replace(restored.report, not_read=found)) if found else restored


def new_input(plan: Plan, known: Mapping[str, Collection[str]], job: str) -> tuple[str, ...]:
    """The splits, as "source/split", that sources list now and ``job`` does not know; warns of them, source by source.

    A job's input is settled when it begins. What came later is for a job of its own, and must not go unnoticed. The id
    of a split begins with the path of its file, and the same path may be written in another way now.
    """
    found: list[str] = []
    for vertex in plan.vertices.values():
        if not isinstance(vertex.head.spec, Read):
            continue
        name = vertex.head.name
        before = {*known[name], *map(abspath, known[name])}
        listed = _listed(vertex.head.spec.source, name)
        new = [split for split in listed if split not in before and abspath(split) not in before]
        found += [f"{name}/{split}" for split in new]
        if new:
            message = (
                f"{len(new)} new splits of source {name!r} (first: {new[0]!r}) are not part of {job} and are not read; "
                "run them as a job of their own, with another checkpoint directory"
            )
            log.warning("%s", message)
            warnings.warn(message, NewInputWarning, stacklevel=user_frame())
    return tuple(found)


def _listed(source: Source, name: str) -> list[str]:
    """The ids of the splits there are now; none where the source cannot say, for the restore does not need them."""
    try:
        return [split.id for split in source.splits()]
    except Exception as error:
        message = f"source {name!r} cannot list its splits, so input that came since goes unnoticed: {error}"
        log.warning("%s", message)
        warnings.warn(message, InputMissingWarning, stacklevel=user_frame())
        return []
