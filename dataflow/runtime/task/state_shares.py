"""The shares that subtasks of an operator have of its state, and how several of them become the state of one subtask.

A checkpoint stores a rule beside each piece of state (`Rule`), so nothing here knows an operator. Rows of keys go by
key group. A log keeps its parts: the bases of all shares become one base, and the deltas of each share follow it,
because no two shares have a key in common. Each share is read with its own bound (``low``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from dataflow.contracts.operator import Rule, Snapshot
from dataflow.errors import CheckpointDamaged, CheckpointMismatch
from dataflow.untrusted import excerpt, parsed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NewSubtask", "Share", "agree", "differing_copies", "is_by_key", "merge_shares", "refuse_foreign_rows"]


@dataclass(frozen=True, slots=True)
class Share:
    """What one subtask, or one range of its key groups, had of an operator.

    Attributes:
        subtask: the number of the subtask that stored it.
        groups: the key groups whose rows count.
        snapshot: the state, with the parts of each log.
        reached: the last watermark that the operator was given, as far as is known; None: none.
        ended: all its input had ended, and ``finish`` had run.
        ended_ports: the ports of which ``ended`` was called.
        splits: the splits of its source that were not read to their end.
    """

    subtask: int
    groups: range
    snapshot: Snapshot
    reached: int | None = None
    ended: bool = False
    ended_ports: frozenset[int] = frozenset()
    splits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NewSubtask:
    """The subtask that gets the state: its number, its key groups (of ``max_key_groups``), the splits of its source.

    ``parallelism`` is the number of new subtasks.
    """

    number: int
    parallelism: int
    groups: range
    max_key_groups: int
    splits: frozenset[str] = frozenset()

    @property
    def takes_unkeyed(self) -> bool:
        """Whether rows without keys come here: all to the first subtask, in order, and before all new rows.

        In another one, later rows of a key, which come to another subtask now, could precede its earlier ones.
        """
        return self.number == 0


def is_by_key(rules: Mapping[str, Rule]) -> bool:
    """Return whether all state belongs to keys, or is equal for all of them.

    >>> is_by_key({"rows": Rule("log", keys=1), "time": Rule("passed")}), is_by_key({"rows": Rule("log")})
    (True, False)
    """
    rows = [rule for rule in rules.values() if rule.kind in ("log", "table") and not rule.shared]
    return bool(rows) and all([rule.keys for rule in rows]) and all([rule.how != "split" for rule in rules.values()])


def agree(shares: Sequence[Share]) -> bool:
    """Return whether the shares have the same watermark and the same ends, so that only their keys differ."""
    first = shares[0]
    return all([_standing(share) == _standing(first) for share in shares])


def _standing(share: Share) -> tuple[object, ...]:
    snapshot = share.snapshot
    told = [
        snapshot.values.get(name) for name, rule in snapshot.rules.items() if rule.kind == "passed" or rule.how == "all"
    ]
    return told, share.ended, share.ended_ports


def merge_shares(shares: Sequence[Share], new: NewSubtask, where: str) -> Snapshot:
    """Return the state of a new subtask, made of the shares of all old ones by the rules stored with them.

    Args:
        shares: the shares, by ascending number of their subtasks; at least one.
        new: the subtask that gets the state.
        where: the operator, for messages.

    Raises: CheckpointDamaged if shares have different pieces or rules, or values differ that must be equal.
    """
    rules = {name: _without_bound(rule) for name, rule in shares[0].snapshot.rules.items()}
    for share in shares[1:]:
        if {name: _without_bound(rule) for name, rule in share.snapshot.rules.items()} != rules:
            raise CheckpointDamaged(f"the subtasks of operator {where!r} stored different pieces of state")
    values: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    logs: dict[str, Any] = {}
    for name, rule in rules.items():
        piece = f"state {name!r} of operator {where!r}"
        if any([name not in _pieces_of(rule, share.snapshot) for share in shares]):
            raise CheckpointDamaged(f"{piece} is missing in a subtask")
        if rule.kind == "log":
            logs[name] = _merged_log(name, shares[:1] if rule.shared else shares, new, piece)
        elif rule.kind == "table":
            tables[name] = _joined([_mine(share.snapshot.tables[name], rule, share, new) for share in shares], piece)
        elif rule.how == "split":
            values[name] = _of_splits(name, rule, shares, new, piece)
        else:
            values[name] = _merged_value(rule.how or rule.kind, [s.snapshot.values[name] for s in shares], piece)
    return Snapshot(values, tables, logs, rules, shares[0].snapshot.added)


def _pieces_of(rule: Rule, snapshot: Snapshot) -> Mapping[str, Any]:
    """Return the pieces of the kind of a rule."""
    kinds: Mapping[str, Mapping[str, Any]] = {"log": snapshot.logs, "table": snapshot.tables}
    return kinds.get(rule.kind, snapshot.values)


def _without_bound(rule: Rule) -> Rule:
    return msgspec.structs.replace(rule, low=None)


def _merged_log(name: str, shares: Sequence[Share], new: NewSubtask, piece: str) -> list[Mapping[str, pa.Table]]:
    """Return one base of all bases, and then the deltas of each share.

    A table of a later part may be a base, too: then what came before it does not count.
    """
    from dataflow.state.parts import is_base

    bases: dict[str, list[pa.Table]] = {}
    deltas: list[Mapping[str, pa.Table]] = []
    for share in shares:
        rule, parts = share.snapshot.rules[name], _parts(share.snapshot.logs[name])
        newest: dict[str, int] = {}
        for number, part in enumerate(parts):
            newest |= {table: number for table, rows in part.items() if number == 0 or is_base(rows)}
        for table, first in newest.items():
            bases.setdefault(table, []).append(_mine(parts[first][table], rule, share, new))
        for number, part in enumerate(parts):
            if delta := {t: _mine(rows, rule, share, new) for t, rows in part.items() if newest.get(t, 0) < number}:
                deltas.append(delta)
    return [{table: _joined(rows, piece) for table, rows in bases.items()}, *deltas] if bases else deltas


def _parts(log: Any) -> Sequence[Mapping[str, pa.Table]]:
    parts: Sequence[Mapping[str, pa.Table]] = log
    return parts


def _mine(table: Any, rule: Rule, share: Share, new: NewSubtask) -> pa.Table:
    """Return the rows of a share that count and belong to the new subtask."""
    from dataflow.state.parts import counting, owned

    if not rule.keys:
        return table if rule.shared or new.takes_unkeyed else table.slice(0, 0)
    groups = range(max(share.groups.start, new.groups.start), min(share.groups.stop, new.groups.stop))
    rows = counting(table, *rule.low) if rule.low is not None else table
    return owned(rows, rule.keys, groups, new.max_key_groups) if groups else rows.slice(0, 0)


def _joined(tables: Sequence[pa.Table], piece: str) -> pa.Table:
    """Return the rows of all tables, with the metadata of the first."""
    import pyarrow as pa

    schema = tables[0].schema
    if any([table.schema != schema for table in tables]):
        raise CheckpointDamaged(
            f"{piece} has other columns in each subtask: {excerpt([t.schema.names for t in tables])}"
        )
    return pa.concat_tables([table.replace_schema_metadata(schema.metadata) for table in tables])


def differing_copies(shares: Sequence[Share], shared: Sequence[str], where: str) -> Iterator[str]:
    """Yield a text for each piece whose copies differ, though all subtasks should have equal rows.

    They differ after a restore that repeated rows to some subtasks. The order of the rows may differ.
    """
    for name in shared:
        copies = [_content(share.snapshot.logs[name]) for share in shares]
        differing = [share.subtask for share, copy in zip(shares, copies, strict=True) if copy != copies[0]]
        if differing:
            first = shares[0].subtask
            yield (
                f"operator {where!r}: the copies of state {name!r} in subtasks {first} and {differing[0]} differ; all "
                f"subtasks start with that of subtask {first}"
            )


def _content(log: Any) -> list[str]:
    """Return the rows of a log in any order, without the engine's own numbers."""
    import pyarrow as pa

    from dataflow.state.parts import resolved

    rows: list[str] = []
    for table in resolved(_parts(log)).values():
        kept = [field.name for field in table.schema if field.nullable or not pa.types.is_int64(field.type)]
        rows += [repr(row) for row in table.select(kept).to_pylist()]
    return sorted(rows)


