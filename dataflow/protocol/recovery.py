"""The choice of the checkpoint to restore, and its comparison with the pipeline.

The rules: an exact request restores exactly that checkpoint, or raises. "auto" and "latest" take the newest valid
ordinary checkpoint, and list the skipped ones with reasons, so that a fallback is never silent. Savepoints belong to
the user: they are restored by id or path only. "auto" starts from the beginning only if there is nothing to lose: if
all checkpoints are damaged, it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, assert_never

from dataflow.errors import CheckpointDamaged, CheckpointsExist, ConfigurationError, NoCheckpoint, did_you_mean

__all__ = [
    "ByPath",
    "Fresh",
    "Found",
    "Policy",
    "Request",
    "Restore",
    "Skipped",
    "choose",
    "differences",
    "parse",
]


class Policy(Enum):
    """The values of ``restore=`` that do not name a checkpoint."""

    AUTO = "auto"
    NEVER = "never"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class ByPath:
    """Restore the checkpoint in this directory, wherever it is."""

    path: str


Request = Policy | int | ByPath


@dataclass(frozen=True, slots=True)
class Found:
    """The result of inspecting one checkpoint: whether it is a savepoint, and what is damaged, if anything."""

    savepoint: bool = False
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A checkpoint newer than the restored one, and why it was skipped."""

    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class Fresh:
    """Start from the beginning."""

    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True)
class Restore:
    """Restore ``checkpoint`` of this store; the ``skipped`` ones are newer."""

    checkpoint: int
    skipped: tuple[Skipped, ...] = ()


def parse(restore: object) -> Request:
    """Parse the user's ``restore=``: a policy's name, an id (also as digits), else a path.

    Raises: ConfigurationError for anything else.

    >>> parse("auto"), parse(7), parse("7"), parse("old/chk-00000007")
    (<Policy.AUTO: 'auto'>, 7, 7, ByPath(path='old/chk-00000007'))
    """
    if isinstance(restore, Policy | ByPath):
        return restore
    if isinstance(restore, int) and not isinstance(restore, bool) and restore > 0:
        return restore
    text = restore.__fspath__() if hasattr(restore, "__fspath__") else restore
    if not isinstance(text, str) or not text:
        raise ConfigurationError(
            f'restore= takes "auto", "never", "latest", a checkpoint id or a path, got {restore!r}'
        )
    if text in {policy.value for policy in Policy}:
        return Policy(text)
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else ByPath(text)


def choose(request: Policy | int, ids: Sequence[int], inspect: Callable[[int], Found], where: str) -> Fresh | Restore:
    """Choose among the existing ``ids``; ``inspect`` is called newest first and no more often than needed.

    Raises: NoCheckpoint, listing the existing ones; CheckpointDamaged; CheckpointsExist for "never" if there are any.

    >>> choose(Policy.LATEST, [1, 2, 3], lambda id: Found(damage="truncated" if id == 3 else None), "ckpt/")
    Restore(checkpoint=2, skipped=(Skipped(checkpoint=3, reason='truncated'),))
    """
    newest_first = sorted(ids, reverse=True)
    match request:
        case Policy.NEVER:
            if newest_first:
                raise CheckpointsExist(
                    f'{where} already holds checkpoints {newest_first[::-1]} and restore="never" was given: '
                    'use another directory, or restore="auto"'
                )
            return Fresh()
        case Policy.AUTO | Policy.LATEST:
            return _newest(request, newest_first, inspect, where)
        case int():
            if request not in newest_first:
                raise NoCheckpoint(f"there is no checkpoint {request} in {where}; there are {newest_first[::-1]}")
            damage = inspect(request).damage
            if damage is not None:
                raise CheckpointDamaged(f"the requested checkpoint {request} in {where} is damaged: {damage}")
            return Restore(request)
        case _:
            assert_never(request)


