"""Aggregates that are added to an operator, removed from it, renamed or put in another order between two runs.

A checkpoint stores the state of an aggregate under what it computes (`Aggregation.identity`), and the state of those
that share some under their group. So an order or a name changes nothing that is stored. What an aggregate begins with
that has no state is known to the operator alone (``Log.initial``).

A checkpoint names an aggregate as the last columns of the operator's output do, in the order of its settings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal

from dataflow.contracts.evolution import Adaptation, OperatorDescription, PieceChange, PieceChanges
from dataflow.contracts.operator import Snapshot
from dataflow.contracts.source import Json
from dataflow.contracts.stored_pieces import keys_of, keys_where, with_owner, without_owner
from dataflow.contracts.updates import CHANGE
from dataflow.errors import CheckpointDamaged, CheckpointMismatch
from dataflow.expressions import Aggregation
from dataflow.expressions.aggregates import identities, stored_name
from dataflow.untrusted import parsed

__all__ = ["ROWS", "WAY_OUT", "Rows", "aggregate_names", "check_rows", "evolve_aggregates", "kept_columns"]

Rows = Literal["none", "some", "all"]
"""Which aggregates of an operator are computed from rows that it keeps."""
ROWS: Final = "rows"
"""The table of keyed state with the rows of keys."""
WAY_OUT: Final = "compute it in an operator of its own, which starts empty"


def aggregate_names(described: OperatorDescription) -> Mapping[str, str]:
    """Return what each aggregate of an operator computes, by the name of its column."""
    texts = _texts(described)
    names = _columns(described)[1]
    if len(names) != len(texts):
        raise CheckpointDamaged(f"operator {described.name!r} has {len(texts)} aggregates and {len(names)} columns")
    return {name: text.removesuffix(f".alias({name!r})") for name, text in zip(names, texts, strict=True)}


def evolve_aggregates(
    aggregations: Sequence[Aggregation],
    stored: OperatorDescription,
    now: OperatorDescription,
    changes: PieceChanges,
    *,
    signed: bool = False,
    rows: Rows = "none",
) -> Adaptation:
    """Return what an operator of ``aggregations`` makes of a checkpoint: see `Spec.evolve`.

    Args:
        aggregations: the aggregates of the pipeline, in their order.
        stored: the operator of the checkpoint.
        now: the operator of the pipeline.
        changes: what the user allows.
        signed: whether the rows that are aggregated may be taken back.
        rows: which aggregates are computed from rows that the operator keeps.

    Raises: CheckpointMismatch for an aggregate that cannot be added.
    """
    names = aggregate_names(stored)
    old = {changes.renamed.get(name, name): name for name in names}
    before, after = {name: names[was] for name, was in old.items()}, aggregate_names(now)
    dropped = [name for name, text in before.items() if after.get(name) != text and old[name] in changes.dropped]
    kept = [name for name in before if name not in dropped]
    if any([after.get(name) != before[name] for name in kept]):
        return Adaptation(_renamed(stored, old))  # the comparison refuses the rest
    _check_functions(aggregations, before, after, now.name)
    done = [PieceChange(name, f"renamed from {old[name]!r}") for name in kept if old[name] != name]
    for name in dropped:
        stays = before[name] in after.values()
        drop = _without_rows if rows == "all" else partial(_without, before[name])
        done.append(PieceChange(name, "dropped", None if stays else drop))
    owners = dict(zip(after, identities(aggregations), strict=True))
    given = dict(zip(after, aggregations, strict=True))
    for name in [name for name in after if name not in kept]:
        new = given[name]
        members = [given[each] for each in kept if given[each].group() == new.group()]
        if now.detail.get("emit") == "changes":
            _check_shown(new, members, before.values(), now.name, rows)
        if equal := [each for each, text in before.items() if text == after[name]]:
            done.append(PieceChange(name, f"added; it has the state of {equal[0]!r}, which is the same aggregate"))
            continue
        if signed and (not members or new.chooses_a_row):
            raise CheckpointMismatch(
                f"operator {now.name!r}: the aggregate {name!r} cannot be added, because its input has signed changes: "
                f"rows that came before would be taken back from it, which never had them; {WAY_OUT}"
            )
        done.append(_addition(new, owners[name], members, rows))
    alike = list(dict.fromkeys(before.values())) == list(dict.fromkeys(after.values()))
    detail = {**stored.detail, "aggregations": now.detail["aggregations"]}
    return Adaptation(replace(stored, detail=detail, schema=_schema(stored, now)), done, alike)


def _texts(described: OperatorDescription) -> list[str]:
    return parsed(list[str], described.detail.get("aggregations", []), f"the aggregates of {described.name!r}")


def _columns(described: OperatorDescription) -> tuple[list[str], list[str], list[str]]:
    """Return the columns of the output: before the aggregates, of the aggregates, and after them."""
    names = [name for name, _ in described.schema]
    last = len(names) - (described.detail.get("emit") == "changes" and names[-1:] == [CHANGE])
    first = max(0, last - len(_texts(described)))
    return names[:first], names[first:last], names[last:]


def _schema(stored: OperatorDescription, now: OperatorDescription) -> list[tuple[str, str]]:
    """Return the columns of the checkpoint as if its operator had had the aggregates of the pipeline.

    Those that it had have the types of the checkpoint.
    """
    before, results, after = _columns(stored)
    types, new = dict(stored.schema), dict(now.schema)
    names = aggregate_names(stored)
    own = {names[name]: types[name] for name in results}
    middle = [(name, own.get(text, new[name])) for name, text in aggregate_names(now).items()]
    return [*[(n, types[n]) for n in before], *middle, *[(n, types[n]) for n in after]]


def _renamed(stored: OperatorDescription, old: Mapping[str, str]) -> OperatorDescription:
    """Return the checkpoint's operator with new names for its aggregates; ``old`` has the old ones by them."""
    new = {was: name for name, was in old.items()}
    before, results, after = _columns(stored)
    types = dict(stored.schema)
    texts: list[Json] = []
    for (name, identity), text in zip(aggregate_names(stored).items(), _texts(stored), strict=True):
        texts.append(text if new[name] == name else f"{identity}.alias({new[name]!r})")
    schema = [(n, types[n]) for n in before] + [(new[n], types[n]) for n in results] + [(n, types[n]) for n in after]
    return replace(stored, detail={**stored.detail, "aggregations": texts}, schema=schema)