def _merged_value(how: str, values: Sequence[Any], piece: str) -> Any:
    match how:
        case "greatest":
            return max(values)
        case "least" | "passed":
            return None if None in values else min(values)
        case "all":
            return _all(values)
        case "equal" | "fixed":
            if any([value != values[0] for value in values]):
                raise CheckpointDamaged(f"{piece} must be equal in all subtasks, but is {excerpt(list(values))}")
            return values[0]
    raise CheckpointDamaged(f"{piece} has the rule {how!r}, which is unknown here")


def _all(values: Sequence[Any]) -> Any:
    """Return True if all are; of lists, place by place."""
    if isinstance(values[0], list | tuple):
        return [_all(places) for places in zip(*values, strict=True)]
    return all(values)


def _of_splits(name: str, rule: Rule, shares: Sequence[Share], new: NewSubtask, piece: str) -> Mapping[str, Any]:
    """Return the entries of the splits of the new subtask; one without takes the waiting value of its old subtask."""
    found: dict[str, Any] = {}
    for share in shares:
        entries = parsed(dict[str, Any], share.snapshot.values[name], piece)
        waiting = share.snapshot.values.get(rule.waiting) if rule.waiting else None
        if waiting is not None:
            entries = {**dict.fromkeys(share.splits, waiting), **entries}
        found |= {split: entries[split] for split in sorted(entries) if split in new.splits}
    return found


def refuse_foreign_rows(name: str, shares: Sequence[Share], max_key_groups: int) -> None:
    """Raise CheckpointMismatch if rows of a user's operator belong to the keys of another subtask than stored them."""
    from dataflow.state.parts import owned

    for share in shares:
        for piece, rule in share.snapshot.rules.items():
            tables: list[Any] = [share.snapshot.tables[piece]] if rule.kind == "table" else []
            if rule.kind == "log":
                tables = [table for part in _parts(share.snapshot.logs[piece]) for table in part.values()]
            for table in tables if rule.keys else ():
                foreign = table.num_rows - owned(table, rule.keys, share.groups, max_key_groups).num_rows
                if foreign:
                    raise CheckpointMismatch(
                        f"{name}: {piece}: {foreign} of {table.num_rows} stored rows belong to other subtasks, so "
                        f"keys={rule.keys} does not say by which columns rows come here: declare the columns of "
                        "key_by(...), or of the sink's keys, first and in their order"
                    )