def _newest(policy: Policy, newest_first: list[int], inspect: Callable[[int], Found], where: str) -> Fresh | Restore:
    skipped: list[Skipped] = []
    damaged = False
    for checkpoint in newest_first:
        result = inspect(checkpoint)
        if result.damage is not None:
            damaged = True
            skipped.append(Skipped(checkpoint, result.damage))
        elif result.savepoint:
            skipped.append(Skipped(checkpoint, f"a savepoint is restored only when named: restore={checkpoint}"))
        else:
            return Restore(checkpoint, tuple(skipped))
    passed_over = "".join(f"\n  {skip.checkpoint}: {skip.reason}" for skip in skipped)
    if damaged:
        raise CheckpointDamaged(
            f"no checkpoint in {where} can be restored:{passed_over}\nuse another directory to start from the beginning"
        )
    if policy is Policy.LATEST:
        raise NoCheckpoint(f"there is no checkpoint in {where} to restore{passed_over and ':' + passed_over}")
    return Fresh(tuple(skipped))


_MISSING = object()


def differences(saved: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how the operators of a checkpoint differ from those of a pipeline, one sentence per difference.

    Operators are matched by ``name``. A field that is a mapping is compared entry by entry.

    >>> differences([{"name": "counts", "detail": {"keys": ["origin"]}}, {"name": "x"}],
    ...             [{"name": "counts", "detail": {"keys": ["origin", "carrier"]}}])
    ["operator 'counts': keys were [origin], now [origin, carrier]", "operator 'x' is gone"]
    """
    before = {str(node["name"]): node for node in saved}
    after = {str(node["name"]): node for node in now}
    added = [name for name in after if name not in before]
    sentences: list[str] = []
    for name, node in before.items():
        if name not in after:
            sentences.append(f"operator {name!r} is gone{did_you_mean(name, added)}")
            continue
        sentences += [f"operator {name!r}: {sentence}" for sentence in _changes(node, after[name])]
    return sentences + [f"operator {name!r} is new" for name in added]


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    changes: list[str] = []
    for field in [*before, *(field for field in after if field not in before)]:
        was, is_now = _as_json(before.get(field, _MISSING)), _as_json(after.get(field, _MISSING))
        if was == is_now:
            continue
        if isinstance(was, Mapping) and isinstance(is_now, Mapping):
            changes += _changes(was, is_now)
            continue
        if _are_columns(was) and _are_columns(is_now):
            changes.append(f"{field} {_columns(dict(was), dict(is_now))}")
            continue
        verb = "were" if field.endswith("s") else "was"
        changes.append(f"{field} {verb} {_show(was)}, now {_show(is_now)}")
    return changes


def _are_columns(value: Any) -> bool:
    """Return whether ``value`` is a schema: a list of [name, type], no name twice."""
    pairs = isinstance(value, list) and all(isinstance(item, list) and len(item) == 2 for item in value)
    return bool(pairs and value) and len({name for name, _ in value}) == len(value)


def _columns(was: Mapping[str, str], is_now: Mapping[str, str]) -> str:
    """Describe the changed columns by name, so that a reader need not compare two long schemas.

    >>> _columns({"a": "int64", "b": "int8", "c": "bool"}, {"a": "int64", "b": "int64", "d": "bool"})
    "lost 'c', has 'd' (bool) new, 'b' was int8, now int64"
    """
    changes = [f"lost {name!r}" for name in was if name not in is_now]
    changes += [f"has {name!r} ({type_}) new" for name, type_ in is_now.items() if name not in was]
    both = [name for name in was if name in is_now and was[name] != is_now[name]]
    changes += [f"{name!r} was {was[name]}, now {is_now[name]}" for name in both]
    return ", ".join(changes) or f"has its columns in another order: {_show(list(was))}, now {_show(list(is_now))}"


def _as_json(value: Any) -> Any:
    """Return ``value`` with tuples as lists, because the manifest stores them as lists."""
    return [_as_json(item) for item in value] if isinstance(value, list | tuple) else value


def _show(value: Any) -> str:
    if value is _MISSING:
        return "absent"
    if isinstance(value, list):
        return "[" + ", ".join(_show(item) for item in value) + "]"
    return str(value)