def _check_functions(
    aggregations: Sequence[Aggregation], before: Mapping[str, str], after: Mapping[str, str], where: str
) -> None:
    """Check that aggregates of functions with one text, which differ by what these close over, stay in their order.

    Raises: CheckpointMismatch.
    """
    of_users = {a.identity() for a in aggregations if a.is_of_user}
    for text in dict.fromkeys(text for text in after.values() if text in of_users):
        was, is_now = ([name for name, each in names.items() if each == text] for names in (before, after))
        if was and is_now != was and max(len(was), len(is_now)) > 1:
            raise CheckpointMismatch(
                f"operator {where!r}: the aggregates {was} are now {is_now}, and their functions have the same text, "
                f"so nothing says whose state is whose: leave them as they were, or give the functions other names"
            )


def _check_shown(
    new: Aggregation, members: Sequence[Aggregation], texts: Collection[str], where: str, rows: Rows
) -> None:
    """Check that rows which were shown before a restore are taken back as they were: without a value of ``new``.

    The old row of a key is read from its state, before the first change after the restore. So ``new`` must be null in
    a state that no row has changed since then.

    Raises: CheckpointMismatch.
    """
    has_value = new.identity() in texts or (bool(members) and not new.chooses_a_row)
    if has_value or new.is_never_null or rows == "all":
        raise CheckpointMismatch(
            f"operator {where!r}: the aggregate {new.name!r} cannot be added: with emit='changes' rows that were shown "
            "are taken back, and they had no value of it, where it has one from the start; add it in an operator "
            "of its own, or give emit='updates' to one that starts empty"
        )


def _addition(aggregation: Aggregation, owner: str, members: Sequence[Aggregation], rows: Rows) -> PieceChange:
    """Return the change that adds an aggregate; ``members`` are the stored aggregates that share its state."""
    if rows == "all":
        what = "added; computed from the rows that the operator keeps"
        return PieceChange(aggregation.name, what, partial(_with_rows, aggregation))
    if not members:
        what = "only rows after the restore count"
        if rows == "some":
            what = "rows from before the restore count only if the operator keeps them"
        return PieceChange(aggregation.name, f"added; {what}", partial(_with, owner))
    if aggregation.chooses_a_row:
        chosen = f"{stored_name(aggregation.group())}/chosen"
        what = "added; null for keys with a chosen row, until another row is chosen"
        return PieceChange(aggregation.name, what, partial(_with_choice, owner, chosen))
    return PieceChange(aggregation.name, "added; exact, because all values were kept", partial(_with, owner))


def _without(owner: str, stored: Snapshot) -> tuple[Snapshot, int]:
    return without_owner(stored, owner), _keys(stored)


def _without_rows(stored: Snapshot) -> tuple[Snapshot, int]:
    """Leave the rows as they are: the operator knows which of their columns it still needs."""
    return stored, _keys(stored)


def kept_columns(stored: Snapshot, piece: str, names: Collection[str]) -> Snapshot:
    """Return the state without columns of rows that are not in ``names``: what read them was removed."""
    parts: Any = stored.logs.get(piece, ())
    if all([ROWS not in part or {*part[ROWS].column_names} <= {*names} for part in parts]):
        return stored
    kept = []
    for part in parts:
        rows = part[ROWS]
        kept.append({**part, ROWS: rows.select([name for name in rows.column_names if name in names])})
    return replace(stored, logs={**stored.logs, piece: kept})


def _with(owner: str, stored: Snapshot) -> tuple[Snapshot, int]:
    return with_owner(stored, owner), _keys(stored)


def _with_choice(owner: str, chosen: str, stored: Snapshot) -> tuple[Snapshot, int]:
    return with_owner(stored, owner), sum([keys_where(stored, piece, chosen) for piece in _pieces(stored)])


def _with_rows(aggregation: Aggregation, stored: Snapshot) -> tuple[Snapshot, int]:
    """Check that the rows have the columns of an aggregate, which needs nothing else."""
    for piece in _pieces(stored):
        parts: Any = stored.logs[piece]
        for table in [part[ROWS] for part in parts if ROWS in part]:
            check_rows(aggregation, table.column_names)
    return stored, _keys(stored)


def check_rows(aggregation: Aggregation, columns: Collection[str]) -> None:
    """Raise CheckpointMismatch if stored rows, with these columns, lack one that ``aggregation`` reads."""
    if lacking := [name for name in aggregation.columns() if name not in columns]:
        raise CheckpointMismatch(
            f"the aggregate {aggregation.name!r} cannot be added: it is computed from rows that the operator keeps, "
            f"and those of the checkpoint have no column {', '.join(map(repr, lacking))}; {WAY_OUT}"
        )


def _keys(stored: Snapshot) -> int:
    return max([keys_of(stored, piece) for piece in _pieces(stored)], default=0)


def _pieces(stored: Snapshot) -> list[str]:
    """Return the logs with the state of aggregates."""
    return [name for name, rule in stored.rules.items() if rule.kind == "log" and rule.owners]
